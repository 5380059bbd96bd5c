"""The Kalman-filter layer (paper, section 4.2, Fig. 2): projections, a filter, a projection."""

from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kalmanac._encoders.contract import (
    HistoryEncoder,
    Lengths,
    State,
    Steps,
    carried,
    check_step,
    positive_sizes,
    read_steps,
)
from kalmanac._encoders.layers import (
    RAW_STEP_SIZE,
    Linear,
    Projection,
    ZeroOrderHold,
    inverse_softplus,
)
from kalmanac._ops.embedded import embedded_scan, embeds
from kalmanac._ops.scan.inputs import Belief, Filtering
from kalmanac._ops.scan.kalman import kalman_scan_packed
from kalmanac._ops.scan.layer import has_kalman_layer, kalman_layer

R_MIN = 1e-3  # floor of the reading noise's variance (a choice; the paper names none)
Q_MIN = 1e-4  # floor of the process noise's variance (a choice)
PROCESS_NOISE = 1.0  # Σᵖ at the start (paper, Table 1)


class Beliefs(NamedTuple):
    """Beliefs of a Kalman layer at every step, (B, T, N) each; (B, L, T, N) for an encoder.

    `prior` is the belief before the reading of step t, `posterior` the one after it, `gain` how
    much of the reading was taken over: 0 is nothing (also on pads and missing readings), 1 is all.

    Examples:
        >>> import torch
        >>> from kalmanac import KalmanLayer
        >>> beliefs = KalmanLayer(d_model=8, d_state=32).beliefs(torch.randn(2, 5, 8))
        >>> beliefs.gain.shape
        torch.Size([2, 5, 32])
        >>> bool((beliefs.posterior.variance < beliefs.prior.variance).all())  # a reading tells
        True
    """

    prior: Belief
    posterior: Belief
    gain: Tensor


class KalmanLayer(HistoryEncoder):
    """u, w, ρ = W h_t;  predict and update with r = softplus(ρ) + r_min;  z_t = V x⁺_t.

    Used like nn.GRU(batch_first=True): `z, state = layer(h)`, and `layer(h, state)` goes on from
    there. The state is the `Belief` after the last step, N(0, 1) before the first.

    Args:
        d_model: features of h and z, E.
        d_state: channels of the filter, N.
        input_signal: False leaves out u and the input gain (the paper's vSSM+KF-u).
        input_process_noise: the process noise is projected from h_t, softplus(·) + q_min, in place
            of one learnable number per channel (paper, section 4.2, design decisions).
        variance_feature: z_t is projected from the posterior variance too (same place).
        raw_step_size: Δ̃ at the start; the step size is its softplus.
        process_noise: Σᵖ at the start.
        r_min: floor of the variance of the readings' noise.
        q_min: floor of the variance of the process noise.

    Examples:
        >>> import torch
        >>> from kalmanac import KalmanLayer
        >>> layer = KalmanLayer(d_model=8, d_state=32)
        >>> z, state = layer(torch.randn(2, 5, 8))  # (B, T, E)
        >>> z, state = layer(torch.randn(2, 5, 8), state)  # goes on from there
        >>> z.shape, state.mean.shape, state.variance.shape
        (torch.Size([2, 5, 8]), torch.Size([2, 32]), torch.Size([2, 32]))
    """

    def __init__(
        self,
        d_model: int,
        d_state: int,
        *,
        input_signal: bool = True,
        input_process_noise: bool = False,
        variance_feature: bool = False,
        raw_step_size: float = RAW_STEP_SIZE,
        process_noise: float = PROCESS_NOISE,
        r_min: float = R_MIN,
        q_min: float = Q_MIN,
    ) -> None:
        super().__init__()
        positive_sizes(d_model=d_model, d_state=d_state)
        check_noises(process_noise, r_min, q_min)
        self.d_model, self.d_state = d_model, d_state
        self.layout = "u" * input_signal + "wr" + "q" * input_process_noise
        self.variance_feature = variance_feature
        self.r_min, self.q_min = r_min, q_min
        self.in_projection = Projection(d_model, len(self.layout) * d_state)
        self.dynamics = ZeroOrderHold(
            d_state, input_signal=input_signal, raw_step_size=raw_step_size
        )
        raw = inverse_softplus(process_noise - q_min)
        self.raw_process_noise = None
        if input_process_noise:  # the bias alone gives the initial value
            nn.init.constant_(self.in_projection.bias[-d_state:], raw)
        else:
            self.raw_process_noise = nn.Parameter(torch.full((d_state,), raw))
        self.out_projection = Linear(d_state * (1 + variance_feature), d_model)

    def initial_state(self, batch: int) -> Belief:
        """Return N(0, 1) in every channel."""
        zeros = torch.zeros(batch, self.d_state, **carried(self.out_projection.weight))
        return Belief(zeros, torch.ones_like(zeros))

    def forward(
        self, h: Tensor, state: State | None = None, *, lengths: Lengths = None,
        reset: Tensor | None = None, observed: Tensor | None = None,
    ) -> tuple[Tensor, Belief]:  # fmt: skip
        """See `HistoryEncoder`; where `observed` is False, the step predicts and no more."""
        if not has_kalman_layer(h):
            return self._filter(h, state, lengths, reset, observed, details=False)[:2]
        steps = read_steps(self, h, state, lengths, reset, observed)
        a, b = self.dynamics()
        z, last = kalman_layer(
            a,
            steps.h,
            (self.in_projection.weight, self.in_projection.bias),
            (self.out_projection.weight, self.out_projection.bias),
            self._raw_process_noise(),
            **self._conditions(steps, state, b),
        )
        return steps.zero_pads(z), last

    def represent_embedded(self, x: Tensor, embedder: nn.Linear, **known: Any) -> Tensor:
        """See `HistoryEncoder`; a subclass with a `forward` of its own is run by that."""
        into, raw = self.in_projection, self.raw_process_noise
        flagged = known.get("reset") is not None or known.get("observed") is not None
        plain = flagged or self.variance_feature or type(self).forward is not KalmanLayer.forward
        if plain or raw is None or not embeds(x, into.weight, self.d_state):
            return super().represent_embedded(x, embedder, **known)
        layers = (embedder.weight, embedder.bias), (into.weight, into.bias)
        dynamics, floors = self.dynamics, (self.r_min, self.q_min)
        return self.out_projection(embedded_scan(dynamics.system(), raw, x, *layers, floors))

    def beliefs(
        self, h: Tensor, lengths: Lengths = None, *, state: State | None = None,
        reset: Tensor | None = None, observed: Tensor | None = None,
    ) -> Beliefs:  # fmt: skip
        """Return prior, posterior and gain of every step, (B, T, N) each."""
        return self.forward_with_beliefs(h, state, lengths, reset, observed)[1]

    def forward_with_beliefs(
        self, h: Tensor, state: State | None, lengths: Lengths, reset: Tensor | None,
        observed: Tensor | None,
    ) -> tuple[Tensor, Beliefs]:  # fmt: skip
        """Return z and the beliefs behind it."""
        z, _, posterior, filtering = self._filter(h, state, lengths, reset, observed, details=True)
        inside = cast(Filtering, filtering)
        return z, Beliefs(inside.prior, posterior, inside.gain)

    def step(
        self, h_t: Tensor, state: State, *, reset: Tensor | None = None,
        observed: Tensor | None = None,
    ) -> tuple[Tensor, Belief]:  # fmt: skip
        """See `HistoryEncoder`; where `observed` is False, the step predicts and no more."""
        check_step(self, h_t, state, reset, observed)
        m, P = state
        if reset is not None:
            m = m.masked_fill(reset[:, None], 0)
            P = P.masked_fill(reset[:, None], 1)
        signals = self.in_projection(h_t)
        parts = signals.to(m.dtype).chunk(len(self.layout), -1)
        signal = dict(zip(self.layout, parts, strict=True))
        a, b = self.dynamics()
        raw = self._raw_process_noise()
        q = F.softplus(signal["q"] if raw is None else raw) + self.q_min

        m = a * m if b is None else a * m + b * signal["u"]
        p = a * a * P + q
        r = F.softplus(signal["r"]) + self.r_min
        s = p + r
        k, g = p / s, r / s  # g is 1 - k without the subtraction
        if observed is not None:
            k = k.masked_fill(~observed[:, None], 0)
            g = g.masked_fill(~observed[:, None], 1)
        belief = Belief(g * m + k * signal["w"], g * p)
        return self._read_out(Belief(*(x.to(signals.dtype) for x in belief))), belief

    def _filter(
        self, h: Tensor, state: State | None, lengths: Lengths, reset: Tensor | None,
        observed: Tensor | None, *, details: bool,
    ) -> tuple[Tensor, Belief, Belief, Filtering | None]:  # fmt: skip
        """Return z, the last belief, all posteriors and, with `details`, what led to them."""
        steps = read_steps(self, h, state, lengths, reset, observed)
        signals, a, b = self.dynamics.beside(self.in_projection, steps.h)
        scanned = kalman_scan_packed(
            a,
            signals,
            self._raw_process_noise(),
            **self._conditions(steps, state, b),
            variances=self.variance_feature,
            details=details,
        )
        posterior, last = scanned[:2]
        filtering = scanned[2] if len(scanned) == 3 else None
        return steps.zero_pads(self._read_out(posterior)), last, posterior, filtering

    def _conditions(self, steps: Steps, state: State | None, b: Tensor | None) -> dict[str, Any]:
        """Return the scan's arguments beside parameters and signals."""
        return {
            "layout": self.layout,
            "b": b,
            "state": None if state is None else Belief(*state),
            "lengths": steps.lengths,
            "reset": steps.reset,
            "observed": steps.observed,
            "r_floor": self.r_min,
            "q_floor": self.q_min,
        }

    def _raw_process_noise(self) -> Tensor | None:
        if self.raw_process_noise is None:
            return None
        return self.raw_process_noise.to(carried(self.raw_process_noise)["dtype"])

    def _read_out(self, posterior: Belief) -> Tensor:
        features = torch.cat(posterior, -1) if self.variance_feature else posterior.mean
        return self.out_projection(features)


def check_noises(process_noise: float, r_min: float, q_min: float) -> None:
    """Check that both floors are positive and the process noise starts above its own."""
    if not r_min > 0:
        raise ValueError(f"r_min: got {r_min!r}, expected a number above 0")
    if not 0 < q_min < process_noise:
        raise ValueError(
            f"q_min: got {q_min!r}, expected a number between 0 and process_noise = {process_noise}"
        )
