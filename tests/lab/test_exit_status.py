"""A run is finished where it has taken all its steps, and nowhere else, whatever ends it."""

import io
import os
import signal

import pytest

from kalmanac._cli.program import main
from kalmanac._files.run_reader import (
    FAILURE,
    LOCK,
    MODELS,
    checkpoint_steps,
    read_summary,
    resumable,
)
from kalmanac._files.run_status import read_status
from kalmanac._lab.active_run import ActiveRun, Outcome, StopSignals
from kalmanac._lab.failure import RunFailedError
from kalmanac._lab.run import resume, run, run_together
from kalmanac._report.runs import read_runs
from kalmanac._sac.progress import Progress
from tests.lab.test_resuming import after, same_bytes
from tests.lab.tiny import TINY

FAILING = TINY.changed(
    {"env": "tests.lab.failing:Failing", "evaluations": ("in",), "eval_every": 1000}
)
EXITS = {
    "exit": "SystemExit (",
    "exit 0": "SystemExit: 0 (",
    "cancel": "CancelledError: the window is closed (",
}


def exiting(how, **changes):
    return FAILING.changed({"env_settings": {"how": how}, **changes})


@pytest.mark.parametrize("how", EXITS)
def test_an_environment_that_leaves_python_fails_the_run_and_costs_no_checkpoint(how, tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(RunFailedError) as caught:
        run(exiting(how), folder, events=False, checkpoint_every=20)
    message = str(caught.value)
    assert message.startswith(f"stopped at step 44: the environment raised {EXITS[how]}")
    assert "failing.py, line " in message
    assert read_summary(folder)["status"] == "failed"
    assert checkpoint_steps(folder) == [20, 40]
    assert resumable(folder) == 40
    assert not (folder / LOCK).exists()
    status = read_status(folder, now=0.0)
    assert (status.status, status.step, status.total, status.resume) == ("failed", 44, 96, 40)
    assert not any(one.finished for one in read_runs(folder).runs)


def test_an_environment_that_leaves_python_in_an_evaluation_fails_the_run(tmp_path):
    folder = tmp_path / "run"
    # three steps of each training environment, then the evaluation's
    early = exiting("exit", eval_every=8, eval_episodes=1)
    early = early.changed({"env_settings": {"at": 4}})
    with pytest.raises(
        RunFailedError, match="stopped at step 8: the environment raised SystemExit"
    ):
        run(early, folder, events=False)
    assert read_summary(folder)["status"] == "failed"
    assert resumable(folder) == 0


def test_the_verb_says_so_and_its_status_is_not_0(tmp_path, capsys):
    folder = tmp_path / "run"
    words = "train tests.lab.failing:Failing --env-settings how=exit --encoder memoryless"
    words += f" --device cpu --steps 400 --no-tensorboard --folder {folder} --no-progress"
    assert main(words.split()) == 1
    message = capsys.readouterr().err
    assert "stopped at step 88: the environment raised SystemExit (" in message
    assert message.endswith(f"`kalmanac resume {folder}` goes on from it\n")
    assert message.count("\n") == 1


def test_a_module_that_leaves_python_is_no_environment(tmp_path, capsys, monkeypatch):
    (tmp_path / "leaving.py").write_text("import sys\n\nsys.exit()\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["train", "leaving:Env", "--device", "cpu"]) == 2
    message = capsys.readouterr().err
    assert f"'leaving:Env', which raised SystemExit ({tmp_path}/leaving.py, line 3)" in message
    assert message.count("\n") == 1


@pytest.mark.parametrize("how", ["raise", "exit", "cancel"])
def test_one_seed_s_environment_ends_that_seed_alone(how, tmp_path):
    sound, leaving = exiting(how).changed({"env_settings": {"at": 10**9}}), exiting(how)
    folders = [tmp_path / name for name in "abc"]
    outcomes = run_together([sound, leaving, sound], folders, events=False, checkpoint_every=20)
    assert isinstance(outcomes[1], RunFailedError)
    assert [outcomes[0], outcomes[2]] == [Outcome("finished", folders[i], 96) for i in (0, 2)]
    assert [read_summary(folder)["status"] for folder in folders] == [
        "finished", "failed", "finished",
    ]  # fmt: skip
    assert [resumable(folder) for folder in folders] == [None, 40, None]
    same_bytes(folders[0], folders[2])


@pytest.mark.parametrize("error", [SystemExit(0), GeneratorExit(), BaseException("odd")])
def test_what_is_raised_anywhere_is_an_end_with_a_name(error, tmp_path, monkeypatch):
    def leave(self, model):
        if model.num_timesteps > 40:
            raise error

    monkeypatch.setattr(Progress, "on_step", leave)
    with pytest.raises(RunFailedError, match=f"stopped at step 44: {type(error).__name__}"):
        run(TINY, tmp_path, events=False, checkpoint_every=20, progress=Progress(96, io.StringIO()))
    assert read_summary(tmp_path)["status"] == "failed"
    assert resumable(tmp_path) == 40


def test_a_callback_that_ends_a_run_early_does_not_finish_it(tmp_path, monkeypatch):
    monkeypatch.setattr(Progress, "on_step", lambda self, model: model.num_timesteps < 40)
    outcome = run(TINY, tmp_path, events=False, progress=Progress(96, io.StringIO()))
    assert outcome == Outcome("interrupted", tmp_path, 40)
    assert read_summary(tmp_path)["status"] == "interrupted"
    assert resumable(tmp_path) == 0


def test_a_storm_of_signals_leaves_every_run_with_an_end(tmp_path, monkeypatch):
    """The second one interrupts; those that follow do not reach into the ends of the runs."""
    end, sent = ActiveRun.end, []

    def stormy(self, error, *, interrupted=False):
        for _ in range(20):
            os.kill(os.getpid(), signal.SIGTERM)
        return end(self, error, interrupted=interrupted)

    def storm():
        sent.append(len(sent))
        if len(sent) == 30:
            for _ in range(20):
                os.kill(os.getpid(), signal.SIGTERM)
        return False

    monkeypatch.setattr(ActiveRun, "end", stormy)
    seeds = [TINY.changed({"seed": seed}) for seed in (0, 1)]
    folders = [tmp_path / name for name in "ab"]
    with StopSignals() as stop:
        outcomes = run_together(seeds, folders, events=False, checkpoint_every=8, stop=storm)
    assert stop.number == signal.SIGTERM
    assert [one.status for one in outcomes] == ["interrupted", "interrupted"]
    assert all(read_summary(folder)["status"] == "interrupted" for folder in folders)
    assert all(resumable(folder) for folder in folders)
    assert not any((folder / LOCK).exists() for folder in folders)


@pytest.mark.parametrize("when", ["training_environment", "RunLogger"])
def test_an_interrupt_before_the_first_step_leaves_every_run_with_an_end(
    when, tmp_path, monkeypatch
):
    calls = after(2)
    name = f"kalmanac._lab.active_run.{when}"
    *path, attribute = name.split(".")
    module = __import__(".".join(path), fromlist=[attribute])
    real = getattr(module, attribute)

    def interrupted(*args, **kwargs):
        if calls():
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    monkeypatch.setattr(module, attribute, interrupted)
    folders = [tmp_path / name for name in "abc"]
    outcomes = run_together([TINY] * 3, folders, events=False)
    assert [one.status for one in outcomes] == ["interrupted"] * 3
    assert read_summary(folders[0])["status"] == "interrupted"
    assert not any((folder / LOCK).exists() for folder in folders)
    assert not folders[2].exists()


def test_an_environment_that_cannot_be_closed_does_not_unfinish_a_run(tmp_path, capsys):
    folder = tmp_path / "run"
    words = "train tests.lab.failing:Uncloseable --encoder memoryless --device cpu --no-progress"
    words += f" --steps 96 --no-tensorboard --folder {folder} --eval-every 48 --num-envs 2"
    assert main(words.split()) == 0
    output = capsys.readouterr()
    assert output.err == ""
    assert f"finished: {folder}" in output.out
    *_, note = output.out.splitlines()
    assert note.startswith("note: the environment raised OSError: the door is stuck (")
    assert note.endswith("when it was closed")
    assert read_summary(folder)["status"] == "finished"
    assert main(["eval", str(folder), "--episodes", "1"]) == 0


def test_an_error_of_two_lines_is_told_in_one_and_kept_in_full(tmp_path, capsys):
    folder = tmp_path / "run"
    words = "train tests.lab.failing:Failing --encoder memoryless --device cpu --no-progress"
    words += f" --steps 400 --no-tensorboard --folder {folder} --checkpoint-every 20"
    words = [*words.split(), "--env-settings", "how=two lines"]
    assert main(words) == 1
    message = capsys.readouterr().err
    assert "the environment raised ZeroDivisionError: the motor burnt out (" in message
    assert "tests/lab/failing.py, line " in message
    assert message.count("\n") == 1
    assert folder.is_dir()
    story = (folder / FAILURE).read_text()
    assert "the motor\nburnt out" in story
    assert 'raise ZeroDivisionError("the motor\\nburnt out")' in story
    assert main(["resume", str(folder)]) == 1
    message = capsys.readouterr().err
    assert "the motor burnt out" in message
    assert message.count("\n") == 1


def test_an_environment_that_fails_in_kalmanac_eval_is_one_line(tmp_path, capsys, monkeypatch):
    sound = exiting("raise").changed({"env_settings": {"at": 10**9}, "total_steps": 16})
    run(sound, tmp_path, events=False)

    def step(self, action):
        raise ZeroDivisionError("the motor\nburnt out")

    monkeypatch.setattr("tests.lab.failing.Failing.step", step)
    assert main(["eval", str(tmp_path), "--device", "cpu"]) == 1
    output = capsys.readouterr()
    assert "raised ZeroDivisionError: the motor burnt out (" in output.err
    assert (output.err.count("\n"), output.out) == (1, "")


def test_a_best_model_that_is_gone_is_told_and_found_anew(tmp_path):
    folder, lines = tmp_path / "run", io.StringIO()
    evaluated = lambda: folder.exists() and "best" in read_summary(folder)  # noqa: E731
    run(TINY, folder, events=False, checkpoint_every=20, stop=evaluated)
    assert read_summary(folder)["best"]["step"] == 40
    (folder / MODELS["best"]).unlink()
    assert resume(folder, events=False, progress=Progress(96, lines)).status == "finished"
    assert "best.safetensors is gone" in lines.getvalue()
    summary = read_summary(folder)
    assert summary["resumed"][0]["best"] == "lost"
    assert summary["best"]["step"] > 40
    assert (folder / MODELS["best"]).is_file()
