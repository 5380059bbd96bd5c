"""Fresh memory filled with garbage, so that a result which was never written shows."""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

M_PERTURB = -6  # glibc's mallopt: every byte of new memory becomes the complement of this value
FILL = 0x80  # float32 then reads 0x7F7F7F7F = 3.4e38, float64 1.4e306


@contextmanager
def poisoned_memory() -> Iterator[None]:
    """NaN in every tensor from `torch.empty`; on Linux, huge numbers in all other fresh memory."""
    deterministic = torch.are_deterministic_algorithms_enabled()
    filled = torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    perturb = ctypes.CDLL(None).mallopt if sys.platform == "linux" else lambda *_: 1
    assert perturb(M_PERTURB, FILL) == 1
    try:
        yield
    finally:
        perturb(M_PERTURB, 0)
        torch.utils.deterministic.fill_uninitialized_memory = filled
        torch.use_deterministic_algorithms(deterministic)
