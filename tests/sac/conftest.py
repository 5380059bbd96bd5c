"""Settings for the tests of RecurrentSAC: one thread."""

from collections.abc import Iterator

import numba
import pytest
import torch


@pytest.fixture(autouse=True, scope="package")
def _one_thread() -> Iterator[None]:
    """The tensors are tiny: threads that wait for each other only cost time."""
    numba.get_num_threads()  # starts numba's threads, which sets PyTorch's number too
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
