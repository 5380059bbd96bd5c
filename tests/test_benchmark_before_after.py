"""benchmarks/before_after.py times one scan in two checkouts, each with its own code."""

import json
import shutil
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1]


@pytest.mark.slow
def test_each_tree_runs_its_own_code(bench, tmp_path, capfd):
    for folder in ("src", "benchmarks"):
        shutil.copytree(HERE / folder, tmp_path / folder)
    words = ["--device", "cpu", "--contender", "kalman reference", "--sizes", "2,4,3"]
    assert bench("before_after").main([str(tmp_path), *words, "--rounds", "2"]) == 0
    told = json.loads(capfd.readouterr().out)
    for name, tree in (("before", tmp_path), ("after", HERE)):
        assert told["compiled"][name]["package"] == str(tree / "src/kalmanac/__init__.py")
    rows = told["microseconds"]
    assert list(rows) == ["2,4,3 forward, eager", "2,4,3 forward + backward, eager"]
    assert all(number > 0 for row in rows.values() for number in row.values())
