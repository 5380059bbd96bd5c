"""Encoders made of Kalman layers or blocks: they can show their belief."""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from kalmanac.encoders.discretisation import RAW_STEP_SIZE
from kalmanac.encoders.encoder import HistoryEncoder, Lengths, State, positive_sizes
from kalmanac.encoders.kalman import PROCESS_NOISE, Q_MIN, R_MIN, Beliefs, KalmanLayer
from kalmanac.encoders.kalman_block import KalmanBlock
from kalmanac.encoders.stack import Stack
from kalmanac.ops import Belief


class KalmanEncoder(HistoryEncoder):
    """L Kalman layers (or blocks) one after the other, and what they believe.

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
        """N(0, 1) in every channel of every layer."""
        return self.stack.initial_state(batch)

    def forward(
        self, h: Tensor, state: State | None = None, *, lengths: Lengths = None,
        reset: Tensor | None = None, observed: Tensor | None = None,
    ) -> tuple[Tensor, State]:  # fmt: skip
        """See `HistoryEncoder`; where `observed` is False, the step predicts and no more."""
        return self.stack(h, state, lengths=lengths, reset=reset, observed=observed)

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
        """Prior, posterior and gain of every layer and step, (B, L, T, N) each."""
        z, found = h, []
        for layer, own in zip(self.stack.parts(), self.stack.split(state), strict=True):
            kalman = cast(KalmanLayer | KalmanBlock, layer)
            z, seen = kalman.forward_with_beliefs(z, own, lengths, reset, observed)
            found.append(seen)

        def stacked(kind: str, field: str) -> Tensor:
            return torch.stack([getattr(getattr(x, kind), field) for x in found], 1)

        return Beliefs(
            prior=Belief(stacked("prior", "mean"), stacked("prior", "variance")),
            posterior=Belief(stacked("posterior", "mean"), stacked("posterior", "variance")),
            gain=torch.stack([x.gain for x in found], 1),
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
    """The row `vssm+kf`; with `input_signal=False`, the row `vssm+kf-u`."""
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
    """The row `kf-block`."""
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
