"""A run that is given another end leaves the bytes of one that had it from the beginning."""

import json
import shutil

import pytest

from kalmanac._cli.program import main
from kalmanac._files import run_folder
from kalmanac._files.run_reader import (
    SIGNATURE,
    checkpoint_file,
    checkpoint_steps,
    experiment_bytes,
    is_signed,
    read_experiment,
    read_metrics,
    read_summary,
    resumable,
    series,
)
from kalmanac._lab.experiment import Experiment
from kalmanac._lab.failure import RunFailedError
from kalmanac._lab.run import resume, resume_together, run, run_together
from tests.lab.test_resuming import KINDS, after, same_bytes
from tests.lab.tiny import TINY

LONG = 240  # steps; both ends are on the schedules of rows and evaluations
EXACT = [name for name in KINDS if name != "overlap"]
QUICK = ("bounded",)
BOUNDED = KINDS["bounded"]


def longer(experiment, steps=LONG):
    return experiment.changed({"total_steps": steps})


@pytest.fixture(scope="module")
def truth(tmp_path_factory):
    """A run that had the later end from its beginning."""
    folders = {}

    def whole(name):
        if name not in folders:
            folders[name] = tmp_path_factory.mktemp("truth") / name
            run(longer(KINDS[name]), folders[name], events=False)
        return folders[name]

    return whole


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(n, marks=pytest.mark.slow) for n in EXACT if n not in QUICK)]
)
def test_finished_and_extended_equals_as_long_from_the_beginning(name, truth, tmp_path):
    folder = tmp_path / "run"
    assert run(KINDS[name], folder, events=False).status == "finished"
    assert checkpoint_steps(folder) == [120], "the last one alone"
    assert resumable(folder) is None
    outcome = resume(folder, total_steps=LONG, events=False)
    assert (outcome.status, outcome.step) == ("finished", LONG)
    same_bytes(truth(name), folder)
    assert read_experiment(folder) == read_experiment(truth(name)), "it is that run now"
    summary = read_summary(folder)
    assert summary.pop("resumed") == [{"step": 120, "episodes": "the same"}]
    assert summary == read_summary(truth(name))
    assert checkpoint_steps(folder) == [LONG]


@pytest.mark.slow
def test_extended_twice_and_stopped_on_the_way(truth, tmp_path):
    folder = tmp_path / "run"
    run(BOUNDED, folder, events=False)
    assert resume(folder, total_steps=168, events=False, stop=after(3)).step == 132
    assert resume(folder, events=False, stop=after(2)).step == 140, "to the new end"
    assert resume(folder, events=False).step == 168
    assert resume(folder, total_steps=LONG, events=False, stop=after(5)).status == "interrupted"
    assert resume(folder, events=False).status == "finished"
    last = "last.safetensors"
    assert (folder / last).read_bytes() == (truth("bounded") / last).read_bytes()


@pytest.mark.parametrize("end", [LONG, 96])
def test_a_stopped_run_gets_another_end(end, truth, tmp_path):
    folder, whole = tmp_path / "run", tmp_path / "whole"
    run(BOUNDED, folder, events=False, stop=after(13))
    assert resume(folder, total_steps=end, events=False).step == end
    if end == LONG:
        whole = truth("bounded")
    else:
        run(longer(BOUNDED, end), whole, events=False)
    same_bytes(whole, folder)


def test_an_end_between_two_evaluations_leaves_its_own_in_the_log_and_changes_nothing_else(
    truth, tmp_path
):
    folder = tmp_path / "run"
    run(longer(BOUNDED, 100), folder, events=False)
    resume(folder, total_steps=LONG, events=False)
    own, other = ("last.safetensors", "metrics.jsonl")
    assert (folder / own).read_bytes() == (truth("bounded") / own).read_bytes()
    steps, values = series(read_metrics(folder), "eval/in/mean_reward")
    wanted = series(read_metrics(truth("bounded")), "eval/in/mean_reward")
    assert steps == sorted([*wanted[0], 100])
    assert [x for step, x in zip(steps, values, strict=True) if step != 100] == wanted[1]
    assert (folder / other).read_text() != (truth("bounded") / other).read_text()


def test_a_run_that_was_killed_while_it_was_extended_goes_on_to_the_new_end(truth, tmp_path):
    folder = tmp_path / "run"
    run(BOUNDED, folder, events=False)
    resume(folder, total_steps=LONG, events=False, stop=after(4))
    checkpoint_file(folder, 136).unlink()  # as if it had not come to this one
    assert checkpoint_steps(folder) == [120]
    assert resume(folder, events=False).step == LONG
    same_bytes(truth("bounded"), folder)


def test_seeds_are_extended_together(tmp_path):
    seeds = [TINY.changed({"seed": seed}) for seed in (0, 1)]
    folders = [tmp_path / f"seed{one.seed}" for one in seeds]
    run_together(seeds, folders, events=False)
    ended = resume_together(folders, total_steps=120, events=False)
    assert [outcome.step for outcome in ended] == [120, 120]


def test_what_an_agent_did_after_its_training_goes_with_that_end(tmp_path):
    folder = tmp_path / "run"
    run(TINY, folder, events=False)
    left = folder / "evaluations"
    left.mkdir()
    for name in ("heatmap.json", "example-0.npz", "mine.txt"):
        (left / name).write_text("")
    resume(folder, total_steps=120, events=False)
    assert [file.name for file in left.iterdir()] == ["mine.txt"]


class KilledError(BaseException):
    """Instead of a signal: nothing is written any more, whoever catches it."""


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A finished run of this user with an environment of a module, and what its agent did then."""
    folder = tmp_path_factory.mktemp("own") / "drifting"
    env = {"env": "tests.lab.drifting:Drifting", "env_settings": {}, "evaluations": ("in",)}
    run(TINY.changed(env), folder, events=False)
    (folder / "evaluations").mkdir()
    (folder / "evaluations" / "heatmap.json").write_text("")
    return folder


@pytest.mark.parametrize("kept", range(5))
def test_whenever_it_is_killed_an_own_run_stays_ones_own(kept, own, tmp_path, monkeypatch):
    folder, written, write = shutil.copytree(own, tmp_path / "run"), [], run_folder.write_whole

    def killed(path, content, **how):
        if len(written) == kept:
            raise KilledError
        write(path, content, **how)
        written.append(path.name)

    with monkeypatch.context() as patch:
        patch.setattr(run_folder, "write_whole", killed)
        with pytest.raises((KilledError, RunFailedError)):
            resume(folder, total_steps=120, events=False)
    order = ["summary.json", "experiment.hmac", "experiment.json", "experiment.hmac"]
    assert written[:4] == order[:kept]
    changed = read_experiment(folder)["total_steps"] == 120
    assert changed is (kept > 2)
    assert not (changed and (folder / "evaluations" / "heatmap.json").exists())
    assert resume(folder, total_steps=120, events=False).status == "finished"
    assert not (folder / "evaluations" / "heatmap.json").exists()
    assert is_signed(folder, experiment_bytes(folder))


def test_a_signature_beside_ones_own_is_no_way_in(own, tmp_path):
    folder = shutil.copytree(own, tmp_path / "run")
    (signature,) = (folder / SIGNATURE).read_text().splitlines()
    content = experiment_bytes(folder)
    for lines, known in (
        ([signature, "0" * 64], True), (["0" * 64, signature], True),
        (["0" * 64, "0" * 64, signature], False), ([signature + signature], False),
    ):  # fmt: skip
        (folder / SIGNATURE).write_text("\n".join(lines))
        assert is_signed(folder, content) is known
        assert not is_signed(folder, content + b" ")


def test_extending_signs_nothing_of_before_that_was_not_signed(own, tmp_path):
    folder = shutil.copytree(own, tmp_path / "run")
    before = experiment_bytes(folder)
    experiment = Experiment.from_data(read_experiment(folder))
    (folder / SIGNATURE).unlink()
    resume(folder, total_steps=120, events=False, trust=[experiment])
    assert is_signed(folder, experiment_bytes(folder))
    assert not is_signed(folder, before)


def test_a_checkpoint_that_is_not_to_be_kept_is_not(tmp_path):
    run(TINY, tmp_path / "run", events=False, keep_checkpoint=False)
    assert not (tmp_path / "run" / "checkpoints").exists()
    with pytest.raises(ValueError, match="which is finished and kept no checkpoint, expected one"):
        resume(tmp_path / "run", total_steps=400)


def test_ends_that_cannot_be_are_refused_and_nothing_changes(tmp_path):
    folder = tmp_path / "run"
    run(TINY, folder, events=False)
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    with pytest.raises(ValueError, match=r"which is finished, expected one.* --steps N.* above 96"):
        resume(folder)
    for steps in (96, 40, 0, -1):
        with pytest.raises(
            ValueError, match=f"total_steps: got {steps}, expected more than the 96"
        ):
            resume(folder, total_steps=steps)
    assert {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()} == before


def test_the_command_line_extends_a_run(tmp_path, capsys):
    folder = tmp_path / "run"
    run(TINY, folder, events=False)
    how = ["--no-tensorboard", "--no-progress", "--device", "cpu"]
    assert main(["resume", str(folder), *how]) == 2
    assert "--steps N" in capsys.readouterr().err
    assert main(["resume", str(folder), "--steps", "120", *how]) == 0
    assert f"{folder}: from step 96 of 120" in capsys.readouterr().out
    assert Experiment.from_data(read_experiment(folder)).hash == longer(TINY, 120).hash
    assert main(["resume", str(folder), "--steps", "144", "--no-keep-checkpoint", *how]) == 0
    assert not (folder / "checkpoints").exists()
    rows = (folder / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(row)["step"] for row in rows][-1] == 144
