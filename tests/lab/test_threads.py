"""How many threads a run takes: chosen by a measurement, recorded, and kept where it goes on."""

import os
import subprocess
import sys

import pytest
import torch

from kalmanac._files.document import BadFileError
from kalmanac._files.run_reader import read_provenance
from kalmanac._lab import threads as chosen
from kalmanac._lab.checkpointing import CheckpointFolder
from kalmanac._lab.factory import make_model, training_environment
from kalmanac._lab.run import resume, resume_together, run, run_together
from kalmanac._lab.threads import choose_threads, fastest, threads_restored
from kalmanac._sac.learner import Learner
from tests.lab.test_resuming import after, same_bytes
from tests.lab.tiny import TINY

SMALL = TINY.changed({"total_steps": 48, "update_to_data": 0.25, "evaluations": ("in",)})


@pytest.fixture
def seen(monkeypatch):
    """The numbers of threads that updates have been made with."""
    numbers, update = [], Learner.update

    def counted(learner, batch, **how):
        numbers.append(torch.get_num_threads())
        return update(learner, batch, **how)

    monkeypatch.setattr(Learner, "update", counted)
    with threads_restored():
        yield numbers


@pytest.mark.parametrize(
    ("costs", "number"),
    [
        ({1: 1.0, 2: 0.6, 4: 0.4}, 4),
        ({1: 1.0, 2: 0.6, 4: 0.58}, 2),  # four would hardly gain
        ({1: 1.0, 2: 0.95, 4: 0.95}, 1),
        ({1: 0.02, 2: 0.9, 4: 3.0}, 1),  # cores that others keep busy
    ],
)
def test_the_fewest_threads_that_are_about_the_fastest(costs, number):
    rounds = []

    def seconds(threads):
        rounds.append(threads)
        return costs[threads] * (100 if len(rounds) <= len(costs) else 1)  # a slow start

    assert fastest(list(costs), seconds) == number
    assert rounds == list(costs) * (len(rounds) // len(costs))  # in turns
    assert len(rounds) // len(costs) - 1 >= chosen.ROUNDS[0]


def test_updates_are_measured_with_each_number_and_nothing_is_left_behind(seen, monkeypatch):
    asked = []

    def last(numbers, seconds):
        asked.extend(numbers)
        return [number for number in numbers if seconds(number) >= 0][-1]

    monkeypatch.setattr(chosen, "fastest", last)
    learner = make_model(TINY, training_environment(TINY), "cpu").learner
    before = {name: x.clone() for name, x in learner.state_dict().items()}
    torch.set_num_threads(3)
    assert choose_threads(TINY, learner) == 3
    assert asked == seen == [1, 2, 3]
    assert torch.get_num_threads() == 3
    assert all(x.equal(before[name]) for name, x in learner.state_dict().items())
    torch.set_num_threads(1)
    assert choose_threads(TINY, learner) == 1
    assert len(asked) == 3, "there is no choice"


def test_a_run_records_its_threads_and_keeps_them(seen, tmp_path):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    torch.set_num_threads(1)
    how = {"events": False, "together": 0}  # no update but those of the training
    run(SMALL, whole, threads=2, **how)
    run(SMALL, stopped, threads=2, stop=after(6), **how)
    assert read_provenance(stopped)["threads"] == "2"
    outcome = resume(stopped, **how)
    assert outcome.status == "finished"
    assert set(seen) == {2}
    assert torch.get_num_threads() == 1, "the process has its own again"
    same_bytes(whole, stopped)


def test_a_new_run_measures_once_for_all_seeds(monkeypatch, tmp_path, seen):
    calls = []
    monkeypatch.setattr("kalmanac._lab.active_run.choose_threads", lambda *_: calls.append(1) or 2)
    seeds, folders = [SMALL.changed({"seed": i}) for i in (1, 2)], [tmp_path / x for x in "ab"]
    run_together(seeds, folders, events=False, together=0)
    assert calls == [1]
    assert set(seen) == {2}
    assert [read_provenance(folder)["threads"] for folder in folders] == ["2", "2"]


def test_runs_that_go_on_together_keep_their_own(seen, tmp_path):
    folders = {number: tmp_path / str(number) for number in (1, 2)}
    for number, folder in folders.items():
        run(SMALL, folder, events=False, threads=number, stop=after(6))
    seen.clear()
    resume_together(list(folders.values()), events=False, together=0)
    assert seen[:4] == [1, 2, 1, 2] or seen[:4] == [1, 1, 2, 2]
    assert [read_provenance(folder)["threads"] for folder in folders.values()] == ["1", "2"]


@pytest.mark.parametrize("bad", [0, True, 10**6])
def test_a_checkpoint_with_an_impossible_number_is_refused(bad, tmp_path):
    folder = tmp_path / "run"
    run(SMALL, folder, events=False, checkpoint_every=10**6)
    checkpoints = CheckpointFolder(folder)
    saved = checkpoints.read(48)
    saved.run["folder"]["threads"] = bad
    model = make_model(SMALL, training_environment(SMALL), "cpu")
    checkpoints.restore(saved, model.replay)
    checkpoints.write(48, saved.run, model.replay)
    with pytest.raises(BadFileError, match="threads: got"):
        resume(folder, total_steps=100, events=False)


VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


def python(code, **variables):
    inherited = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env=inherited | variables,
    )  # fmt: skip


def test_threads_sleep_while_they_wait():
    said = python("import kalmanac, torch", OMP_DISPLAY_ENV="verbose").stderr
    if "GOMP_SPINCOUNT" not in said:
        pytest.skip("this is another OpenMP than GCC's")
    assert "GOMP_SPINCOUNT = '0'" in said


@pytest.mark.parametrize("own", VARIABLES)
def test_variables_of_the_user_stay_as_they_are(own):
    look = f"import kalmanac, os; print({{x: os.environ.get(x) for x in {VARIABLES}}})"
    nothing = dict.fromkeys(VARIABLES)
    assert python(look, **{own: "7"}).stdout.strip() == str(nothing | {own: "7"})
