"""Settings for all tests: how hypothesis searches, and who runs Triton where there is no GPU."""

import gc
import importlib
import os
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import settings

settings.register_profile(
    "kalmanac", deadline=None, derandomize=True, database=None, max_examples=20
)
settings.register_profile("thorough", deadline=None, max_examples=500)
settings.load_profile("kalmanac")

# Without a GPU, kernels are interpreted. Triton reads this when a kernel is defined.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")


# No test can cut the power, so that waiting for the disk shows nothing.
os.fsync = lambda handle: None


def pytest_collection_finish(session):
    """Leave modules and tests out of every later collection: each run begins with a full one."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def own_secret(tmp_path_factory):
    """Runs are signed with a secret of the tests' own, in processes that they start, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


@pytest.fixture
def compiled_only(monkeypatch):
    """Without the interpreted GPU backend, for tests that run all backends on larger problems."""
    from kalmanac._ops import dispatch  # here, after the environment is set

    if dispatch.TRITON:  # other tests need its own functions, defined on import, interpreted
        importlib.import_module("triton.language")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(dispatch, "INTERPRETED", False)


@pytest.fixture
def bench(monkeypatch):
    """Imports modules of benchmarks/ by name, as its scripts import each other."""
    folder = Path(__file__).parents[1] / "benchmarks"
    monkeypatch.syspath_prepend(str(folder))
    yield importlib.import_module
    for path in folder.glob("*.py"):
        sys.modules.pop(path.stem, None)
