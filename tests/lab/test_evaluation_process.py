"""Evaluations beside the training leave what those in between leave, however long they take."""

import multiprocessing
import threading
from types import SimpleNamespace

import pytest

from kalmanac._files.run_reader import read_metrics, read_summary
from kalmanac._lab.checkpointing import LOGGER, CheckpointFolder
from kalmanac._lab.evaluation import EvaluationStoppedError
from kalmanac._lab.evaluation_process import EvaluationProcess
from kalmanac._lab.failure import RunFailedError
from kalmanac._lab.run import resume, run
from tests.lab.test_resuming import after
from tests.lab.tiny import TINY, Counts

EXPERIMENT = TINY.changed({"eval_every": 32, "log_every": 8})
AGAIN = {"events": False, "device": "cpu", "together": 0}
HOW = AGAIN | {"threads": 1, "eval_beside": True}


@pytest.fixture(scope="module")
def truth(tmp_path_factory):
    folder = tmp_path_factory.mktemp("truth") / "run"
    run(EXPERIMENT, folder, **HOW | {"eval_beside": False})
    return folder


def same(truth, folder):
    for name in ("best.safetensors", "last.safetensors"):
        assert (truth / name).read_bytes() == (folder / name).read_bytes()
    assert read_metrics(folder) == read_metrics(truth)
    summary = read_summary(folder)
    summary.pop("resumed", None)
    assert summary == read_summary(truth)


def test_rows_and_models_are_those_of_evaluations_in_between(truth, tmp_path):
    told = []
    run(EXPERIMENT, tmp_path / "run", **HOW, on_evaluation=lambda step, _: told.append(step))
    same(truth, tmp_path / "run")
    assert told == [32, 64, 96]


def test_nobody_waits_until_a_process_takes_its_model():
    process, taken, sent = EvaluationProcess(EXPERIMENT), threading.Event(), []
    pipe = process._pipe

    def send(asked):  # as where the process is still starting, and the model fills the pipe
        taken.wait(5)
        sent.append(asked)

    process._pipe = SimpleNamespace(send=send, close=pipe.close)
    process.ask(b"a model", [3])
    assert process.asked == (b"a model", [3])
    assert not sent
    taken.set()
    process.close()
    assert sent == [process.asked], "what is under way is waited for"


@pytest.mark.slow
def test_a_run_that_is_stopped_before_the_answer_goes_on_to_the_same(truth, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    monkeypatch.setattr(EvaluationProcess, "ready", lambda _: False)  # it takes its time
    outcome = run(EXPERIMENT, folder, **HOW, stop=after(13), checkpoint_every=10**6)
    assert (outcome.status, outcome.step) == ("interrupted", 52)
    state = CheckpointFolder(folder).read(52).run["callbacks"][LOGGER]["beside"]
    assert [step for step, _ in state["rows"]] == [32, 40, 48]
    assert len(state["model"]) == (folder / "last.safetensors").stat().st_size
    assert read_metrics(folder)[-1]["step"] == 52, "rows are there, without the evaluation"
    assert resume(folder, **AGAIN).status == "finished"
    same(truth, folder)


@pytest.mark.slow
def test_a_run_that_is_stopped_while_it_waits_goes_on_to_the_same(truth, tmp_path, monkeypatch):
    folder, answer, waiting = tmp_path / "run", EvaluationProcess.wait, []

    def wait(process, stop):
        if process.rows[0][0] == 96:  # the last one
            waiting.append(1)
            raise EvaluationStoppedError
        return answer(process, stop)

    monkeypatch.setattr(EvaluationProcess, "wait", wait)
    outcome = run(EXPERIMENT, folder, **HOW)
    assert waiting
    assert (outcome.status, outcome.step) == ("interrupted", 96)
    monkeypatch.undo()
    assert resume(folder, **AGAIN).status == "finished"
    same(truth, folder)


class BreaksElsewhere(Counts):
    """Raises in every process but the first."""

    def step(self, action):
        if multiprocessing.parent_process() is not None:
            raise OSError("the cable is out")
        return super().step(action)


@pytest.mark.slow
def test_what_fails_there_ends_the_run(tmp_path):
    broken = {"env": f"{__name__}:BreaksElsewhere", "evaluations": ("in",)}
    with pytest.raises(RunFailedError, match=r"an evaluation failed: .*the cable is out"):
        run(EXPERIMENT.changed(broken), tmp_path / "run", **HOW)
    assert read_summary(tmp_path / "run")["status"] == "failed"


def test_evaluations_have_one_place(tmp_path):
    with pytest.raises(ValueError, match="eval_beside: got True with eval_on_device"):
        run(EXPERIMENT.changed({"eval_on_device": True}), tmp_path / "run", **HOW)
