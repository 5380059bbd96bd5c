"""From tensors to kernels: arrays without copies, memory for results, PyTorch's threads."""

from collections.abc import Callable, Sequence
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from kalmanac.ops.arguments import carry_dtype
from kalmanac.ops.cpu import kalman_kernels, linear_kernels
from kalmanac.ops.operators import split_signals

NUMBERS = {
    torch.float32: numba.float32,
    torch.float64: numba.float64,
    torch.complex64: numba.complex64,
    torch.complex128: numba.complex128,
}
NUMPY = {
    torch.float32: np.float32,
    torch.float64: np.float64,
    torch.complex64: np.complex64,
    torch.complex128: np.complex128,
}
NO, YES = torch.zeros((), dtype=torch.bool), torch.ones((), dtype=torch.bool)
ENOUGH_TO_SHARE = 2**15  # elements; less is done before a second thread has woken up
MOST_CHANNELS_A_TASK = 512  # twenty such rows of float32 stay in the second-level cache


def kalman_forward(parameters, signals, layout, beliefs, facts, floors):
    """See `operators.kalman_operator`."""
    dtype = signals[0].dtype
    inputs, floors = _kalman_inputs(parameters, signals, layout, floors)
    mean, variance, m, P = _filter(inputs, floors, beliefs, facts)
    return mean.to(dtype), variance.to(dtype), m, P, m.new_empty(0)


def kalman_backward(parameters, signals, layout, beliefs, facts, floors, outputs, given):
    """See `operators.kalman_operator`."""
    inputs, raw = _kalman_inputs(parameters, signals, layout, floors)
    w = inputs[4]
    rows, _, channels = w.shape
    saved = outputs[:2]
    if saved[0].dtype != w.dtype:  # rounded to half precision: filter again
        saved = _filter(inputs, raw, beliefs, facts)[:2]
    g_parameters = w.new_zeros(3, rows, 1, channels)  # a, b, constant q: partial sums per row
    g_signals = [fresh(x.shape, w.dtype) for x in signals]
    named = split_signals(g_signals, layout)
    if "q" in named:
        named["q"].zero_()  # added to, like the partial sums
    g_inputs = [
        g_parameters[0],
        g_parameters[1],
        named.get("u", w.new_empty(rows, 1, channels)),
        named.get("q", g_parameters[2]),
        named["w"],
        named["r"],
    ]
    g_beliefs = [w.new_zeros(rows, channels) for _ in range(4)]
    rounding = [w.new_zeros(rows, channels) for _ in range(5)]
    given = [w.new_zeros(channels) if g is None else g.to(w.dtype) for g in given]
    launch(
        kalman_kernels.backward, w,
        arrays(w, inputs), raw, _belief_arrays(w, beliefs), row_facts(w, *facts),
        arrays(w, saved), arrays(w, given), arrays(w, g_inputs), arrays(w, g_beliefs),
        arrays(w, rounding), flags=_present(raw),
    )  # fmt: skip
    summed = [g.clone() for g in g_parameters.sum((1, 2))]
    if floors[1] is not None and parameters[2] is not None:
        summed[2] *= parameters[2].sigmoid()
    found = [w.new_empty(0) if x is None else g for g, x in zip(summed, parameters, strict=True)]
    g_beliefs = [
        w.new_empty(0) if x is None else g for g, x in zip(g_beliefs, beliefs, strict=True)
    ]
    return [*found, *(g.to(signals[0].dtype) for g in g_signals), *g_beliefs]


def _filter(inputs, floors, beliefs, facts):
    """Mean and variance of all steps and of the end."""
    w = inputs[4]
    outputs = [fresh(w.shape, w.dtype) for _ in range(2)]
    outputs += [w.new_empty(w.shape[0], w.shape[2]) for _ in range(4)]  # ends, scratch
    launch(
        kalman_kernels.forward, w,
        arrays(w, inputs), floors, _belief_arrays(w, beliefs), row_facts(w, *facts),
        arrays(w, outputs), flags=_present(floors),
    )  # fmt: skip
    return outputs[:4]


def _belief_arrays(like, beliefs):
    """(m, P) of start and prior, N(0, 1) where they are absent."""
    standard = like.new_zeros(like.shape[2]), like.new_ones(like.shape[2])
    return arrays(like, [s if x is None else x for x, s in zip(beliefs, standard * 2, strict=True)])


def _kalman_inputs(parameters, signals, layout, floors):
    """(a, b, u, q, w, r) in the carry dtype, b = 1 and u = 0 where absent; the kernels' floors.

    Time-varying noises with a floor stay raw, a constant one becomes a variance here.
    """
    a, b, q = parameters
    named = {name: x.to(a.dtype) for name, x in split_signals(signals, layout).items()}
    r_floor, q_floor = (None if x is None else NUMPY[a.dtype](x) for x in floors)
    if q is not None and q_floor is not None:
        q, q_floor = F.softplus(q) + floors[1], None
    inputs = [
        a,
        torch.ones_like(a) if b is None else b,
        named["u"] if "u" in named else torch.zeros_like(a),
        named["q"] if q is None else q,
        named["w"],
        named["r"],
    ]
    return inputs, (r_floor, q_floor)


def _present(floors):
    return tuple(x is not None for x in floors)


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
    given = [b.new_zeros(channels) if g is None else g.to(carry) for g in (g_states, g_end)]
    launch(
        linear_kernels.backward, b,
        arrays(b, (a, b)), _start_arrays(b, start, initial), row_facts(b, lengths, reset, None),
        arrays(b, (states,)), arrays(b, given), arrays(b, (g_a, g_b)), arrays(b, g_starts),
    )  # fmt: skip
    g_a = g_a.to(signals) if a.dim() == 3 else g_a.sum((0, 1))
    inputs = (start, initial)
    g_starts = [b.new_empty(0) if x is None else g for g, x in zip(g_starts, inputs, strict=True)]
    return [g_a, g_b.to(signals), *g_starts]


def _recur(a, b, start, initial, lengths, reset):
    """The states of all steps and of the end."""
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
    """Memory for a result. numpy's, because it asks for huge pages: torch's costs a page fault
    every 4 KiB, which is more than the whole scan takes."""
    return torch.from_numpy(np.empty(shape, NUMPY[dtype]))


def arrays(like: Tensor, tensors: Sequence[Tensor]) -> tuple[np.ndarray, ...]:
    """Each tensor as an array of three axes, by strides alone.

    (N,) and (B, 1, N) become (B, T, N), (B, N) becomes (B, 1, N). A last axis whose elements are
    not neighbours in memory is the one thing that is copied.
    """
    shape = like.shape
    result = []
    for x in tensors:
        if x.stride(-1) != 1 and shape[2] > 1:
            x = x.contiguous()
        if x.is_complex():
            x = x.resolve_conj()
        x = x.detach()
        if x.dim() == 2:
            x = x[:, None]
        elif x.shape != shape:
            x = x.expand(shape)
        result.append(x.numpy())
    return tuple(result)


def row_facts(
    like: Tensor, lengths: Tensor | None, reset: Tensor | None, observed: Tensor | None
) -> tuple[np.ndarray, ...]:
    """(lengths, reset, observed), with absent flags as one broadcast value."""
    shape = like.shape[:2]
    return (
        np.full(shape[0], shape[1], np.int32) if lengths is None else lengths.int().numpy(),
        (NO.expand(shape) if reset is None else reset).numpy(),
        (YES.expand(shape) if observed is None else observed).numpy(),
    )
