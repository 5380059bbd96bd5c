"""The demo: what it trains and keeps, the episode it shows, and what it writes."""

import sys

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from kalmanac import demo
from kalmanac.envs import ABOVE, ASK, BELOW, BestArm, Ceiling, posterior
from kalmanac.runlog import METRICS, is_run, read_experiment, read_summary

pytestmark = pytest.mark.usefixtures("compiled_only")


class Scripted:
    """In the place of a model: asks `asks` times, then takes `decision`."""

    def __init__(self, asks, decision):
        self.asks, self.decision = asks, decision

    def session(self):
        actions = iter([ASK] * self.asks + [self.decision] * 100)
        return type("Session", (), {"act": lambda _, observation: next(actions)})()


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(demo, "NEW_EPISODES", 8)
    monkeypatch.setattr(demo, "TRIES", 3)


def start(folder):
    return demo.main(["--out", str(folder), "--steps", "64"])


def runs(folder):
    return {path.name.rpartition("-")[0]: path for path in folder.iterdir() if path.is_dir()}


def test_one_picture_and_one_table_come_out_and_a_second_start_trains_nothing(
    tmp_path, capsys, quick, monkeypatch
):
    folder = tmp_path / "new" / "folder"
    assert start(folder) == 0
    assert set(runs(folder)) == set(demo.AGENTS)
    data = (folder / demo.PICTURE).read_bytes()
    assert data.startswith(b"\x89PNG")
    assert 20_000 < len(data) < 300_000
    told = capsys.readouterr().out
    table = (folder / demo.TABLE).read_text()
    assert table in told
    assert told.endswith(f"picture: {folder / demo.PICTURE}\ntable:   {folder / demo.TABLE}\n")
    for agent in demo.AGENTS:
        assert f"{agent} (shortened best-arm, seed 0): 64 steps" in told
        assert f"\n| {agent}" in table
    assert "shortened" in table.splitlines()[0]
    assert "shortened" in demo.PICTURE + demo.TABLE

    monkeypatch.setattr(demo, "run", None)
    (folder / demo.PICTURE).unlink()
    assert start(folder) == 0
    assert (folder / demo.PICTURE).is_file()
    assert capsys.readouterr().out.count("trained already") == 3


def test_an_interrupted_demo_keeps_what_is_finished_and_goes_on(
    tmp_path, capsys, quick, monkeypatch
):
    real = demo.run

    class Impatient(demo.Progress):
        def on_step(self, model):
            raise KeyboardInterrupt

    def until_the_oracle(experiment, place, **how):
        if experiment.agent == "oracle":
            how["progress"] = Impatient(experiment.total_steps)
        return real(experiment, place, **how)

    monkeypatch.setattr(demo, "run", until_the_oracle)
    assert start(tmp_path) == 130
    assert "a second start goes on" in capsys.readouterr().out
    assert set(runs(tmp_path)) == {"memoryless", "oracle"}
    status = {name: read_summary(path)["status"] for name, path in runs(tmp_path).items()}
    assert status == {"memoryless": "finished", "oracle": "interrupted"}
    before = (runs(tmp_path)["memoryless"] / METRICS).stat().st_mtime_ns

    monkeypatch.setattr(demo, "run", real)
    assert start(tmp_path) == 0
    assert (runs(tmp_path)["memoryless"] / METRICS).stat().st_mtime_ns == before
    for path in runs(tmp_path).values():
        assert read_summary(path)["status"] == "finished"


def test_a_run_that_diverged_ends_the_demo_in_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        demo, "run", lambda experiment, place, **how: type("Outcome", (), {"status": "diverged"})
    )
    assert start(tmp_path) == 1
    assert capsys.readouterr().err.startswith("kalmanac demo: memoryless diverged: ")


def test_the_runs_are_the_preset_s_own(tmp_path, quick, monkeypatch):
    trained = demo.train("oracle", tmp_path, 64)
    assert is_run(trained.place)
    expected = demo.PRESETS[demo.PRESET].experiment("oracle").changed({"total_steps": 64})
    assert read_experiment(trained.place) == expected.to_data()
    assert trained.experiment.label == "shortened"
    assert demo.PRESETS[demo.PRESET].experiment("oracle").hash not in trained.place.name


@pytest.mark.parametrize(("decision", "won"), [(ABOVE, True), (BELOW, False)])
def test_an_episode_shows_samples_posterior_and_decision(decision, won):
    played = demo.play_once(Scripted(5, decision), BestArm(cost=0.1, horizon=50), seed=3)
    assert len(played.samples) == 6
    mean, std = posterior(np.cumsum(played.samples), np.arange(1, 7), demo.BANDIT["sigma"])
    np.testing.assert_allclose(played.mean, mean, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(played.std, std, rtol=1e-5)
    assert (played.decision, played.won) == (decision, won)


def test_an_episode_without_a_decision_says_so(tmp_path):
    played = demo.play_once(Scripted(99, ABOVE), BestArm(horizon=7), seed=3)
    assert (len(played.samples), played.decision, played.won) == (7, None, False)


@pytest.mark.parametrize(("asks", "tried"), [(1, demo.TRIES), (demo.LEAST_SAMPLES - 1, 1)])
def test_the_first_episode_that_is_long_enough_is_shown(asks, tried, monkeypatch):
    seeds = []
    real = demo.play_once

    def watched(model, env, seed):
        seeds.append(seed)
        return real(model, env, seed)

    monkeypatch.setattr(demo, "play_once", watched)
    played = demo.play(Scripted(asks, ABOVE), {"horizon": 50})
    assert seeds == list(range(tried))
    assert len(played.samples) == asks + 1


def test_the_table_puts_numbers_under_their_names():
    new = {
        "in": {"normalized": 0.31, "win_rate": 0.71, "length": 8.26},
        "out": {"normalized": -0.07},
    }
    ceilings = {"in": Ceiling(1.0, 0.48, 9.8, 0.79), "out": Ceiling(1.0, 0.19, 20.0, 0.6)}
    text = demo.as_table("A title", {"gru": demo.Row(0.44, 0.41, new, 61.0)}, ceilings)
    title, _, head, rule, agent, known, *_ = text.splitlines()
    assert title == "A title"
    assert len({len(line) for line in (head, rule, agent, known)}) == 1
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in (head, agent, known)]
    row, threshold = (dict(zip(cells[0], values, strict=True)) for values in cells[1:])
    assert row == {
        "agent": "gru", "best evaluation": "0.44", "last evaluation": "0.41", "return": "0.31",
        "win rate": "0.71", "steps": "8.3", "return, noisier": "-0.07", "trained in": "61 s",
    }  # fmt: skip
    assert threshold["return"] == "0.48"
    assert threshold["return, noisier"] == "0.19"
    assert threshold["best evaluation"] == "–"


def test_without_matplotlib_one_line_says_what_to_install(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert demo.main(["--out", str(tmp_path)]) == 1
    assert capsys.readouterr().err == (
        "kalmanac demo: needs matplotlib: pip install 'kalmanac[report]'\n"
    )


def test_a_folder_that_cannot_be_made_gets_one_line(tmp_path, capsys):
    file = tmp_path / "file"
    file.write_text("")
    assert demo.main(["--out", str(file)]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_no_steps_are_refused(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        demo.main(["--out", str(tmp_path), "--steps", "0"])
    assert "--steps: got 0, expected at least 1" in capsys.readouterr().err
