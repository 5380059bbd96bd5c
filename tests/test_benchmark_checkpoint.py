"""The benchmark of checkpoints runs, and what it measures does not grow."""

import json


def test_a_quick_run_writes_facts(bench, tmp_path, capsys):
    out = tmp_path / "checkpoint.json"
    words = ["--quick", "--encoder", "memoryless", "--folder", str(tmp_path), "--out", str(out)]
    assert bench("checkpoint").main(words) == 0
    found = json.loads(out.read_text())
    assert found["command"].startswith("python benchmarks/checkpoint.py --quick")
    assert str(tmp_path) not in out.read_text()
    few, many = found["table"]
    assert (few["step"], many["step"]) == (200, 2000)
    assert len(found["rounds"]["large"]) == 3
    assert many["file_bytes"] < 1.01 * few["file_bytes"]
    assert many["replay_bytes"] < 1.5 * few["replay_bytes"]
    assert "replay, steps" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.json"]
