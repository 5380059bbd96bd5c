"""The benchmark of missing readings runs from its command to its files."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.slow
def test_a_short_run_prints_its_table_and_leaves_its_files(tmp_path):
    out = tmp_path / "found.json"
    done = subprocess.run(
        [sys.executable, "missing_readings.py", "--quick", "--seeds", "1", "--out", out],
        cwd=BENCHMARKS, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "vssm+kf, not told" in done.stdout
    found = json.loads(out.read_text())
    assert {name: len(runs) for name, runs in found["runs"].items()} == {"told": 1, "not told": 1}
    for runs in found["runs"].values():
        assert runs[0]["status"] == "finished"
        assert runs[0]["steps"] == [304, 608]
        assert np.isfinite(runs[0]["errors"]).all()
    assert found["exact_filter"] < found["best_linear_not_told"]
    assert out.with_suffix(".png").stat().st_size > 5000
