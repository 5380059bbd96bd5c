"""The demo as a whole: what it trains and keeps, and what it writes."""

import sys
from functools import partial

import pytest

pytest.importorskip("matplotlib")

from kalmanac._cli import demo
from kalmanac._cli.program import main
from kalmanac._demo import bandit, tracking
from kalmanac._envs.bayes import bayes_threshold
from kalmanac._files.run_reader import METRICS, is_run, read_experiment, read_summary
from kalmanac._sac.progress import Progress

pytestmark = pytest.mark.usefixtures("compiled_only")

RUNS = {"best-arm-memoryless", "best-arm-oracle", "best-arm-vssm+kf", "track-vssm+kf"}


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(bandit, "EVAL_EPISODES", 8)
    monkeypatch.setattr(bandit, "NEW_EPISODES", 8)
    monkeypatch.setattr(bandit, "TRIES", 3)
    monkeypatch.setattr(bandit, "bayes_threshold", partial(bayes_threshold, episodes=100))
    monkeypatch.setattr(tracking, "FIT_EPISODES", 4)
    monkeypatch.setattr(tracking, "TEST_EPISODES", 4)


def start(folder, *words):
    return main(["demo", "--out", str(folder), "--steps", "64", *words])


def runs(folder):
    return {path.name.rpartition("-")[0]: path for path in folder.iterdir() if path.is_dir()}


def test_one_picture_and_one_table_come_out_however_often_it_is_started(
    tmp_path, capsys, quick, monkeypatch
):
    folder, real = tmp_path / "new" / "folder", bandit.run

    class Impatient(Progress):
        def on_step(self, model):
            raise KeyboardInterrupt

    def until_the_oracle(experiment, place, **how):
        if experiment.agent == "oracle":
            how["progress"] = Impatient(experiment.total_steps)
        return real(experiment, place, **how)

    monkeypatch.setattr(bandit, "run", until_the_oracle)
    assert start(folder, "--seed", "3") == 130
    output = capsys.readouterr().out
    assert "a second start goes on" in output
    status = {name: read_summary(path)["status"] for name, path in runs(folder).items()}
    assert status == {"best-arm-memoryless": "finished", "best-arm-oracle": "interrupted"}
    before = (runs(folder)["best-arm-memoryless"] / METRICS).stat().st_mtime_ns

    monkeypatch.setattr(bandit, "run", real)
    assert start(folder, "--seed", "3") == 0
    assert set(runs(folder)) == RUNS
    assert (runs(folder)["best-arm-memoryless"] / METRICS).stat().st_mtime_ns == before
    assert {read_summary(path)["status"] for path in runs(folder).values()} == {"finished"}
    data = (folder / demo.PICTURE).read_bytes()
    assert data.startswith(b"\x89PNG")
    assert 20_000 < len(data) < 400_000
    output += capsys.readouterr().out
    table = (folder / demo.TABLE).read_text()
    assert table in output
    last = f"picture: {folder / demo.PICTURE}\ntable:   {folder / demo.TABLE}\n"
    assert output.endswith(last)
    for agent in bandit.AGENTS:
        assert f"{agent} (shortened best-arm, seed 3): 64 steps" in output
        assert f"\n| {agent}" in table
    assert "vssm+kf (track, seed 3): 64 steps" in output
    assert "shortened" in table.splitlines()[0]
    assert "Track, 40% of the noisy readings missing: mean squared error of vssm+kf " in table

    monkeypatch.setattr(bandit, "run", None)
    (folder / demo.PICTURE).unlink()
    assert start(folder, "--seed", "3") == 0
    assert (folder / demo.PICTURE).is_file()
    assert capsys.readouterr().out.count("trained already") == 4


def test_a_run_that_diverged_ends_the_demo_in_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        bandit,
        "run",
        lambda experiment, place, **how: type("Outcome", (), {"status": "diverged"}),
    )
    assert start(tmp_path) == 1
    assert capsys.readouterr().err.startswith("kalmanac demo: memoryless diverged: ")


def test_the_runs_are_the_preset_s_own_with_the_seed_asked_for(tmp_path, quick):
    short = bandit.shortened("oracle", 5).changed({"total_steps": 64})
    trained = bandit.train(short, tmp_path)
    assert is_run(trained.place)
    expected = bandit.PRESETS[bandit.PRESET].experiment("oracle")
    evaluation = {"eval_episodes": bandit.EVAL_EPISODES, "eval_on_device": True}
    expected = expected.changed({"total_steps": 64, "seed": 5, **evaluation})
    assert read_experiment(trained.place) == expected.to_data()
    assert expected.label == "shortened"
    assert expected.hash in trained.place.name


def test_without_matplotlib_one_line_says_what_to_install(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["demo", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        'kalmanac demo: matplotlib is not installed: pip install "kalmanac[report]"\n'
    )


def test_a_folder_that_cannot_be_made_gets_one_line(tmp_path, capsys):
    file = tmp_path / "file"
    file.write_text("")
    assert main(["demo", "--out", str(file)]) == 1
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--steps", "0"), "steps: got 0, expected at least 1"),
        (("--seed", "-1"), "seed: got -1, expected at least 0"),
    ],
)
def test_numbers_that_are_too_small_are_refused(tmp_path, capsys, words, message):
    assert main(["demo", "--out", str(tmp_path), *words]) == 2
    assert message in capsys.readouterr().err
