"""Settings for the agent's tests: one thread, also behind the scans."""

from collections.abc import Iterator

import numba
import pytest
import torch


@pytest.fixture(autouse=True, scope="package")
def _one_thread() -> Iterator[None]:
    """The tensors are tiny: threads that wait for each other only cost time."""
    threads, kernels = torch.get_num_threads(), numba.get_num_threads()
    numba.set_num_threads(1)
    torch.set_num_threads(1)
    yield
    numba.set_num_threads(kernels)
    torch.set_num_threads(threads)
