"""The benchmark of environments runs, and times nobody whose rewards differ."""

import json

import pytest


@pytest.fixture
def script(bench):
    return bench("environments")


def test_a_quick_run_prints_ratios_and_writes_facts(script, tmp_path, capsys):
    out = tmp_path / "environments.json"
    words = ["--quick", "--only", "pendulum-swingup", "MineSweeperEasy", "--out", str(out)]
    assert script.main(words) == 0
    found = json.loads(out.read_text())
    assert [row["name"] for row in found["rows"]] == [
        "dmc/pendulum-swingup", "popgym/MineSweeperEasy", "popgym/MineSweeperEasy, with state",
    ]  # fmt: skip
    assert all(row["raw"] > 0 and row["adapted"] > 0 for row in found["rows"])
    assert str(tmp_path) not in out.read_text()
    told = capsys.readouterr().out
    assert "dmc: all tasks together" in told
    assert "popgym, with state: all tasks together" in told


def test_other_rewards_are_not_timed(script, monkeypatch, capsys):
    step = script.DMC.step

    def wrong(self, action):
        seen, reward, *rest = step(self, action)
        return seen, reward + 1, *rest

    monkeypatch.setattr(script.DMC, "step", wrong)
    assert script.main(["--quick", "--only", "pendulum-swingup"]) == 1
    assert "REFUSED dmc/pendulum-swingup: other rewards" in capsys.readouterr().out
