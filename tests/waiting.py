"""Parts of a program that must not wait for the GPU."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def never_waiting() -> Iterator[None]:
    """Inside, PyTorch raises where it waits for the device; waiting for an event is no error."""
    with warnings.catch_warnings():  # PyTorch calls this a prototype, the first time
        warnings.simplefilter("ignore", UserWarning)
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")
