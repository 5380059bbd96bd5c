"""Encoders made of Kalman layers or of richer blocks around them: they can show their belief."""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kalmanac._encoders.contract import (
    HistoryEncoder,
    Lengths,
    State,
    carried,
    check_step,
    positive_sizes,
    read_steps,
)
from kalmanac._encoders.kalman import PROCESS_NOISE, Q_MIN, R_MIN, Beliefs, KalmanLayer
from kalmanac._encoders.layers import NORM_EPS, RAW_STEP_SIZE, CausalConvolution, Stack
from kalmanac._ops.rms_norm import RMSNorm
from kalmanac._ops.scan.inputs import Belief


class BlockState(NamedTuple):
    """The state has the belief, (B, N) each, and the convolution's last inputs, (B, K - 1, D)."""

    mean: Tensor
    variance: Tensor
    taps: Tensor


class KalmanBlock(HistoryEncoder):
    """x, g = W norm(h_t);  y = KF(SiLU(conv(x)));  z_t = h_t + V (y · SiLU(g)).

    The inner width is D = expand · E.
    """

    def __init__(
        self,
        d_model: int,
        d_state: int,
        *,
        expand: int = 2,
        kernel: int = 4,
        input_process_noise: bool = False,
        raw_step_size: float = RAW_STEP_SIZE,
        process_noise: float = PROCESS_NOISE,
        r_min: float = R_MIN,
        q_min: float = Q_MIN,
    ) -> None:
        super().__init__()
        positive_sizes(d_model=d_model, d_state=d_state, expand=expand, kernel=kernel)
        self.d_model, self.d_state = d_model, d_state
        d_inner = expand * d_model
        self.norm = RMSNorm(d_model, eps=NORM_EPS)
        self.in_projection = nn.Linear(d_model, 2 * d_inner, bias=False)
        self.convolution = CausalConvolution(d_inner, kernel)
        self.filter = KalmanLayer(
            d_inner,
            d_state,
            input_process_noise=input_process_noise,
            raw_step_size=raw_step_size,
            process_noise=process_noise,
            r_min=r_min,
            q_min=q_min,
        )
        self.out_projection = nn.Linear(d_inner, d_model, bias=False)

    def initial_state(self, batch: int) -> BlockState:
        """Return N(0, 1) and no inputs yet."""
        before, channels = self.convolution.kernel - 1, self.filter.d_model
        taps = torch.zeros(batch, before, channels, **carried(self.out_projection.weight))
        return BlockState(*self.filter.initial_state(batch), taps)

    def forward(
        self, h: Tensor, state: State | None = None, *, lengths: Lengths = None,
        reset: Tensor | None = None, observed: Tensor | None = None,
    ) -> tuple[Tensor, BlockState]:  # fmt: skip
        """See `HistoryEncoder`; where `observed` is False, the filter predicts and no more."""
        steps = read_steps(self, h, state, lengths, reset, observed)
        mean, variance, taps = self.initial_state(h.shape[0]) if state is None else state
        x, gate = self.in_projection(self.norm(steps.h)).chunk(2, -1)
        x, taps = self.convolution(x, taps, steps.lengths, steps.reset)
        y, belief = self.filter(
            F.silu(x),
            (mean, variance),
            lengths=steps.lengths,
            reset=steps.reset,
            observed=observed,
        )
        return self._close(steps.h, y, gate), BlockState(belief[0], belief[1], taps)

    def forward_with_beliefs(
        self, h: Tensor, state: State | None, lengths: Lengths, reset: Tensor | None,
        observed: Tensor | None,
    ) -> tuple[Tensor, Beliefs]:  # fmt: skip
        """Return z and the beliefs behind it."""
        steps = read_steps(self, h, state, lengths, reset, observed)
        mean, variance, taps = self.initial_state(h.shape[0]) if state is None else state
        x, gate = self.in_projection(self.norm(steps.h)).chunk(2, -1)
        x, _ = self.convolution(x, taps, steps.lengths, steps.reset)
        y, beliefs = self.filter.forward_with_beliefs(
            F.silu(x), (mean, variance), steps.lengths, steps.reset, observed
        )
        return self._close(steps.h, y, gate), beliefs

    def step(
        self, h_t: Tensor, state: State, *, reset: Tensor | None = None,
        observed: Tensor | None = None,
    ) -> tuple[Tensor, BlockState]:  # fmt: skip
        """See `HistoryEncoder`; where `observed` is False, the filter predicts and no more."""
        check_step(self, h_t, state, reset, observed)
        mean, variance, taps = state
        x, gate = self.in_projection(self.norm(h_t)).chunk(2, -1)
        x, taps = self.convolution.step(x, taps, reset)
        y, belief = self.filter.step(F.silu(x), (mean, variance), reset=reset, observed=observed)
        return self._close(h_t, y, gate), BlockState(belief[0], belief[1], taps)

    def _close(self, h: Tensor, y: Tensor, gate: Tensor) -> Tensor:
        """h and y are zero on pads, and so is z."""
        return h + self.out_projection(y * F.silu(gate))


class KalmanEncoder(HistoryEncoder):
    """This encoder has L Kalman layers (or blocks) one after the other, and shows their beliefs.

    Args:
        layers: the layers or blocks, in order.
        norm: an RMSNorm stands behind the last one.

    Examples:
        >>> import torch
        >>> from kalmanac import KalmanEncoder, KalmanLayer
        >>> encoder = KalmanEncoder([KalmanLayer(8, 32), KalmanLayer(8, 32)], norm=True)
        >>> encoder.beliefs(torch.randn(2, 5, 8)).gain.shape  # (B, L, T, N)
        torch.Size([2, 2, 5, 32])
    """

    def __init__(
        self, layers: Sequence[KalmanLayer] | Sequence[KalmanBlock], *, norm: bool = False
    ) -> None:
        super().__init__()
        self.stack = Stack(layers, norm=norm)
        self.d_model = self.stack.d_model

    def initial_state(self, batch: int) -> State:
        """Return N(0, 1) in every channel of every layer."""
        return self.stack.initial_state(batch)

    def forward(
        self, h: Tensor, state: State | None = None, *, lengths: Lengths = None,
        reset: Tensor | None = None, observed: Tensor | None = None,
    ) -> tuple[Tensor, State]:  # fmt: skip
        """See `HistoryEncoder`; where `observed` is False, the step predicts and no more."""
        return self.stack(h, state, lengths=lengths, reset=reset, observed=observed)

    def represent_embedded(self, x: Tensor, embedder: nn.Linear, **known: Any) -> Tensor:
        """See `HistoryEncoder`; a subclass with a `forward` of its own is run by that."""
        if type(self).forward is not KalmanEncoder.forward:
            return super().represent_embedded(x, embedder, **known)
        first, *others = self.stack.parts()
        z = first.represent_embedded(x, embedder, **known)
        for layer in others:
            z = layer.represent(z, **known)
        return self.stack.norm(z)

    def step(
        self, h_t: Tensor, state: State, *, reset: Tensor | None = None,
        observed: Tensor | None = None,
    ) -> tuple[Tensor, State]:  # fmt: skip
        """See `HistoryEncoder`; where `observed` is False, the step predicts and no more."""
        return self.stack.step(h_t, state, reset=reset, observed=observed)

    def beliefs(
        self, h: Tensor, lengths: Lengths = None, *, state: State | None = None,
        reset: Tensor | None = None, observed: Tensor | None = None,
    ) -> Beliefs:  # fmt: skip
        """Return prior, posterior and gain of every layer and step, (B, L, T, N) each."""
        z, per_layer = h, []
        for layer, own in zip(self.stack.parts(), self.stack.split(state), strict=True):
            kalman = cast(KalmanLayer | KalmanBlock, layer)
            z, beliefs = kalman.forward_with_beliefs(z, own, lengths, reset, observed)
            per_layer.append(beliefs)

        def stacked(kind: str, field: str) -> Tensor:
            return torch.stack([getattr(getattr(x, kind), field) for x in per_layer], 1)

        return Beliefs(
            prior=Belief(stacked("prior", "mean"), stacked("prior", "variance")),
            posterior=Belief(stacked("posterior", "mean"), stacked("posterior", "variance")),
            gain=torch.stack([x.gain for x in per_layer], 1),
        )


def vssm_kf(
    d_model: int = 16,
    *,
    d_state: int = 128,
    layers: int = 1,
    norm: bool = False,
    input_signal: bool = True,
    input_process_noise: bool = False,
    variance_feature: bool = False,
    raw_step_size: float = RAW_STEP_SIZE,
    process_noise: float = PROCESS_NOISE,
    r_min: float = R_MIN,
    q_min: float = Q_MIN,
) -> KalmanEncoder:
    """Make the row `vssm+kf`; with `input_signal=False`, the row `vssm+kf-u`."""
    positive_sizes(layers=layers)
    return KalmanEncoder(
        [
            KalmanLayer(
                d_model,
                d_state,
                input_signal=input_signal,
                input_process_noise=input_process_noise,
                variance_feature=variance_feature,
                raw_step_size=raw_step_size,
                process_noise=process_noise,
                r_min=r_min,
                q_min=q_min,
            )
            for _ in range(layers)
        ],
        norm=norm,
    )


def kf_block(
    d_model: int = 16,
    *,
    d_state: int = 128,
    layers: int = 1,
    norm: bool = False,
    expand: int = 2,
    kernel: int = 4,
    input_process_noise: bool = False,
    raw_step_size: float = RAW_STEP_SIZE,
    process_noise: float = PROCESS_NOISE,
    r_min: float = R_MIN,
    q_min: float = Q_MIN,
) -> KalmanEncoder:
    """Make the row `kf-block`."""
    positive_sizes(layers=layers)
    return KalmanEncoder(
        [
            KalmanBlock(
                d_model,
                d_state,
                expand=expand,
                kernel=kernel,
                input_process_noise=input_process_noise,
                raw_step_size=raw_step_size,
                process_noise=process_noise,
                r_min=r_min,
                q_min=q_min,
            )
            for _ in range(layers)
        ],
        norm=norm,
    )
