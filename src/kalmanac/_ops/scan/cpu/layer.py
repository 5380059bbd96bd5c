"""The Kalman filter between its two projections, some rows at a time.

The signals have k N numbers a step where h and z have E: 25 MB for a batch of Best Arm, and as much
for their gradients. Of some rows at a time they stay in the cache, and the backward projects h once
more, which takes half the time of reading them back.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from kalmanac._ops.dense import add_product, room_for
from kalmanac._ops.scan.cpu import kalman_kernels
from kalmanac._ops.scan.cpu.launch import (
    NUMPY,
    all_steps,
    belief_arrays,
    fresh,
    kalman_arrays,
    launch_kalman,
    row_facts,
    run_adjoint,
)
from kalmanac._ops.scan.inputs import Belief, KalmanLayerInputs

NUMBERS_A_THREAD = 800_000  # of the signals at once: with their gradients, one core's cache


class _Options(NamedTuple):
    """The options are all arguments but the differentiable tensors."""

    layout: str
    facts: tuple[Tensor | None, ...]  # lengths, reset, observed
    floors: tuple[float | None, float | None]  # of r, of q
    keep: bool  # a backward may follow


def kalman_layer(x: KalmanLayerInputs) -> tuple[Tensor, Belief]:
    """Return z of every step and the last belief."""
    tensors = (x.a, x.b, x.q, x.h, *x.into, *x.out_of, *(x.start or (None, None)))
    keep = torch.is_grad_enabled() and any(y is not None and y.requires_grad for y in tensors)
    facts, floors = (x.lengths, x.reset, x.observed), (x.r_floor, x.q_floor)
    z, m, P = _Layer.apply(_Options(x.layout, facts, floors, keep), *tensors)
    return z, Belief(m, P)


class _Layer(torch.autograd.Function):
    """Forward and closed-form backward, over the same pieces."""

    @staticmethod
    def forward(ctx, options, a, b, q, h, W, c, V, d, m_start, P_start):
        rows, steps, _ = h.shape
        channels = len(a)
        # (E + 1, kN): the bias is the weight of a one that stands beside h
        wide, into = F.pad(h, (0, 1), value=1.0), torch.cat([W, c[:, None]], 1).mT.contiguous()
        work = _Work(options, (a, b, q), (m_start, P_start), wide, into)
        stored = rows if options.keep else work.longest
        beliefs = fresh((2, stored, steps, channels), h.dtype)
        ends = fresh((2, rows, 1, channels), h.dtype).numpy()
        scratch = fresh((2, work.longest, 1, channels), h.dtype).numpy()
        z = h.new_empty(rows, steps, len(V))
        for piece in work.pieces:
            count = piece.stop - piece.start
            place = piece if options.keep else slice(count)
            inputs, *rest = work.of(piece)
            outputs = (*beliefs[:, place].numpy(), *ends[:, piece], *scratch[:, :count])
            launch_kalman(
                kalman_kernels.forward, work.like[:count], inputs, work.floors, *rest, outputs
            )
            z_rows = z[piece].flatten(0, 1)
            for i, part in enumerate(V.split(channels, 1)):
                features = beliefs[i, place].flatten(0, 1)
                torch.addmm(z_rows if i else d, features, part.mT, out=z_rows)
        if options.keep:
            ctx.save_for_backward(a, b, q, wide, into, V, m_start, P_start, beliefs)
            ctx.options = options
            ctx.set_materialize_grads(False)
        m, P = (torch.from_numpy(x[:, 0]) for x in ends)
        return z, m, P

    @staticmethod
    @once_differentiable
    def backward(ctx, g_z, g_m, g_P):
        a, b, q, wide, into, V, m_start, P_start, beliefs = ctx.saved_tensors
        options, (rows, steps, _) = ctx.options, wide.shape
        channels, number = len(a), NUMPY[wide.dtype]
        work = _Work(options, (a, b, q), (m_start, P_start), wide, into)
        parts = V.split(channels, 1)
        g_z = wide.new_zeros(rows, steps, len(V)) if g_z is None else g_z
        g_signals = torch.empty_like(work.signals)
        g_beliefs = wide.new_empty(len(parts), work.longest, steps, channels)
        g_into, g_V = room_for(wide, into), [room_for(g_z, part) for part in parts]
        g_h = wide.new_empty(rows, steps, wide.shape[2] - 1) if ctx.needs_input_grad[4] else None
        none = np.zeros((rows, 1, channels), number)
        g_ends = [none if g is None else g.contiguous().numpy()[:, None] for g in (g_m, g_P)]
        sums = fresh((12, rows, 1, channels), wide.dtype).zero_().numpy()
        for piece in work.pieces:
            count = piece.stop - piece.start
            like = work.like[:count]
            inputs, starts, facts = work.of(piece)
            slopes, tokens = g_z[piece].flatten(0, 1), wide[piece].flatten(0, 1)
            for g, part in zip(g_beliefs, parts, strict=True):
                torch.mm(slopes, part, out=g[:count].flatten(0, 1))
            g_steps = [*g_beliefs[:, :count].numpy(), *([none[piece]] * (2 - len(parts)))]
            g_steps = [x if x.shape[1] == steps else all_steps(x, like.shape) for x in g_steps]
            run_adjoint(
                like, inputs, work.floors, starts, facts, tuple(beliefs[:, piece].numpy()),
                (*g_steps, *(g[piece] for g in g_ends)), [g_signals[:count].numpy()],
                options.layout, sums[:, piece],
            )  # fmt: skip
            g_rows = g_signals[:count].flatten(0, 1)
            add_product(g_into, tokens, g_rows)
            for i, room in enumerate(g_V):
                add_product(room, slopes, beliefs[i, piece].flatten(0, 1))
            if g_h is not None:
                torch.mm(g_rows, into[:-1].mT, out=g_h[piece].flatten(0, 1))
        g_a, g_b, g_q = torch.from_numpy(sums[:3]).sum((1, 2))
        if q is not None and options.floors[1] is not None:
            g_q = g_q * q.sigmoid()
        g_weight, g_bias = g_into.sum(0).mT.split([wide.shape[2] - 1, 1], 1)
        g_starts = torch.from_numpy(sums[3:5, :, 0])
        return (
            None, g_a, None if b is None else g_b, None if q is None else g_q, g_h,
            g_weight, g_bias[:, 0], torch.cat(g_V, 2).sum(0), g_z.sum((0, 1)),
            *([None, None] if m_start is None else g_starts),
        )  # fmt: skip


class _Work:
    """The pieces of a call, and their signals as the kernels take them."""

    def __init__(
        self,
        options: _Options,
        parameters: Sequence[Tensor | None],
        start: Sequence[Tensor | None],
        wide: Tensor,
        into: Tensor,
    ) -> None:
        self.wide, self.into = wide, into
        rows, steps, _ = wide.shape
        self.pieces = row_pieces(rows, steps * into.shape[1])
        self.longest = self.pieces[0].stop
        self.signals = wide.new_empty(self.longest, steps, into.shape[1])
        self.like, self._inputs, self.floors = kalman_arrays(
            parameters, [self.signals], options.layout, options.floors
        )
        whole = wide.new_empty(1).expand(rows, steps, self.like.shape[2])
        self._beliefs = belief_arrays(whole, (*start, None, None))
        self._facts = row_facts(whole, *options.facts)

    def of(self, piece: slice) -> tuple[Any, Any, Any]:
        """Compute the signals of these rows; return the kernels' inputs, beliefs and facts."""
        tokens = self.wide[piece].flatten(0, 1)
        count = piece.stop - piece.start
        torch.mm(tokens, self.into, out=self.signals[:count].flatten(0, 1))
        return (
            tuple(x[:count] for x in self._inputs),
            tuple(x[piece] for x in self._beliefs),
            tuple(x[piece] for x in self._facts),
        )


def row_pieces(rows: int, numbers: int) -> list[slice]:
    """Cut the rows, of `numbers` signals each, into pieces, as many rows for every thread."""
    threads = torch.get_num_threads()
    size = max(NUMBERS_A_THREAD // max(numbers, 1), 1) * threads
    size = -(-rows // max(round(rows / size), 1))
    size = -(-size // threads) * threads
    return [slice(i, min(i + size, rows)) for i in range(0, rows, size)]
