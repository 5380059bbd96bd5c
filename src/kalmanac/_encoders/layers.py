"""Layers that encoders share: projections, zero-order hold, convolutions, dropout, stacks."""

import math
from collections.abc import Sequence
from typing import cast

import torch
from torch import Generator, Tensor, nn

from kalmanac._encoders.contract import HistoryEncoder, Lengths, State
from kalmanac._ops.dense import dense
from kalmanac._ops.hold import System, holds_beside, project_and_hold, zero_order_hold
from kalmanac._ops.rms_norm import RMSNorm
from kalmanac._ops.scan.arguments import carry_dtype


class Linear(nn.Linear):
    """y = W x + b: the same parameters, names and initial values as `nn.Linear`."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (…, inputs) to (…, outputs)."""
        return dense(x, self.weight, self.bias)


class Projection(nn.Linear):
    """The same with many outputs for its inputs, which a CPU takes in another form."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (…, inputs) to (…, outputs)."""
        return dense(x, self.weight, self.bias, bias_as_weight=True)


RAW_STEP_SIZE = -7.0  # Δ̃ at the start (paper, Table 1)


class ZeroOrderHold(nn.Module):
    """The real diagonal system of vSSM and of the Kalman layers.

    At the start Ã_n = -(n + 1) (S4D-Real, the HiPPO diagonal) and B̃ = 1. Only the logarithm of |Ã|
    is stored, so that the sign cannot flip. With Δ̃ = -7, a runs from 0.9991 to 0.890 for N = 128.
    """

    def __init__(
        self, d_state: int, *, input_signal: bool = True, raw_step_size: float = RAW_STEP_SIZE
    ) -> None:
        super().__init__()
        self.log_rate = nn.Parameter(torch.log(torch.arange(1.0, d_state + 1)))  # log |Ã|
        self.input_gain = nn.Parameter(torch.ones(d_state)) if input_signal else None  # B̃
        self.raw_step_size = nn.Parameter(torch.tensor(float(raw_step_size)))  # Δ̃

    def forward(self) -> tuple[Tensor, Tensor | None]:
        """Return the discrete a (N,), b (N,), in float32 at least; b is None without an input."""
        return zero_order_hold(*self.system())

    def beside(self, projection: nn.Linear, h: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return projection(h), a and b."""
        system, layer = self.system(), (projection.weight, projection.bias)
        if holds_beside(h, *layer, system[0]):
            return project_and_hold(system, h, *layer)
        return projection(h), *zero_order_hold(*system)

    def system(self) -> System:
        """Return log |Ã|, B̃ or None, and Δ̃, in float32 at least."""
        carry = carry_dtype(self.log_rate.dtype)
        gain = None if self.input_gain is None else self.input_gain.to(carry)
        return self.log_rate.to(carry), gain, self.raw_step_size.to(carry)


def inverse_softplus(y: float) -> float:
    """Return x with softplus(x) = y, for y > 0."""
    return y + math.log(-math.expm1(-y))


class CausalConvolution(nn.Module):
    """y_t = bias + Σ_j weight_j x_{t-K+1+j}, per channel, zeros before the episode's first step.

    The taps are the last K - 1 inputs, (B, K - 1, D). Parameters start as those of nn.Conv1d.
    """

    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(kernel)
        self.kernel = kernel
        self.weight = nn.Parameter(torch.empty(kernel, channels).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(channels).uniform_(-bound, bound))

    def forward(
        self, x: Tensor, taps: Tensor, lengths: Tensor | None, reset: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Map x (B, T, D) → y (B, T, D) and the taps after each row's own length.

        `reset` must be False on pads.
        """
        steps, before = x.shape[1], self.kernel - 1
        inputs = torch.cat([taps.to(x.dtype), x], 1)  # inputs[:, before + t] is x_t
        episode = None if reset is None else self._episodes(reset)
        y = self.bias.expand_as(x)
        for j in range(self.kernel):
            shifted = inputs[:, j : j + steps]
            if episode is not None and j < before:
                earlier = episode[:, j : j + steps] != episode[:, before:]
                shifted = shifted.masked_fill(earlier[..., None], 0)
            y = y + self.weight[j] * shifted

        if lengths is None:
            last = torch.arange(steps, steps + before, device=x.device).expand(x.shape[0], -1)
        else:
            last = lengths.long()[:, None] + torch.arange(before, device=x.device)
        new_taps = inputs.gather(1, last[..., None].expand(-1, -1, x.shape[2]))
        if episode is not None:
            earlier = episode.gather(1, last) != episode[:, -1:]
            new_taps = new_taps.masked_fill(earlier[..., None], 0)
        return y, new_taps.to(taps.dtype)

    def step(self, x_t: Tensor, taps: Tensor, reset: Tensor | None) -> tuple[Tensor, Tensor]:
        """Map x_t (B, D) → y_t (B, D) and the taps after it."""
        if reset is not None:
            taps = taps.masked_fill(reset[:, None, None], 0)
        inputs = torch.cat([taps, x_t[:, None].to(taps.dtype)], 1)
        y_t = (self.weight * inputs.to(x_t.dtype)).sum(1) + self.bias
        return y_t, inputs[:, 1:]

    def _episodes(self, reset: Tensor) -> Tensor:
        """Count the resets so far, at every tap and step: equal within an episode."""
        numbers = reset.long().cumsum(1)
        return torch.cat([numbers.new_zeros(len(reset), self.kernel - 1), numbers], 1)


class Dropout(nn.Module):
    """y = x · keep / (1 - p) with keep ~ Bernoulli(1 - p), in training; y = x otherwise.

    `generator` draws, and lies on the device of x; None is torch's global one, as in nn.Dropout.
    An encoder that drops with this class instead of nn.Dropout draws from its agent's own stream:
    the agent's seed decides the results.

    Examples:
        >>> import torch
        >>> from kalmanac import Dropout
        >>> dropout = Dropout(0.5)
        >>> dropout.generator = torch.Generator().manual_seed(0)
        >>> sorted(set(dropout(torch.ones(100)).tolist()))
        [0.0, 2.0]
        >>> dropout.eval()(torch.ones(2))
        tensor([1., 1.])
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"dropout: got {p}, expected a probability from 0 to below 1")
        self.p = p
        self.generator: Generator | None = None

    @property
    def works(self) -> bool:
        """Return whether anything is dropped now."""
        return self.training and self.p > 0

    def forward(self, x: Tensor) -> Tensor:
        """Drop numbers of x, which has any shape."""
        if not self.works:
            return x
        keep = torch.empty_like(x).bernoulli_(1 - self.p, generator=self.generator)
        return x * (keep / (1 - self.p))


def draw_dropout_from(generator: Generator, module: nn.Module) -> None:
    """Let all `Dropout` in `module` draw from `generator` from now on."""
    for part in module.modules():
        if isinstance(part, Dropout):
            part.generator = generator


NORM_EPS = 1e-5


class Stack(HistoryEncoder):
    """A stack feeds each layer's z to the next one as its h.

    The state has the fields of the layers' states, stacked along a layer axis after the batch:
    (B, L, …).
    """

    def __init__(self, layers: Sequence[HistoryEncoder], *, norm: bool = False) -> None:
        super().__init__()
        if not layers:
            raise ValueError("layers: got none, expected at least one layer")
        self.d_model = layers[0].d_model
        self.layers = nn.ModuleList(layers)
        self.norm = output_norm(self.d_model, norm)

    def initial_state(self, batch: int) -> State:
        """Return the layers' initial states, stacked."""
        return stack_states([layer.initial_state(batch) for layer in self.parts()])

    def forward(
        self, h: Tensor, state: State | None = None, *, lengths: Lengths = None,
        reset: Tensor | None = None, observed: Tensor | None = None,
    ) -> tuple[Tensor, State]:  # fmt: skip
        """See `HistoryEncoder`."""
        z, states = h, []
        for layer, own in zip(self.parts(), self.split(state), strict=True):
            z, after = layer(z, own, lengths=lengths, reset=reset, observed=observed)
            states.append(after)
        return self.norm(z), stack_states(states)

    def step(
        self, h_t: Tensor, state: State, *, reset: Tensor | None = None,
        observed: Tensor | None = None,
    ) -> tuple[Tensor, State]:  # fmt: skip
        """See `HistoryEncoder`."""
        z, states = h_t, []
        for layer, own in zip(self.parts(), self.split(state), strict=True):
            z, after = layer.step(z, cast(State, own), reset=reset, observed=observed)
            states.append(after)
        return self.norm(z), stack_states(states)

    def parts(self) -> list[HistoryEncoder]:
        """Return the layers, with their type."""
        return [cast(HistoryEncoder, layer) for layer in self.layers]

    def split(self, state: State | None) -> list[State | None]:
        """Return each layer's own state."""
        if state is None:
            return [None] * len(self.layers)
        if not isinstance(state, tuple) or not all(isinstance(x, Tensor) for x in state):
            raise TypeError(f"state: got {type(state).__name__}, expected a named tuple of tensors")
        if any(x.dim() < 2 or x.shape[1] != len(self.layers) for x in state):
            shapes = [tuple(x.shape) for x in state]
            raise ValueError(f"state: got {shapes}, expected (B, L = {len(self.layers)}, …)")
        return [tuple(x[:, i] for x in state) for i in range(len(self.layers))]


def stack_states(states: Sequence[State]) -> State:
    """Stack named tuples of (B, …), one per layer, to one of (B, L, …)."""
    if len(states) == 1:  # no copy
        return type(states[0])(*(x.unsqueeze(1) for x in states[0]))
    fields = (torch.stack(layers, 1) for layers in zip(*states, strict=True))
    return type(states[0])(*fields)


def output_norm(d_model: int, norm: bool) -> nn.Module:
    """Make an RMSNorm with one learnable scale per feature, or nothing. Zeros (pads) stay zeros."""
    return RMSNorm(d_model, eps=NORM_EPS) if norm else nn.Identity()
