"""From tensors to kernels: arrays without copies, memory for results, PyTorch's threads."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from kalmanac._ops.scan.arguments import carry_dtype
from kalmanac._ops.scan.cpu import kalman_kernels, linear_kernels

NUMPY = {
    torch.float32: np.float32,
    torch.float64: np.float64,
    torch.complex64: np.complex64,
    torch.complex128: np.complex128,
}
NUMBERS = {dtype: numba.from_dtype(np.dtype(number)) for dtype, number in NUMPY.items()}
ENOUGH_TO_SHARE = 2**15  # elements; less is done before a second thread has woken up
LINE = 64  # bytes
MOST_CHANNELS_A_TASK = 512  # twenty such rows of float32 stay in the second-level cache


def kalman_forward(parameters, signals, layout, beliefs, facts, floors, variances=True):
    """See `operators.kalman_operator`; the backward reads the variances: they are always there."""
    dtype = signals[0].dtype
    like, inputs, raw = kalman_arrays(parameters, signals, layout, floors)
    outputs = _filter(like, inputs, raw, belief_arrays(like, beliefs), row_facts(like, *facts))
    mean, variance = (torch.from_numpy(x) for x in outputs[:2])
    m, P = (torch.from_numpy(x[:, 0]) for x in outputs[2:])
    return mean.to(dtype), variance.to(dtype), m, P, m.new_empty(0)


def kalman_backward(parameters, signals, layout, beliefs, facts, floors, outputs, g_outputs):
    """See `operators.kalman_operator`."""
    like, inputs, raw = kalman_arrays(parameters, signals, layout, floors)
    rows, _, channels = like.shape
    beliefs_, facts_ = belief_arrays(like, beliefs), row_facts(like, *facts)
    if outputs[0].dtype == like.dtype:
        saved = arrays(like, outputs[:2])
    else:  # rounded to half precision: filter again
        saved = tuple(_filter(like, inputs, raw, beliefs_, facts_)[:2])
    g_signals = [fresh(x.shape, like.dtype).numpy() for x in signals]
    sums = fresh((12, rows, 1, channels), like.dtype).zero_().numpy()
    zero = arrays(like, [like.new_zeros(channels)])[0]
    g_outputs_ = tuple(
        zero if g is None else arrays(like, [g.to(like.dtype)])[0] for g in g_outputs
    )
    run_adjoint(like, inputs, raw, beliefs_, facts_, saved, g_outputs_, g_signals, layout, sums)
    summed = [torch.from_numpy(x).sum((0, 1)) for x in sums[:3]]
    if floors[1] is not None and parameters[2] is not None:
        summed[2] *= parameters[2].sigmoid()
    g_beliefs = [torch.from_numpy(x[:, 0]) for x in sums[3:7]]
    both = zip([*summed, *g_beliefs], [*parameters, *beliefs], strict=True)
    g_others = [like.new_empty(0) if x is None else g for g, x in both]
    into = (torch.from_numpy(g).to(x.dtype) for g, x in zip(g_signals, signals, strict=True))
    return [*g_others[:3], *into, *g_others[3:]]


def run_adjoint(like, inputs, floors, beliefs, facts, saved, g_outputs, g_signals, layout, sums):
    """Fill in the gradients of signals, and add to `sums` (12, rows, 1, N).

    These are, of a row: a, b, constant q; start and prior; what rounding took.
    """
    named = split(g_signals, layout)
    if "q" in named:
        named["q"][:] = 0  # added to, like the sums
    g_u = named.get("u", all_steps(np.empty_like(sums[1]), tuple(like.shape)))
    g_q = named.get("q", all_steps(sums[2], tuple(like.shape)))
    launch_kalman(
        kalman_kernels.backward, like, inputs, floors, beliefs, facts, saved, g_outputs,
        (sums[0], sums[1], g_u, g_q, named["w"], named["r"]), tuple(sums[3:7]), tuple(sums[7:]),
    )  # fmt: skip


def _filter(like, inputs, floors, beliefs, facts):
    """Return mean and variance of all steps and of the end, (B, 1, N)."""
    rows, steps, channels = like.shape
    outputs = [fresh((rows, steps, channels), like.dtype).numpy() for _ in range(2)]
    outputs.extend(fresh((4, rows, 1, channels), like.dtype).numpy())  # ends, scratch
    launch_kalman(kalman_kernels.forward, like, inputs, floors, beliefs, facts, tuple(outputs))
    return outputs[:4]


def belief_arrays(like, beliefs):
    """Return (m, P) of start and prior, N(0, 1) where they are absent."""
    zero, one = arrays(like, [like.new_zeros(like.shape[2]), like.new_ones(like.shape[2])])
    pairs = zip(beliefs, (zero, one, zero, one), strict=True)
    return tuple(s if x is None else arrays(like, [x])[0] for x, s in pairs)


def kalman_arrays(parameters, signals, layout, floors):
    """Return a signal, arrays of (a, b, u, q, w, r) in the carry dtype, and the kernels' floors.

    b = 1 and u = 0 where absent. Time-varying noises with a floor stay raw, a constant one becomes
    a variance here.
    """
    a, b, q = parameters
    signals = [x.to(a.dtype) for x in signals]
    like = signals[0].narrow(-1, 0, a.shape[0])
    named = split([_readable(x) for x in signals], layout)
    r_floor, q_floor = (None if x is None else NUMPY[a.dtype](x) for x in floors)
    if q is not None and q_floor is not None:
        q, q_floor = F.softplus(q) + floors[1], None
    a_, b_ = arrays(like, [a, torch.ones_like(a) if b is None else b])
    u = named["u"] if "u" in named else arrays(like, [torch.zeros_like(a)])[0]
    q_ = named["q"] if q is None else arrays(like, [q])[0]
    return like, (a_, b_, u, q_, named["w"], named["r"]), (r_floor, q_floor)


def split(signals, layout):
    """Do as `operators.split_signals`, with arrays."""
    if len(signals) == len(layout):
        return dict(zip(layout, signals, strict=True))
    channels = signals[0].shape[2] // len(layout)
    return {
        name: signals[0][:, :, i * channels : (i + 1) * channels] for i, name in enumerate(layout)
    }


def launch_kalman(kernel, like, inputs, floors, *others):
    """Run a kernel in the form for these floors: which noises come before their softplus."""
    launch(kernel, like, inputs, floors, *others, flags=[x is not None for x in floors])


def linear_forward(a, b, start, initial, lengths, reset):
    """See `operators.linear_operator`."""
    carry = carry_dtype(b.dtype)
    states, end = _recur(a.to(carry), b.to(carry), start, initial, lengths, reset)
    return states.to(b.dtype), end


def linear_backward(a, b, start, initial, lengths, reset, states, g_states, g_end):
    """See `operators.linear_operator`."""
    signals, carry = b.dtype, carry_dtype(b.dtype)
    a, b = a.to(carry), b.to(carry)
    if signals != carry:  # the states were rounded to half precision: run again
        states, _ = _recur(a, b, start, initial, lengths, reset)
    rows, steps, channels = b.shape
    g_a = b.new_zeros(rows, steps if a.dim() == 3 else 1, channels)
    g_b = fresh(b.shape, carry)
    g_starts = [b.new_zeros(rows, channels) for _ in range(2)]
    g_outputs = [b.new_zeros(channels) if g is None else g.to(carry) for g in (g_states, g_end)]
    launch(
        linear_kernels.backward, b,
        arrays(b, (a, b)), _start_arrays(b, start, initial), row_facts(b, lengths, reset, None),
        arrays(b, (states,)), arrays(b, g_outputs), arrays(b, (g_a, g_b)), arrays(b, g_starts),
    )  # fmt: skip
    g_a = g_a.to(signals) if a.dim() == 3 else g_a.sum((0, 1))
    inputs = (start, initial)
    g_starts = [b.new_empty(0) if x is None else g for g, x in zip(g_starts, inputs, strict=True)]
    return [g_a, g_b.to(signals), *g_starts]


def _recur(a, b, start, initial, lengths, reset):
    """Return the states of all steps and of the end."""
    outputs = fresh(b.shape, b.dtype), b.new_empty(b.shape[0], b.shape[2])
    launch(
        linear_kernels.forward, b,
        arrays(b, (a, b)), _start_arrays(b, start, initial), row_facts(b, lengths, reset, None),
        arrays(b, outputs),
    )  # fmt: skip
    return outputs


def _start_arrays(like, start, initial):
    zero = like.new_zeros(like.shape[2])
    return arrays(like, [zero if x is None else x for x in (start, initial)])


def launch(
    kernel: Callable[..., Any], like: Tensor, *arguments: Any, flags: Sequence[bool] = ()
) -> None:
    """Run a kernel with as many threads as PyTorch uses.

    Rows are the unit of work; where there are fewer rows than threads, rows are cut into blocks of
    channels, and very wide rows are cut to stay in the cache.
    """
    rows, _, channels = like.shape
    torchs = torch.get_num_threads()
    threads = min(torchs, numba.config.NUMBA_NUM_THREADS)
    if like.numel() < ENOUGH_TO_SHARE:
        threads = 1
    blocks = max(-(-channels // MOST_CHANNELS_A_TASK), -(-threads // max(rows, 1)))
    width = max(-(-channels // (blocks * 16)), 1) * 16  # whole vectors
    before = numba.get_num_threads()
    numba.set_num_threads(threads)
    try:
        kernel(NUMBERS[like.dtype], *flags)(width, *arguments)
    finally:
        numba.set_num_threads(before)
        if torch.get_num_threads() != torchs:  # both may share one OpenMP, and so one count
            torch.set_num_threads(torchs)


def fresh(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Memory for a result, from the start of a cache line: vectors across two take up to twice as
    long. numpy's, because it asks for huge pages: torch's costs a page fault every 4 KiB, which is
    more than the whole scan takes."""
    size = math.prod(shape) * dtype.itemsize
    room = np.empty(size + LINE, np.uint8)
    begin = -room.ctypes.data % LINE
    return torch.from_numpy(room[begin : begin + size].view(NUMPY[dtype]).reshape(shape))


def arrays(like: Tensor, tensors: Sequence[Tensor]) -> tuple[np.ndarray, ...]:
    """View each tensor as an array of three axes, by strides alone.

    (N,) and (B, 1, N) become (B, T, N), (B, N) becomes (B, 1, N). A last axis whose elements are
    not neighbors in memory is the one thing that is copied.
    """
    shape = tuple(like.shape)
    result = []
    for tensor in tensors:
        x = _readable(tensor)
        if x.ndim == 1:
            x = np.ndarray(shape, x.dtype, x, 0, (0, 0, x.itemsize))
        elif x.ndim == 2:
            x = x[:, None]
        elif x.shape != shape:
            x = all_steps(x, shape)
        result.append(x)
    return tuple(result)


def all_steps(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """View (B, 1, N) as (B, T, N), by strides alone."""
    return np.ndarray(shape, x.dtype, x, 0, (x.strides[0], 0, x.itemsize))


def _readable(x: Tensor) -> np.ndarray:
    """View the same memory as an array, copied if the last axis' elements are not neighbors."""
    if x.is_complex():
        x = x.resolve_conj()
    x = x.detach()
    if x.stride(-1) != 1 and x.shape[-1] > 1:
        x = x.contiguous()
    return x.numpy()


def row_facts(
    like: Tensor, lengths: Tensor | None, reset: Tensor | None, observed: Tensor | None
) -> tuple[np.ndarray, ...]:
    """Return (lengths, reset, observed), with absent flags as one broadcast value."""
    shape = tuple(like.shape[:2])
    return (
        np.full(shape[0], shape[1], np.int32) if lengths is None else lengths.int().numpy(),
        _constant(False, shape) if reset is None else reset.numpy(),
        _constant(True, shape) if observed is None else observed.numpy(),
    )


def _constant(value: bool, shape: tuple[int, ...]) -> np.ndarray:
    """Return one flag for all steps, by strides alone."""
    return np.ndarray(shape, np.bool_, np.array([value]), 0, (0, 0))
