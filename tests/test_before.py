"""What earlier code has left (tests/data/before) is loaded, played, listed, reported, resumed."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from kalmanac._cli.program import main
from kalmanac._envs.registry import make_vector
from kalmanac._sac.recurrent_sac import RecurrentSAC
from tests.record_same_bytes import tensors_hash

BEFORE = Path(__file__).parent / "data" / "before"
EXPECTED = json.loads((BEFORE / "expected.json").read_text())
FINISHED = {"best-arm": "vssm+kf", "track": "gru", "seeing": "vssm+kf"}
MODELS = ("best-arm/best", "best-arm/last", "track/best", "track/last", "seeing/last", "policy")
REPORTED = ("task", "unfinished", "steps", "last return", "best return (MMER)")


@pytest.fixture
def before(tmp_path):
    """A copy: reading leaves files, too."""
    return Path(shutil.copytree(BEFORE, tmp_path / "before"))


def call(words):
    return main(words.split())


def actions(model, steps=12):
    """Of a session that sees made-up observations, first without exploration, then with it."""
    found = []
    for deterministic in (True, False):
        model.set_random_seed(5)
        state = None
        for t in range(steps):
            seen, told = _made_up(model, t)
            action, state = model.predict(seen, state, deterministic=deterministic, **told)
            found.append(np.asarray(action, np.float64).ravel().tolist())
    return found


def _made_up(model, t):
    if "observed" not in model.info_keys:
        shape = model.observation_space.shape
        return np.sin(t + np.arange(np.prod(shape))).reshape(shape).astype(np.float32), {}
    seen = {
        "action_mask": (np.arange(4) != t % 4).astype(np.int8),
        "camera": (np.arange(64) * (37 + t) % 256).astype(np.uint8).reshape(1, 8, 8),
        "clock": np.float32([t % 8, 0.5]),
    }
    return seen, {"observed": np.array([t % 3 != 1])}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_acts_as_it_did(name):
    model = RecurrentSAC.load(BEFORE / f"{name}.safetensors", device="cpu")
    np.testing.assert_allclose(actions(model), EXPECTED["actions"][name], atol=1e-3)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "policy"])
def test_a_model_that_is_saved_again_has_every_tensor(name, tmp_path):
    model = RecurrentSAC.load(BEFORE / f"{name}.safetensors", device="cpu")
    model.save(tmp_path / "again.safetensors")
    assert tensors_hash(tmp_path / "again.safetensors") == tensors_hash(
        BEFORE / f"{name}.safetensors"
    )


def test_a_model_learns_on_with_a_replay():
    env = make_vector("best-arm", 2, horizon=6)
    model = RecurrentSAC.load(BEFORE / "best-arm" / "last.safetensors", env, device="cpu")
    steps, updates = model.num_timesteps, model.num_updates
    model.load_replay_buffer(BEFORE / "collected.replay")
    assert model.replay.steps == 64
    model.learn(16)
    assert (model.num_timesteps, model.num_updates) == (steps + 16, updates + 4)


@pytest.mark.parametrize("name", FINISHED)
def test_a_run_is_played(before, name, capsys):
    assert call(f"eval {before / name} --env in --device cpu --trust") == 0
    title, _, row = capsys.readouterr().out.splitlines()
    assert f"with {FINISHED[name]}, seed 0: best model, step " in title
    assert float(row.split()[1]) == pytest.approx(EXPECTED["eval"][name], rel=1e-3, abs=2e-3)


def test_a_foreign_environment_is_not_run_unasked(before, capsys):
    assert call(f"eval {before / 'seeing'} --device cpu") == 2
    assert "expected --trust" in capsys.readouterr().err


def test_runs_are_listed(before, capsys):
    assert call(f"runs {before}") == 0
    said = capsys.readouterr()
    assert said.err == ""
    lines = said.out.splitlines()
    statuses = {name: ["finished", "128", "100%"] for name in FINISHED}
    for name, told in (statuses | {"interrupted": ["interrupted", "80", "62%"]}).items():
        (words,) = [line.split() for line in lines if name in line.split()[:1]]
        assert words[1:4] == told


def test_runs_are_reported(before, tmp_path):
    assert call(f"report {before} --out {tmp_path / 'report'}") == 0
    assert (tmp_path / "report" / "index.html").is_file()
    with (tmp_path / "report" / "tables" / "scores.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    found = [tuple(row[name] for name in REPORTED) for row in rows]
    assert sorted(found) == [
        ("best-arm, cost 0, horizon 6", "", "128", "10.0", "10.0"),
        ("best-arm, cost 0, horizon 6", "1", "48", "-10.0", "-10.0"),
        ("tests.seeing:Seeing", "", "128", "2.250", "2.250"),
        ("track, horizon 8", "", "128", "-32.4", "-5.909"),
    ]


def test_an_interrupted_run_goes_on_or_is_refused_by_its_version(before, capsys):
    folder = before / "interrupted"
    rows = (folder / "metrics.jsonl").read_text().splitlines()
    status = call(f"resume {folder} --device cpu --no-progress --no-tensorboard")
    said = capsys.readouterr()
    summary = json.loads((folder / "summary.json").read_text())
    if status == 0:
        *found, last = (folder / "metrics.jsonl").read_text().splitlines()
        assert found[: len(rows) - 1] == rows[:-1]  # the last one ended where the run was stopped
        assert summary["status"] == "finished"
        told = json.loads(last)
        assert told["step"] == 128
        assert told["train/critic_loss"] == pytest.approx(EXPECTED["resumed"], rel=1e-2)
    else:
        assert status == 2
        assert said.err.startswith("kalmanac resume: ")
        assert said.err.count("\n") == 1
        assert "version" in said.err
        assert (folder / "metrics.jsonl").read_text().splitlines() == rows
        assert summary["status"] == "interrupted"
