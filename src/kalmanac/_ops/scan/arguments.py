"""Checks on the arguments of the scans: one clear error that names the argument and what came.

Checks of shape, dtype and device cost nothing and always run. Checks of values read the data:
`lengths` is looked at whenever it lies on the CPU, noise variances only when `check=True`.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from kalmanac._ops.dispatch import at_hand, readable
from kalmanac._ops.scan.inputs import Belief

HALF = (torch.bfloat16, torch.float16)
REAL = (torch.float32, torch.float64, *HALF)
COMPLEX = (torch.complex64, torch.complex128)


def carry_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of carries: float32 at least, whatever the signals are."""
    return torch.float32 if dtype in HALF else dtype


def signal(name: str, x: Tensor, like: Tensor | None, allowed: tuple[torch.dtype, ...]) -> None:
    """Check a (B, T, N) tensor; with `like`, of the same shape, dtype and device."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name}: got {type(x).__name__}, expected a (B, T, N) tensor")
    if x.dim() != 3:
        raise ValueError(f"{name}: got shape {tuple(x.shape)}, expected three axes (B, T, N)")
    if x.dtype not in allowed:
        raise TypeError(f"{name}: got dtype {x.dtype}, expected one of {_names(allowed)}")
    if like is None:
        return
    if x.shape != like.shape:
        raise ValueError(f"{name}: got shape {tuple(x.shape)}, expected {tuple(like.shape)}")
    if x.dtype != like.dtype:
        raise TypeError(
            f"{name}: got dtype {x.dtype}, expected {like.dtype} like the other signals"
        )
    _on_device(name, x, like)


def parameter(name: str, x: Tensor, shapes: tuple[tuple[int, ...], ...], like: Tensor) -> None:
    """Check a tensor of one of `shapes`, in the dtype of the signals or of their carries."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name}: got {type(x).__name__}, expected a tensor")
    if tuple(x.shape) not in shapes:
        expected = " or ".join(str(s) for s in shapes)
        raise ValueError(f"{name}: got shape {tuple(x.shape)}, expected {expected}")
    allowed = (like.dtype, carry_dtype(like.dtype))
    if x.dtype not in allowed:
        raise TypeError(f"{name}: got dtype {x.dtype}, expected {_names(allowed)}")
    _on_device(name, x, like)


def belief(name: str, x: Belief, like: Tensor) -> None:
    """Check a pair of tensors (mean, variance), each (N,) or (B, N)."""
    batch, _, channels = like.shape
    if not isinstance(x, tuple) or len(x) != 2:
        raise TypeError(f"{name}: got {type(x).__name__}, expected a Belief(mean, variance)")
    for field, value in zip(Belief._fields, x, strict=True):
        parameter(f"{name}.{field}", value, ((channels,), (batch, channels)), like)


def flags(name: str, x: Tensor, like: Tensor) -> None:
    """Check a (B, T) bool tensor."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name}: got {type(x).__name__}, expected a (B, T) bool tensor")
    if x.dtype != torch.bool:
        raise TypeError(f"{name}: got dtype {x.dtype}, expected torch.bool")
    if x.shape != like.shape[:2]:
        raise ValueError(f"{name}: got shape {tuple(x.shape)}, expected {tuple(like.shape[:2])}")
    _on_device(name, x, like)


def row_lengths(lengths: Tensor | Sequence[int] | None, like: Tensor, check: bool) -> Tensor | None:
    """Return the number of valid steps of each row, (B,), checked against T where that is free."""
    batch, steps, _ = like.shape
    if lengths is None:
        return None
    if not isinstance(lengths, Tensor):
        if not isinstance(lengths, Sequence) or not all(isinstance(n, int) for n in lengths):
            raise TypeError(f"lengths: got {lengths!r}, expected a (B,) integer tensor or sequence")
        lengths = torch.tensor(lengths, dtype=torch.int64, device=like.device)
    if lengths.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"lengths: got dtype {lengths.dtype}, expected torch.int32 or torch.int64")
    if lengths.shape != (batch,):
        raise ValueError(f"lengths: got shape {tuple(lengths.shape)}, expected ({batch},)")
    _on_device("lengths", lengths, like)
    if batch > 0 and (at_hand(lengths) or (check and readable(lengths))):
        low, high = (int(v) for v in lengths.aminmax())
        if low < 0 or high > steps:
            raise ValueError(f"lengths: got values from {low} to {high}, expected 0 to T = {steps}")
    return lengths


def floor(name: str, x: float) -> None:
    """Check what softplus is added to: a finite number that is not negative."""
    if not 0 <= x < math.inf:
        raise ValueError(f"{name}: got {x!r}, expected a finite number of at least 0")


def positive(name: str, x: Tensor, counts: Tensor | None = None) -> None:
    """Check that values that count are finite and above 0. Reads data: only with `check=True`."""
    good = (x > 0) & torch.isfinite(x)
    if counts is not None:
        good |= ~counts[..., None]
    if not bool(good.all()):
        where = tuple(int(i) for i in (~good).nonzero()[0])
        raise ValueError(f"{name}: got {x[where].item():g} at index {where}, expected a value > 0")


def lengths_from_padding(mask: Tensor) -> Tensor:
    """Return lengths (B,) of a right-padding mask (B, T), True = padded (`key_padding_mask`).

    Only a right-padding mask keeps the paper's masked operator associative (appendix A), so a mask
    with a hole is refused.

    Examples:
        >>> import torch
        >>> from kalmanac import lengths_from_padding
        >>> lengths_from_padding(torch.tensor([[False, False, True], [False, True, True]]))
        tensor([2, 1])
    """
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        received = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(f"mask: got {received}, expected a (B, T) bool tensor, True = padded")
    if mask.dim() != 2:
        raise ValueError(f"mask: got shape {tuple(mask.shape)}, expected two axes (B, T)")
    holes = mask[:, :-1] & ~mask[:, 1:]
    if bool(holes.any()):
        row, step = (int(i) for i in holes.nonzero()[0])
        raise ValueError(
            f"mask: got a hole in row {row} (step {step} is padded, step {step + 1} is not), "
            "expected right-padding"
        )
    return (~mask).sum(1)


def _on_device(name: str, x: Tensor, like: Tensor) -> None:
    if x.device != like.device:
        raise ValueError(f"{name}: got device {x.device}, expected {like.device}")


def _names(dtypes: tuple[torch.dtype, ...]) -> str:
    return ", ".join(dict.fromkeys(str(d) for d in dtypes))
