"""Encoders learn: the tracking benchmark in small, and both benchmarks run from end to end."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def run(script: str, out: Path, *words: str) -> dict:
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / script), *words, "--out", str(out)],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    text = out.read_text()
    assert str(out.parent) not in text, "a path of this machine in a published result"
    return json.loads(text)


@pytest.mark.slow
def test_kalman_layers_learn_the_exact_filter_and_vssm_cannot(tmp_path: Path) -> None:
    names = ["vssm", "vssm+kf, Σᵖ from 0.01", "memoryless"]
    document = run("tracking.py", tmp_path / "t.json", "--seeds", "1", "--only", *names)
    times = {row["contender"]: row["times_exact"] for row in document["rows"]}
    assert times["vssm+kf, Σᵖ from 0.01"] < 1.03
    assert times["vssm"] > 1.5, "its gain cannot depend on the noise"
    assert times["memoryless"] > times["vssm"]


@pytest.mark.slow
def test_every_encoder_is_timed(tmp_path: Path) -> None:
    from kalmanac._encoders.registry import ENCODERS

    document = run("encoders.py", tmp_path / "e.json", "--quick")
    (table,) = document["tables"]
    assert [row["name"] for row in table["rows"]] == list(ENCODERS)
    for row in table["rows"]:
        assert {c.removesuffix(" eager") for c in row["seconds"]} == {
            "sequence", "step", "step @ 10", "step @ 10000"
        }  # fmt: skip
