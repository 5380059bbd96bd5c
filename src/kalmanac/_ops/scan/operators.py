"""Fused scans as PyTorch operators: schema, fake kernels and autograd, once for all fused backends.

A fused backend hands over plain functions; `kalman_operator` and `linear_operator` register them as
`kalmanac::kalman_NAME` and so on, so that torch.compile and torch.export pass through. Registration
needs no compiler: kernels load on first use.

The time-varying inputs of the Kalman scan travel as a list with a layout: "uwr" with three tensors
(B, T, N), or with one packed (B, T, 3N), whose gradient then is one tensor too.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.library import custom_op

from kalmanac._ops.dispatch import watched
from kalmanac._ops.scan.arguments import carry_dtype
from kalmanac._ops.scan.inputs import Belief, KalmanInputs, LinearInputs


class Kernels(Protocol):
    """A fused backend's module, with what `kalman_operator` and `linear_operator` describe."""

    kalman_forward: Callable[..., Any]
    kalman_backward: Callable[..., Any]
    linear_forward: Callable[..., Any]
    linear_backward: Callable[..., Any]


def split_signals(signals: Sequence[Tensor], layout: str) -> dict[str, Tensor]:
    """Return the signals by name ("u", "w", "r", "q"), as views where they are packed."""
    parts = signals if len(signals) == len(layout) else signals[0].chunk(len(layout), -1)
    return dict(zip(layout, parts, strict=True))


def kalman_operator(
    name: str, kernels: Callable[[], Kernels], saved_shape: Callable[..., Sequence[int]]
) -> Callable[[KalmanInputs], tuple[Belief, Belief]]:
    """Register a fused Kalman scan and return it as a backend's `kalman`.

    kalman_forward(parameters, signals, layout, beliefs, facts, floors, variances) → mean, variance,
    m, P, saved; without `variances`, variance may be (B, T, 0)
    kalman_backward(the first six, (mean, variance, saved), g_outputs) → gradients of parameters,
    signals and beliefs, in the order and shape of the inputs, an empty tensor for None

    parameters (a, b?, q?); beliefs (m?, P?) of start and of prior; facts (lengths?, reset?,
    observed?); floors (r?, q?); g_outputs: the gradients of mean, variance, m, P, None where
    nothing depends on them. `saved` is what the backward needs beside the outputs; its shape is
    `saved_shape(B, T, N, padded, flagged)`: are there lengths; are there resets, missing readings
    or a time-varying process noise.
    """

    def plain(
        a: Tensor, b: Tensor | None, q: Tensor | None, signals: Sequence[Tensor], layout: str,
        m_start: Tensor | None, P_start: Tensor | None, m_prior: Tensor | None,
        P_prior: Tensor | None, lengths: Tensor | None, reset: Tensor | None,
        observed: Tensor | None, r_floor: float | None, q_floor: float | None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
        return kernels().kalman_forward(
            (a, b, q), signals, layout, (m_start, P_start, m_prior, P_prior),
            (lengths, reset, observed), (r_floor, q_floor),
        )  # fmt: skip

    def plain_adjoint(
        a: Tensor, b: Tensor | None, q: Tensor | None, signals: Sequence[Tensor], layout: str,
        m_start: Tensor | None, P_start: Tensor | None, m_prior: Tensor | None,
        P_prior: Tensor | None, lengths: Tensor | None, reset: Tensor | None,
        observed: Tensor | None, r_floor: float | None, q_floor: float | None,
        mean: Tensor, variance: Tensor, saved: Tensor,
        g_mean: Tensor | None, g_variance: Tensor | None, g_m: Tensor | None, g_P: Tensor | None,
    ) -> list[Tensor]:  # fmt: skip
        return kernels().kalman_backward(
            (a, b, q), signals, layout, (m_start, P_start, m_prior, P_prior),
            (lengths, reset, observed), (r_floor, q_floor),
            (mean, variance, saved), (g_mean, g_variance, g_m, g_P),
        )  # fmt: skip

    scan = custom_op(f"kalmanac::kalman_{name}", plain, mutates_args=())
    adjoint = custom_op(f"kalmanac::kalman_{name}_backward", plain_adjoint, mutates_args=())

    @scan.register_fake
    def _(a, b, q, signals, layout, m, P, mp, Pp, lengths, reset, observed, *rest):
        w = split_signals(signals, layout)["w"]
        outputs = [w.new_empty(w.shape) for _ in range(2)]
        ends = [a.new_empty(w.shape[0], w.shape[2]) for _ in range(2)]
        flagged = reset is not None or observed is not None or q is None
        return *outputs, *ends, a.new_empty(saved_shape(*w.shape, lengths is not None, flagged))

    @adjoint.register_fake
    def _(a, b, q, signals, layout, *rest):
        inputs = (a, b, q, *signals, *rest[:4])
        return [a.new_empty(0) if x is None else x.new_empty(x.shape) for x in inputs]

    def remember(ctx, inputs, output):
        a, b, q, signals, layout, *middle, r_floor, q_floor = inputs
        mean, variance, _, _, saved = output
        ctx.save_for_backward(a, b, q, *signals, *middle, mean, variance, saved)
        ctx.count, ctx.layout, ctx.floors = len(signals), layout, (r_floor, q_floor)
        ctx.set_materialize_grads(False)

    def gradients(ctx, *g_outputs, by=adjoint):
        a, b, q, *rest = ctx.saved_tensors
        signals, middle, outputs = rest[: ctx.count], rest[ctx.count : -3], rest[-3:]
        g_inputs = by(a, b, q, signals, ctx.layout, *middle, *ctx.floors, *outputs, *g_outputs[:4])
        inputs = (a, b, q, *signals, *middle[:4])
        g_inputs = [None if x is None else g for g, x in zip(g_inputs, inputs, strict=True)]
        beliefs = g_inputs[3 + ctx.count :]
        return *g_inputs[:3], g_inputs[3 : 3 + ctx.count], None, *beliefs, *[None] * 5

    scan.register_autograd(gradients, setup_context=remember)

    class Scan(torch.autograd.Function):
        """The operator without PyTorch's dispatcher, which takes longer than a short scan."""

        @staticmethod
        def forward(ctx, variances, layout, count, *flat):
            parameters, signals, rest = flat[:3], flat[3 : 3 + count], flat[3 + count :]
            output = kernels().kalman_forward(
                parameters, signals, layout, rest[:4], rest[4:7], rest[7:], variances
            )
            remember(ctx, (*parameters, signals, layout, *rest), output)
            ctx.mark_non_differentiable(output[-1])
            return output

        @staticmethod
        @once_differentiable
        def backward(ctx, *g_outputs):
            a, b, q, signals, _, *beliefs_and_facts = gradients(ctx, *g_outputs, by=plain_adjoint)
            return None, None, None, a, b, q, *signals, *beliefs_and_facts

    def kalman(x: KalmanInputs) -> tuple[Belief, Belief]:
        signals, layout = x.signals()
        parameters = (x.a, x.b, None if "q" in layout else x.q)
        rest = (
            *(x.start or (None, None)), *(x.prior or (None, None)), x.lengths,
            x.reset, x.observed, x.r_floor, x.q_floor,
        )  # fmt: skip
        if watched():
            mean, variance, m, P, _ = scan(*parameters, signals, layout, *rest)
        else:
            flat = (*parameters, *signals, *rest)
            mean, variance, m, P, _ = Scan.apply(x.variances, layout, len(signals), *flat)
        return Belief(mean, variance), Belief(m, P)

    return kalman


def linear_operator(
    name: str, kernels: Callable[[], Kernels]
) -> Callable[[LinearInputs], tuple[Tensor, Tensor]]:
    """Register a fused linear scan and return it as a backend's `linear`.

    linear_forward(a, b, start?, initial?, lengths?, reset?) → states, end
    linear_backward(the same six, states, g_states?, g_end?) → gradients of a, b, start, initial
    """

    @custom_op(f"kalmanac::linear_{name}", mutates_args=())
    def scan(
        a: Tensor, b: Tensor, start: Tensor | None, initial: Tensor | None,
        lengths: Tensor | None, reset: Tensor | None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        return kernels().linear_forward(a, b, start, initial, lengths, reset)

    @custom_op(f"kalmanac::linear_{name}_backward", mutates_args=())
    def adjoint(
        a: Tensor, b: Tensor, start: Tensor | None, initial: Tensor | None,
        lengths: Tensor | None, reset: Tensor | None,
        states: Tensor, g_states: Tensor | None, g_end: Tensor | None,
    ) -> list[Tensor]:  # fmt: skip
        return kernels().linear_backward(
            a, b, start, initial, lengths, reset, states, g_states, g_end
        )

    @scan.register_fake
    def _(a, b, *rest):
        end = b.new_empty(b.shape[0], b.shape[2], dtype=carry_dtype(b.dtype))
        return b.new_empty(b.shape), end

    @adjoint.register_fake
    def _(a, b, start, initial, *rest):
        inputs = (a, b, start, initial)
        return [b.new_empty(0) if x is None else x.new_empty(x.shape) for x in inputs]

    def remember(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output[0])
        ctx.set_materialize_grads(False)

    def gradients(ctx, *g_outputs):
        g_inputs = adjoint(*ctx.saved_tensors, *g_outputs)
        inputs = ctx.saved_tensors[:4]
        g_inputs = [None if x is None else g for g, x in zip(g_inputs, inputs, strict=True)]
        return (*g_inputs, None, None)

    scan.register_autograd(gradients, setup_context=remember)

    def linear(x: LinearInputs) -> tuple[Tensor, Tensor]:
        return scan(x.a, x.b, x.start, x.initial, x.lengths, x.reset)

    return linear
