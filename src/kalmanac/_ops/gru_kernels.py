"""A GRU layer's steps in one launch each way (Cho et al., 2014, with PyTorch's q inside of r).

    r = σ(W_ir x + b_ir + W_hr h + b_hr),   z = σ(W_iz x + b_iz + W_hz h + b_hz),
    q = W_hn h + b_hn,   n = tanh(W_in x + b_in + r q),   h' = n + z (h - n)

A program walks BLOCK rows through all steps, and the recurrent weights stay in its shared memory.
cuDNN keeps the whole GPU for one layer, so that several seeds wait for each other. What the inputs
bring is a product of all steps before the walk, and the weights' gradients are products after it.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from kalmanac._ops.dense_kernels import LEAST

BLOCK = 8  # rows: the smallest side of a product, and eight multiprocessors for a batch of 64
ERASERS = 4  # programs beside each that walks, which put zeros behind its last step
WIDEST = 128  # hidden
WARPS = 8  # at most: one for every 16 hidden units, so that no two hold the same ones
FREE = ["rows", "T", "reset_i", "reset_t"]


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x)), in the precision of x."""
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def tanh(x):
    """2 σ(2x) - 1, and its series where that would cancel."""
    s = x * x
    near = 1.0 - s / 3.0 * (1.0 - s * 0.4 * (1.0 - s * (17.0 / 42.0) * (1.0 - s * (62.0 / 153.0))))
    return tl.where(s < 1.0 / 256.0, x * near, 2.0 * sigmoid(2.0 * x) - 1.0)


@triton.jit
def last_step(lengths, i, T, HAS_LENGTHS: tl.constexpr):
    """The step behind which all of these rows are pads."""
    if HAS_LENGTHS:
        return tl.minimum(tl.max(tl.load(lengths + i)).to(tl.int32), T)
    return T


@triton.jit
def erase(places, i, j, stop, T, K: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr):
    """This program's share of zeros from step `stop` on, in rows i of (B, T, K N)."""
    nothing = tl.zeros((N, BLOCK), places.dtype.element_ty)
    for t in range(stop + tl.program_id(1) - 1, T, tl.num_programs(1) - 1):
        at = places + (i * T + t) * (K * N) + j
        for k in tl.static_range(K):
            tl.store(at + k * N, nothing)


@triton.jit(do_not_specialize=FREE)
def forward(
    driven, weight, bias, start, lengths, reset, states, before, bent, rows, T, reset_i, reset_t,
    HAS_LENGTHS: tl.constexpr, HAS_RESET: tl.constexpr, KEEP: tl.constexpr, N: tl.constexpr,
    BLOCK: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """The steps of BLOCK rows. To KEEP: r, z, n (in place of `driven`), h before a step, and q.

    With lengths, states and `before` are zero behind the last step, by programs of their own.
    Tiles are (N, BLOCK), so that a product may have as few as 8 rows. Programs with fewer rows left
    repeat the last one: the same numbers go to the same places.
    """
    PRECISION: tl.constexpr = "ieee" if EXACT else "tf32"
    dtype: tl.constexpr = states.dtype.element_ty
    i = tl.minimum(tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), rows - 1).to(tl.int64)[None, :]
    j, k = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    stop = last_step(lengths, i, T, HAS_LENGTHS)
    if tl.program_id(1) > 0:
        erase(states, i, j, stop, T, 1, N, BLOCK)
        if KEEP:
            erase(before, i, j, stop, T, 1, N, BLOCK)
        return
    w_r = tl.load(weight + j * N + k)
    w_z = tl.load(weight + (N + j) * N + k)
    w_n = tl.load(weight + (2 * N + j) * N + k)
    b_r, b_z, b_n = tl.load(bias + j), tl.load(bias + N + j), tl.load(bias + 2 * N + j)
    h = tl.load(start + i * N + j)
    gates, at = driven + i * T * (3 * N) + j, i * T * N + j
    r_, z_, n_ = tl.load(gates), tl.load(gates + N), tl.load(gates + 2 * N)
    for t in range(stop):
        r, z, n = r_ + b_r, z_ + b_z, n_
        ahead = gates + tl.minimum(t + 1, stop - 1) * (3 * N)
        r_, z_, n_ = tl.load(ahead), tl.load(ahead + N), tl.load(ahead + 2 * N)
        if HAS_RESET:
            fresh = tl.load(reset + i * reset_i + t * reset_t)
            h = tl.where(fresh != 0, 0.0, h)
        if KEEP:
            tl.store(before + at + t * N, h)
        r = tl.dot(w_r, h, r, input_precision=PRECISION, out_dtype=dtype)
        z = tl.dot(w_z, h, z, input_precision=PRECISION, out_dtype=dtype)
        q = tl.dot(w_n, h, input_precision=PRECISION, out_dtype=dtype) + b_n
        r, z = sigmoid(r), sigmoid(z)
        n = tanh(n + r * q)
        h = n + z * (h - n)
        tl.store(states + at + t * N, h)
        if KEEP:
            kept = gates + t * (3 * N)
            tl.store(kept, r)
            tl.store(kept + N, z)
            tl.store(kept + 2 * N, n)
            tl.store(bent + at + t * N, q)


@triton.jit
def read(gates, bent, before, given, row, j, N: tl.constexpr):
    """What the backward needs of a step: r, z, n, q, h and the slope of h'."""
    kept, at = gates + row * (3 * N) + j, row * N + j
    return (
        tl.load(kept),
        tl.load(kept + N),
        tl.load(kept + 2 * N),
        tl.load(bent + at),
        tl.load(before + at),
        tl.load(given + at),
    )


@triton.jit(do_not_specialize=FREE)
def backward(
    given, gates, before, bent, weight, lengths, reset, slopes, g_start, rows, T, reset_i, reset_t,
    HAS_LENGTHS: tl.constexpr, HAS_RESET: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr,
    EXACT: tl.constexpr,
):  # fmt: skip
    """The slopes of n, r, z before their functions and of q, side by side, and of the start.

    With lengths, the former are zero behind the last step, by programs of their own.
    """
    PRECISION: tl.constexpr = "ieee" if EXACT else "tf32"
    dtype: tl.constexpr = slopes.dtype.element_ty
    i = tl.minimum(tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), rows - 1).to(tl.int64)[None, :]
    j, k = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    stop = last_step(lengths, i, T, HAS_LENGTHS)
    if tl.program_id(1) > 0:
        erase(slopes, i, j, stop, T, 4, N, BLOCK)
        return
    w_r = tl.load(weight + k * N + j)
    w_z = tl.load(weight + (N + k) * N + j)
    w_n = tl.load(weight + (2 * N + k) * N + j)
    carried = tl.zeros((N, BLOCK), dtype)
    row = i * T + tl.maximum(stop - 1, 0)
    r_, z_, n_, q_, h_, g_ = read(gates, bent, before, given, row, j, N)
    for s in range(stop):
        t = stop - 1 - s
        r, z, n, q, h, g = r_, z_, n_, q_, h_, g_ + carried
        row = i * T + tl.maximum(t - 1, 0)
        r_, z_, n_, q_, h_, g_ = read(gates, bent, before, given, row, j, N)
        g_z = g * (h - n) * z * (1.0 - z)
        g_n = g * (1.0 - z) * (1.0 - n * n)
        g_r = g_n * q * r * (1.0 - r)
        g_q = g_n * r
        carried = tl.dot(w_r, g_r, g * z, input_precision=PRECISION, out_dtype=dtype)
        carried = tl.dot(w_z, g_z, carried, input_precision=PRECISION, out_dtype=dtype)
        carried = tl.dot(w_n, g_q, carried, input_precision=PRECISION, out_dtype=dtype)
        place = slopes + (i * T + t) * (4 * N) + j
        tl.store(place, g_n)
        tl.store(place + N, g_r)
        tl.store(place + 2 * N, g_z)
        tl.store(place + 3 * N, g_q)
        if HAS_RESET:
            fresh = tl.load(reset + i * reset_i + t * reset_t)
            carried = tl.where(fresh != 0, 0.0, carried)
    tl.store(g_start + i * N + j, carried)


class Marks(NamedTuple):
    """Where rows end and begin anew.

    A program stops behind the longest of its rows: no step depends on the pads after it, and what
    is not computed is zero. Inputs are finite on pads.
    """

    lengths: Tensor | None  # (B,) integers
    reset: Tensor | None  # (B, T) bool: the state is zero before that step

    def programs(self, rows: int) -> tuple[int, int]:
        """Those that walk, and beside each those that erase."""
        return triton.cdiv(rows, BLOCK), 1 if self.lengths is None else 1 + ERASERS

    def pointers(self, other: Tensor) -> tuple[Tensor, Tensor]:
        """Both tensors; `other` stands for one that is not there."""
        return (
            other if self.lengths is None else self.lengths,
            other if self.reset is None else self.reset,
        )

    def strides(self) -> tuple[int, int]:
        """Of `reset`."""
        return (0, 0) if self.reset is None else (self.reset.stride(0), self.reset.stride(1))

    def flags(self) -> dict[str, bool]:
        """What the kernels are compiled for."""
        return {"HAS_LENGTHS": self.lengths is not None, "HAS_RESET": self.reset is not None}


class Walked(NamedTuple):
    """The states of all steps, and what the backward wants to have kept, None without it."""

    states: Tensor  # (B, T, N)
    gates: Tensor | None  # (B, T, 3 N): r, z, n
    before: Tensor | None  # (B, T, N): the state that a step begins with
    bent: Tensor | None  # (B, T, N): q


def walk(
    driven: Tensor, weight: Tensor, bias: Tensor, start: Tensor, steps: Marks, *, keep: bool,
    exact: bool,
) -> Walked:  # fmt: skip
    """Every step of a GRU, from W_i x + b_i (B, T, 3 N) on, whose memory is used for `gates`.

    Recurrent `weight` (3 N, N) and `bias` (3 N,); `start` (B, N).
    """
    rows, count, _ = driven.shape
    shape = rows, count, start.shape[1]
    states = driven.new_empty(shape)
    before, bent = (torch.empty_like(states) if keep else states for _ in range(2))
    forward[steps.programs(rows)](
        driven, weight, bias, start, *steps.pointers(states), states, before, bent, rows, count,
        *steps.strides(), **steps.flags(), KEEP=keep, N=shape[2], BLOCK=BLOCK, EXACT=exact,
        num_warps=warps(shape[2]), num_stages=1,
    )  # fmt: skip
    return Walked(states, driven, before, bent) if keep else Walked(states, None, None, None)


def walk_back(
    given: Tensor, walked: Walked, weight: Tensor, steps: Marks, *, exact: bool
) -> tuple[Tensor, Tensor]:
    """Slopes (B, T, 4 N) of n, r, z before σ and tanh and of q, and those of the start (B, N)."""
    rows, count, hidden = given.shape
    slopes = given.new_empty(rows, count, 4 * hidden)
    g_start = given.new_empty(rows, hidden)
    backward[steps.programs(rows)](
        given, walked.gates, walked.before, walked.bent, weight, *steps.pointers(given), slopes,
        g_start, rows, count, *steps.strides(), **steps.flags(), N=hidden, BLOCK=BLOCK, EXACT=exact,
        num_warps=warps(hidden), num_stages=1,
    )  # fmt: skip
    return slopes, g_start


def warps(hidden: int) -> int:
    """Of a program. Each reads a number of `driven` and puts another in its place."""
    return min(WARPS, hidden // 16)


def fits(hidden: int, shared: int) -> bool:
    """The weights of so many hidden units fit into `shared` bytes, with room for the walk."""
    sides = LEAST <= hidden <= WIDEST and hidden == triton.next_power_of_2(hidden)
    return sides and 4 * (3 * hidden * hidden + 8 * BLOCK * hidden) <= shared
