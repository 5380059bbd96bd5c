"""The programs of examples/ run as they stand there."""

import subprocess
import sys
from pathlib import Path

import pytest

from kalmanac._envs.track import Track
from kalmanac._sac.recurrent_sac import RecurrentSAC

DEPLOY = Path(__file__).parents[1] / "examples" / "deploy"
LOOP = """
import runpy, sys
for name in ("torch", "kalmanac", "gymnasium", "onnx"):
    sys.modules[name] = None  # an import of it fails
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def test_the_control_loop_needs_numpy_and_onnxruntime_alone(tmp_path):
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    file = RecurrentSAC("transformer", Track(), seed=0, device="cpu").export(tmp_path / "a.onnx")
    loop = (DEPLOY / "control_loop.py").read_text()
    assert len(loop.splitlines()) <= 40
    (tmp_path / "run.py").write_text(LOOP.replace("sys.argv[1]", "sys.argv.pop(1)"))
    done = subprocess.run(
        [sys.executable, "run.py", str(DEPLOY / "control_loop.py"), str(file)],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 100
    assert all("act " in line for line in lines)
