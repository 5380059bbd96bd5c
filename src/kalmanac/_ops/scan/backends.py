"""Which backend runs a scan: the table, the choice, and the ways to override it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from kalmanac._ops.dispatch import fused_scan, transformed, why_no_cpu_scan, why_no_gpu_scan
from kalmanac._ops.scan import parallel, reference
from kalmanac._ops.scan.gpu.tiling import saved_shape
from kalmanac._ops.scan.inputs import Belief, KalmanInputs, KalmanLayerInputs, LinearInputs
from kalmanac._ops.scan.operators import Kernels, kalman_operator, linear_operator


class Backend(NamedTuple):
    """A backend is one implementation of both scans."""

    name: str
    kalman: Callable[[KalmanInputs], tuple[Belief, Belief]]
    linear: Callable[[LinearInputs], tuple[Tensor, Tensor]]
    why_not: Callable[[torch.device, torch.dtype], str | None]  # None where it can run
    fused: bool  # takes half-precision, raw (softplus) and packed signals as they are
    # the filter between two projections in one go, if it has one
    kalman_layer: Callable[[KalmanLayerInputs], tuple[Tensor, Belief]] | None = None


@cache
def _cpu() -> Kernels:
    """numba, threads over the batch; it loads, and compiles, on the first call."""
    from kalmanac._ops.scan.cpu import launch

    return launch


def _cpu_layer(x: KalmanLayerInputs) -> tuple[Tensor, Belief]:
    from kalmanac._ops.scan.cpu.layer import kalman_layer

    return kalman_layer(x)


@cache
def _gpu() -> Kernels:
    """Triton; it loads on the first call."""
    from kalmanac._ops.scan.gpu import launch

    return launch


def _anywhere(device: torch.device, dtype: torch.dtype) -> str | None:
    return None


BACKENDS = {
    "reference": Backend("reference", reference.kalman, reference.linear, _anywhere, False),
    "parallel": Backend("parallel", parallel.kalman, parallel.linear, _anywhere, False),
    "cpu": Backend(
        "cpu",
        kalman_operator("cpu", _cpu, saved_shape=lambda *facts: (0,)),
        linear_operator("cpu", _cpu),
        why_no_cpu_scan,
        True,
        _cpu_layer,
    ),
    "gpu": Backend(
        "gpu",
        kalman_operator("gpu", _gpu, saved_shape),
        linear_operator("gpu", _gpu),
        why_no_gpu_scan,
        True,
    ),
}
"""The implementations of the scans, by name; each says whether it can run on a device and a dtype.

Examples:
    >>> import torch
    >>> from kalmanac import BACKENDS
    >>> list(BACKENDS)
    ['reference', 'parallel', 'cpu', 'gpu']
    >>> print(BACKENDS["reference"].why_not(torch.device("cpu"), torch.float32))  # it can run
    None
"""


class _Override(threading.local):
    """The backend of the innermost `use_backend` block of this thread.

    Not a ContextVar: torch.compile can neither trace nor guard one.
    """

    name: str | None = None


_override = _Override()


@contextmanager
def use_backend(name: str) -> Iterator[None]:
    """Run every scan inside the block on backend `name`; a call's own `backend=` still wins.

    Examples:
        >>> import torch
        >>> from kalmanac import linear_scan, use_backend
        >>> with use_backend("reference"):  # the plain loop that all others are tested against
        ...     states, final = linear_scan(torch.tensor([0.5]), torch.ones(1, 3, 1))
        >>> final
        tensor([[1.7500]])
    """
    outer, _override.name = _override.name, _known(name)
    try:
        yield
    finally:
        _override.name = outer


def choose(requested: str | None, device: torch.device, dtype: torch.dtype, steps: int) -> Backend:
    """Choose the backend for a call. An explicit choice is obeyed or refused, never replaced."""
    name = requested if requested is not None else _override.name
    if name is not None:
        backend = BACKENDS[_known(name)]
        reason = backend.why_not(device, dtype)
        if reason is not None:
            raise ValueError(f"backend: {name!r} cannot run here: {reason}")
        return backend
    if transformed():  # the plain loop knows vmap, grad and the like; kernels know nothing of them
        return BACKENDS["reference"]
    # one step is a handful of plain operations: a scan of any kind would only add to them
    plain = "reference" if steps == 1 else "parallel"
    return BACKENDS[fused_scan(device, dtype) or plain]


def usable(device: torch.device, dtype: torch.dtype) -> dict[str, str | None]:
    """Return for every backend None if it can run there, else the reason why not."""
    return {name: backend.why_not(device, dtype) for name, backend in BACKENDS.items()}


def _known(name: str) -> str:
    if name not in BACKENDS:
        raise ValueError(f"backend: got {name!r}, expected one of {', '.join(BACKENDS)}")
    return name
