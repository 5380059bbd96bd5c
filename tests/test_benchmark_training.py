"""The benchmark of whole trainings runs, and its parts are the whole."""

import json

import pytest

from kalmanac._sac.training import Training


def test_a_quick_run_tells_every_part(bench, tmp_path, capsys):
    script, out, ask = bench("training"), tmp_path / "training.json", Training.ask
    call = ["--quick", "--seeds=2", "--encoder=memoryless", "--tasks", "best-arm", "track"]
    assert script.main([*call, "--out", str(out)]) == 0
    assert Training.ask is ask, "nothing is watched any more"
    tables = json.loads(out.read_text())["tables"]
    assert [table["task"] for table in tables] == ["best-arm", "track"]
    for table in tables:
        apart = {"saving models", "diagnostics"}  # else a part of evaluations
        assert set(table["parts"]) - apart == {name for name, *_ in script.PARTS} - apart
        assert sum(table["parts"].values()) == pytest.approx(table["seconds"])
        assert min(table["parts"].values()) > 0
        assert table["times"] == {"evaluations": 4, "checkpoints": 4}
        assert table["updates_per_second"] > 0
    assert str(tmp_path) not in out.read_text()
    assert "waiting for actions" in capsys.readouterr().out
