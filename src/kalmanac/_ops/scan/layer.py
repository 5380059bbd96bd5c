"""`kalman_layer`: a Kalman filter between two projections, where a backend has that in one go."""

import torch
from torch import Tensor

from kalmanac._ops.dispatch import watched
from kalmanac._ops.scan import arguments
from kalmanac._ops.scan.backends import choose
from kalmanac._ops.scan.inputs import Belief, KalmanLayerInputs


def has_kalman_layer(h: Tensor) -> bool:
    """Can `kalman_layer` run on h (B, T, E)? Else project, call `kalman_scan_packed`, project."""
    if watched() or torch.is_autocast_enabled("cpu"):
        return False
    if not isinstance(h, Tensor) or h.dtype not in (torch.float32, torch.float64):
        return False
    if h.dim() != 3 or h.numel() == 0:
        return False
    return choose(None, h.device, h.dtype, h.shape[1]).kalman_layer is not None


def kalman_layer(
    a: Tensor, h: Tensor, into: tuple[Tensor, Tensor], out_of: tuple[Tensor, Tensor],
    q: Tensor | None = None, *, layout: str = "uwr", b: Tensor | None = None,
    state: Belief | None = None, lengths: Tensor | None = None, reset: Tensor | None = None,
    observed: Tensor | None = None, r_floor: float | None = None, q_floor: float | None = None,
) -> tuple[Tensor, Belief]:  # fmt: skip
    """Return z = V x⁺ + d (B, T, E) of the filter on W h + c, and the last belief (B, N).

    Args:
        into: W (kN, E) and c (kN,), for the k signals of `layout`.
        out_of: V (E, N), or (E, 2N) to read the variance beside the mean, and d (E,).

    The rest is as in `kalman_scan_packed`, with N(0, 1) for the prior. All tensors have one dtype.
    """
    run = choose(None, h.device, h.dtype, h.shape[1]).kalman_layer
    assert run is not None, "kalman_layer: ask has_kalman_layer first"
    if state is not None:
        shape = (*h.shape[:2], len(a))
        arguments.belief("state", state, h.new_empty(1).expand(shape))
    return run(
        KalmanLayerInputs(
            h, into, out_of, a, b, q, layout, state, lengths, reset, observed, r_floor, q_floor
        )
    )
