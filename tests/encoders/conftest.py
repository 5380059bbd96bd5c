"""Settings for the encoders' tests: one thread, and no AMX instructions."""

import os
from collections.abc import Iterator

import pytest
import torch

# Some virtual machines announce AMX and forbid it: bfloat16 products die of an illegal instruction.
# oneDNN reads this at its first use.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")


@pytest.fixture(autouse=True, scope="package")
def _one_thread() -> Iterator[None]:
    """The tensors are tiny: threads that wait for each other only cost time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
