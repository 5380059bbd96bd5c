"""From tensors to kernels: pointers and strides, memory for results, one launch or three."""

from collections.abc import Sequence
from typing import Any, TypeVar

import triton.language as tl
from torch import Tensor

from kalmanac._ops.scan.arguments import carry_dtype
from kalmanac._ops.scan.gpu import adjoint_kernels, kalman_kernels, linear_kernels, segment_kernels
from kalmanac._ops.scan.gpu.steps import INTERPRETED
from kalmanac._ops.scan.gpu.tiling import kalman_chunk, linear_chunk, segments, spans, tiling
from kalmanac._ops.scan.operators import split_signals

AHEAD = 8  # segments whose summaries are loaded at once while they are chained


class Call:
    """The tensors of one call as a kernel takes them, pointers, strides and flags, and its layout.

    `stand_in` takes the place of an absent tensor, with strides of zero; a flag says so.
    """

    def __init__(self, stand_in: Tensor, shape: tuple[int, int, int], chunk: int) -> None:
        self.stand_in, (self.B, self.T, self.N) = stand_in, shape
        self.cut = segments(*shape, chunk)
        self.tile = tiling(self.B * self.cut.parts, self.cut.steps, self.N)
        # no chunk or block is only part-filled
        whole = self.T % self.cut.steps == 0 and self.cut.steps % chunk == 0
        self.full = whole and self.N % self.tile.block == 0
        self.constants: dict[str, Any] = {
            "C": chunk,
            "BLOCK": self.tile.block,
            "FULL": self.full,
            "num_warps": self.tile.warps,
            "num_stages": 1,  # the kernels load ahead themselves
        }

    def tensor(self, x: Tensor | None) -> Tensor:
        return self.stand_in if x is None else x

    def strides(self, x: Tensor | None) -> tuple[int, ...]:
        return (0, 0) if x is None else x.stride()[:-1]

    def flag_strides(self, x: Tensor | None) -> tuple[int, ...]:
        return (0, 0) if x is None else x.stride()

    def sizes(self) -> tuple[int, ...]:
        return self.T, self.cut.steps, self.cut.parts

    def grid(self, count: int) -> tuple[int]:
        return (self.B * count * -(-self.N // self.tile.block),)

    def fixed(self, size: int) -> Any:
        """A size or stride as a constant of the kernel where it is made for one geometry."""
        return tl.constexpr(size) if self.full and not INTERPRETED else size


MaybeTensor = TypeVar("MaybeTensor", Tensor, Tensor | None)


def neighbours(x: MaybeTensor) -> MaybeTensor:
    """The tensor with its last axis contiguous in memory: copied only if it was not."""
    if x is None or x.shape[-1] <= 1 or x.stride(-1) == 1:
        return x
    return x.contiguous()


class KalmanCall(Call):
    """What all kernels of one Kalman scan share."""

    def __init__(
        self, parameters, signals, layout, beliefs, facts, floors, projection=None
    ) -> None:
        a, b, q = (neighbours(x) for x in parameters)
        B, T, inputs = signals[0].shape
        chunk = kalman_chunk(B, T, len(a), *conditions(layout, facts), chunk_of(projection))
        super().__init__(a, (B, T, len(a)), chunk)
        self.projection, signals = projection, [neighbours(x) for x in signals]
        if projection is None:
            named = split_signals(signals, layout)
        else:
            named = dict.fromkeys(layout, signals[0])
        self.signals = {name: named.get(name) for name in "uwrq"}
        self.a, self.b, self.q = a, b, named.get("q", q)
        self.start = tuple(neighbours(x) for x in beliefs[:2])
        self.prior = tuple(neighbours(x) for x in beliefs[2:])
        self.lengths = neighbours(facts[0])
        self.reset, self.observed = facts[1:]
        self.prefetch = self.tile.prefetch if self.full and projection is None else 0
        self.floors = tuple(0.0 if floor is None else floor for floor in floors)
        self.constants |= {
            "HAS_B": b is not None,
            "HAS_U": "u" in named,
            "Q_VARIES": "q" in named,
            "HAS_RESET": self.reset is not None,
            "HAS_OBSERVED": self.observed is not None,
            "HAS_LENGTHS": self.lengths is not None,
            "HAS_PRIOR": self.prior[0] is not None,
            "R_RAW": floors[0] is not None,
            "Q_RAW": floors[1] is not None,
            "N": self.fixed(self.N),
            **{f"{name}_t": self.fixed(self.strides(x)[1]) for name, x in self.signals.items()},
            "X": 0 if projection is None else inputs,
        }

    def inputs(self) -> tuple[Any, ...]:
        signals = (self.signals[name] for name in "uwr")
        return tuple(self.tensor(x) for x in (self.a, self.b, self.q, *signals))

    def conditions(self) -> tuple[Any, ...]:
        facts = (self.lengths, self.reset, self.observed)
        return tuple(self.tensor(x) for x in (*self.prior, *facts))

    def row_strides(self) -> tuple[int, ...]:
        return tuple(self.strides(x)[0] for x in self.signals.values())

    def condition_strides(self) -> tuple[int, ...]:
        prior = tuple(self.strides(x)[0] for x in self.prior)
        return (*prior, *self.flag_strides(self.reset), *self.flag_strides(self.observed))

    def new(self, *shape: int) -> Tensor:
        return self.a.new_empty(shape)


def kalman_forward(
    parameters, signals, layout, beliefs, facts, floors, variances=True, projection=None
):
    """See `operators.kalman_operator`. With a projection (n + 1, kN), the k signals are made of
    inputs (B, T, n), the only one of `signals`, and a one."""
    (rows, steps), channels = signals[0].shape[:2], len(parameters[0])
    mean = signals[0].new_empty(rows, steps, channels)
    variance = signals[0].new_empty(rows, steps, channels if variances else 0)
    parts = spans(rows, steps, channels, *conditions(layout, facts), chunk_of(projection))
    saved = parameters[0].new_empty(parts[-1].saved.stop)
    at = beliefs[:2]
    for begin, end, kept in parts:
        own = [s[:, begin:end] for s in signals]
        x = KalmanCall(parameters, own, layout, (*at, *beliefs[2:]), facts, floors, projection)
        at = scan(x, mean[:, begin:end], variance[:, begin:end], saved[kept])
    return mean, variance, *at, saved


def chunk_of(projection: Tensor | None) -> int:
    """Steps a chunk, at most: what a projection keeps in registers leaves room for so many."""
    return 16 if projection is None else 8


def conditions(layout, facts) -> tuple[bool, bool]:
    """Are there lengths; are there resets, missing readings or varying process noise?"""
    return facts[0] is not None, facts[1] is not None or facts[2] is not None or "q" in layout


def scan(x: KalmanCall, mean: Tensor, variance: Tensor, saved: Tensor) -> tuple[Tensor, Tensor]:
    """Fill in the beliefs of one span; returns the last."""
    start, K = x.start, x.cut.parts
    if K > 1:
        summary, starts = x.new(5, x.B * K, x.N), x.new(2, x.B * K, x.N)
        segment_kernels.summarise[x.grid(K)](
            *x.inputs(), *x.conditions(), summary,
            *x.sizes(), *x.row_strides(), *x.condition_strides(), *x.floors, **x.constants,
        )  # fmt: skip
        segment_kernels.chain[x.grid(1)](
            summary, *(x.tensor(s) for s in start), starts,
            K, *(x.strides(s)[0] for s in start), N=x.N,
            HAS_START=start[0] is not None, AHEAD=AHEAD, BLOCK=x.tile.block,
            num_warps=x.tile.warps,
        )  # fmt: skip
        start = starts.unbind()
    m_end, P_end = x.new(x.B, x.N), x.new(x.B, x.N)
    kalman_kernels.forward[x.grid(K)](
        *x.inputs(), *(x.tensor(s) for s in start), *x.conditions(),
        mean, variance, m_end, P_end, saved, x.tensor(x.projection),
        *x.sizes(), mean.stride(0), *x.row_strides(), *(x.strides(s)[0] for s in start),
        *x.condition_strides(), *x.floors, HAS_START=start[0] is not None,
        HAS_VARIANCE=variance.shape[2] > 0, PREFETCH=x.prefetch, **x.constants,
    )  # fmt: skip
    return m_end, P_end


def kalman_backward(
    parameters, signals, layout, beliefs, facts, floors, outputs, given, projection=None
):
    """See `operators.kalman_operator`. The gradient of a projection stands in the signals' place;
    its inputs have none."""
    projects = projection is not None
    g_signals = signals if projects else [s.new_empty(s.shape) for s in signals]
    g_mean, g_variance, *g_end = (neighbours(g) for g in given)
    B, T, channels = outputs[0].shape
    parts = spans(B, T, channels, *conditions(layout, facts), chunk_of(projection))
    # outside of segments, one partial sum a row and span
    K = KalmanCall(parameters, signals, layout, beliefs, facts, floors, projection).cut.parts
    rows = B * K
    sums_of_rows = 3 + (len(layout) * len(projection) if projects else 0)
    partials = parameters[0].new_empty(len(parts), sums_of_rows, rows, channels)
    for (begin, end, kept), sums in zip(reversed(parts), partials, strict=True):
        own = [s[:, begin:end] for s in signals]
        x = KalmanCall(parameters, own, layout, beliefs, facts, floors, projection)
        own = [g[:, begin:end] for g in g_signals]
        named = x.signals if projects else dict(split_signals(own, layout))
        slopes = [None if g is None else g[:, begin:end] for g in (g_mean, g_variance)]
        *g_end, g_m_prior, g_P_prior = adjoint(x, outputs[2][kept], slopes, g_end, named, sums)
    totals = [x.new(x.N) for _ in parameters]  # also of what is absent: the kernel writes all three
    if projects:
        g_signals = [x.new(*projection.shape)]
    segment_kernels.total[(sums_of_rows, -(-x.N // 32))](
        partials, *totals, g_signals[0], len(parts), rows, x.N, TILE=64, BLOCK=32, num_warps=4
    )
    g_parameters = [x.new(0) if p is None else g for g, p in zip(totals, parameters, strict=True)]
    g_prior = [g_m_prior, g_P_prior]
    if not x.constants["HAS_RESET"]:
        g_prior = [x.a.new_zeros(x.B, x.N) if p is not None else p for p in x.prior]
    elif K > 1:
        g_prior = [g.view(x.B, K, x.N).sum(1) for g in g_prior]
    g_beliefs = [
        x.new(0) if g is None or b is None else g
        for g, b in zip([*g_end, *g_prior], beliefs, strict=True)
    ]
    return [*g_parameters, *g_signals, *g_beliefs]


def adjoint(x: KalmanCall, saved, slopes, g_end, named, partials):
    """Fill in the gradients of one span; returns those of its start and of the prior belief."""
    K, rows = x.cut.parts, x.B * x.cut.parts
    g_mean, g_variance = slopes
    if any(g is not None for g in g_end):
        g_end = [x.a.new_zeros(x.B, x.N) if g is None else g for g in g_end]
    g_start = [x.new(x.B, x.N) for _ in range(2)]
    g_prior = [x.new(rows, x.N) for _ in range(2)] if x.constants["HAS_RESET"] else [x.a, x.a]
    summary = x.new(4, rows, x.N) if K > 1 else x.a

    def launch(ends: Sequence[Tensor | None], summarise: bool) -> None:
        adjoint_kernels.backward[x.grid(K)](
            *x.inputs(), *x.conditions(), saved,
            x.tensor(g_mean), x.tensor(g_variance), *(x.tensor(e) for e in ends),
            partials, *(x.tensor(named.get(s)) for s in "uwrq"), *g_start, *g_prior, summary,
            x.tensor(x.projection), *x.sizes(), *x.row_strides(), *x.condition_strides(),
            *(x.strides(g)[0] for g in (g_mean, g_variance, *ends, named["w"])), *x.floors,
            gm_t=x.fixed(x.strides(g_mean)[1]), gP_t=x.fixed(x.strides(g_variance)[1]),
            g_t=x.fixed(named["w"].stride(1)),
            HAS_G_MEAN=g_mean is not None, HAS_G_VARIANCE=g_variance is not None,
            HAS_G_END=ends[0] is not None, SUMMARY=summarise, PREFETCH=x.prefetch,
            **x.constants,
        )  # fmt: skip

    if K > 1:
        launch((None, None), summarise=True)
        entering = x.new(2, rows, x.N)
        segment_kernels.chain_adjoint[x.grid(1)](
            summary, *(x.tensor(g) for g in g_end), entering,
            K, *(x.strides(g)[0] for g in g_end), N=x.N,
            HAS_G_END=g_end[0] is not None, AHEAD=AHEAD, BLOCK=x.tile.block,
            num_warps=x.tile.warps,
        )  # fmt: skip
        g_end = list(entering)
    launch(g_end, summarise=False)
    return *g_start, *g_prior


class LinearCall(Call):
    """What all kernels of one linear scan share."""

    def __init__(self, a, b, start, initial, lengths, reset) -> None:
        super().__init__(b, tuple(b.shape), linear_chunk(*b.shape))
        self.a, self.b = neighbours(a), neighbours(b)
        self.start, self.initial = neighbours(start), neighbours(initial)
        self.lengths, self.reset = neighbours(lengths), reset
        self.a_i, a_t = self.strides(self.a if a.dim() == 3 else None)
        self.constants |= {
            "A_VARIES": a.dim() == 3,
            "HAS_RESET": reset is not None,
            "HAS_LENGTHS": lengths is not None,
            "HAS_INITIAL": initial is not None,
            "N": self.fixed(self.N),
            "a_t": self.fixed(a_t),
        }

    def new(self, *shape: int) -> Tensor:
        return self.b.new_empty(shape, dtype=carry_dtype(self.b.dtype))

    def chain(self, summary: Tensor, given: Tensor | None, reverse: bool) -> Tensor:
        """What enters every segment, (B·K, N)."""
        entering = self.new(self.B * self.cut.parts, self.N)
        linear_kernels.chain[self.grid(1)](
            summary, self.tensor(given), entering, self.cut.parts, self.strides(given)[0],
            N=self.N, HAS_GIVEN=given is not None, REVERSE=reverse, AHEAD=AHEAD,
            BLOCK=self.tile.block, num_warps=self.tile.warps,
        )  # fmt: skip
        return entering


def linear_forward(a, b, start, initial, lengths, reset):
    """See `operators.linear_operator`."""
    x = LinearCall(a, b, start, initial, lengths, reset)
    K = x.cut.parts
    states, end = b.new_empty(b.shape), x.new(x.B, x.N)
    summary = x.new(2, x.B * K, x.N) if K > 1 else end

    def launch(start: Tensor | None, summarise: bool) -> None:
        linear_kernels.forward[x.grid(K)](
            x.a, x.b, *(x.tensor(s) for s in (start, x.initial, x.lengths, reset)),
            states, end, summary,
            *x.sizes(), x.a_i, *(x.strides(s)[0] for s in (x.b, start, x.initial)),
            *x.flag_strides(reset), b_t=x.fixed(x.b.stride(1)),
            HAS_START=start is not None, SUMMARY=summarise, **x.constants,
        )  # fmt: skip

    first = x.start
    if K > 1:
        launch(None, summarise=True)
        first = x.chain(summary, x.start, reverse=False)
    launch(first, summarise=False)
    return states, end


def linear_backward(a, b, start, initial, lengths, reset, states, g_states, g_end):
    """See `operators.linear_operator`."""
    x = LinearCall(a, b, start, initial, lengths, reset)
    K, rows = x.cut.parts, x.B * x.cut.parts
    g_states, g_end = neighbours(g_states), neighbours(g_end)
    varies = a.dim() == 3
    g_a = a.new_empty(a.shape) if varies else x.new(rows, x.N)
    g_b = b.new_empty(b.shape)
    g_start, g_initial = x.new(x.B, x.N), x.new(rows, x.N)
    summary = x.new(2, rows, x.N) if K > 1 else g_start

    def launch(end: Tensor | None, summarise: bool) -> None:
        linear_kernels.backward[x.grid(K)](
            x.a, *(x.tensor(s) for s in (x.start, x.initial, x.lengths, reset)), states,
            x.tensor(g_states), x.tensor(end), g_a, g_b, g_start, g_initial, summary,
            *x.sizes(), x.a_i, *(x.strides(s)[0] for s in (x.start, x.initial)),
            *x.flag_strides(reset), *(x.strides(s)[0] for s in (g_states, end)),
            gx_t=x.fixed(x.strides(g_states)[1]),
            HAS_START=x.start is not None, HAS_G_STATES=g_states is not None,
            HAS_G_END=end is not None, SUMMARY=summarise, **x.constants,
        )  # fmt: skip

    if K > 1:
        launch(None, summarise=True)
        g_end = x.chain(summary, g_end, reverse=True)
    launch(g_end, summarise=False)
    if not varies:
        g_a = g_a.sum(0)
    if initial is None:
        g_initial = x.new(0)
    elif reset is None:
        g_initial = x.new(x.B, x.N).zero_()
    elif K > 1:
        g_initial = g_initial.view(x.B, K, x.N).sum(1)
    return [g_a, g_b, x.new(0) if start is None else g_start, g_initial]
