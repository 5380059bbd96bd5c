"""Distributions of actions: what an actor's numbers mean, continuous and discrete.

The losses ask for the soft value V = E[min Q(a) - α log π(a)]: a Gaussian answers by one
reparameterized sample, a categorical by an exact sum over its logits (`ops.sac_losses`).
"""

from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from kalmanac._ops.data_losses import EDGE
from kalmanac._ops.squashed_gaussian import Draw, draw, log_density, split

# A forbidden action's logit: exp gives 0, and unlike with -inf, 0 · log π(a) is 0 too.
FORBIDDEN = -1e30
BLUR = 0.1  # the spread before the squashing of actions that are to be copied


class ActionDistribution(ABC):
    """A distribution over actions, given by `outputs` numbers per step."""

    outputs: int

    @abstractmethod
    def sample(self, parameters: Tensor, generator: Generator, noise: Tensor | None) -> Tensor:
        """An action each, float (…, A) in [-1, 1], or int64 (…), of this noise (…, A) if given."""

    @abstractmethod
    def mode(self, parameters: Tensor) -> Tensor:
        """The action to take without exploring, in the form of `sample`."""

    @abstractmethod
    def cloning_loss(self, parameters: Tensor, action: Tensor) -> Tensor:
        """How far the policy is from having taken these actions (…, A), one-hot if discrete: (…)"""

    @abstractmethod
    def as_input(self, action: Tensor) -> Tensor:
        """The action as networks read it: float (…, A), one-hot if discrete."""

    @abstractmethod
    def named(self, parameters: Tensor) -> dict[str, Tensor]:
        """The parameters by what they are, (…, A) each."""

    @abstractmethod
    def allowing(self, parameters: Tensor, mask: Tensor) -> Tensor:
        """Parameters of the same policy among the actions that `mask` (…, A) allows."""


class SquashedGaussian(ActionDistribution):
    """a = tanh(u), u ~ N(mean, std²) in each of A dimensions (Haarnoja et al., 2018, appendix C).

    The parameters are the means, then the logarithms of the standard deviations, clamped.
    """

    def __init__(self, actions: int, log_std_range: tuple[float, float] = (-20.0, 2.0)) -> None:
        self.outputs = 2 * actions
        self.log_std_range = log_std_range

    def sample(
        self, parameters: Tensor, generator: Generator, noise: Tensor | None = None
    ) -> Tensor:
        """A reparameterized draw."""
        mean, log_std = split(parameters, self.log_std_range)
        noise = _normal(mean, generator) if noise is None else noise
        return torch.tanh(mean + log_std.exp() * noise)

    def mode(self, parameters: Tensor) -> Tensor:
        """The squashed mean."""
        return torch.tanh(split(parameters, self.log_std_range)[0])

    def output(self, parameters: Tensor, generator: Generator) -> Draw:
        """One reparameterized draw, differentiable, and its own -log π for the entropy."""
        noise = _normal(parameters.chunk(2, -1)[0], generator)
        return draw(parameters, noise, self.log_std_range)

    def cloning_loss(self, parameters: Tensor, action: Tensor) -> Tensor:
        """-log N(u) up to a constant, Σ over A, of u = atanh(action) with a spread of `BLUR`.

        The spread keeps a policy that copies a deterministic one from becoming certain.
        """
        mean, log_std = split(parameters, self.log_std_range)
        off = torch.atanh(action.clamp(-EDGE, EDGE)) - mean
        return (0.5 * (off.square() + BLUR**2) * torch.exp(-2 * log_std) + log_std).sum(-1)

    def as_input(self, action: Tensor) -> Tensor:
        """The action itself."""
        return action

    def named(self, parameters: Tensor) -> dict[str, Tensor]:
        """Of the Gaussian, before the squashing."""
        mean, log_std = split(parameters, self.log_std_range)
        return {"action_mean": mean, "action_log_std": log_std}

    def allowing(self, parameters: Tensor, mask: Tensor) -> Tensor:
        """Refused: only single actions can be forbidden."""
        raise ValueError("action_mask: got one, expected none for continuous actions")

    def log_density(self, parameters: Tensor, raw: Tensor) -> Tensor:
        """log π(tanh(raw)), (…): taken before the squashing, it is exact up to the edges ±1."""
        mean, log_std = split(parameters, self.log_std_range)
        return log_density((raw - mean) * torch.exp(-log_std), log_std, raw)


class Categorical(ActionDistribution):
    """One of A actions; the parameters are their logits."""

    def __init__(self, actions: int) -> None:
        self.outputs = actions

    def sample(
        self, parameters: Tensor, generator: Generator, noise: Tensor | None = None
    ) -> Tensor:
        """The first of A exponential clocks to ring: argmax p / Exp(1)."""
        if noise is not None:
            raise ValueError("noise: got some, expected none for discrete actions")
        clock = torch.empty_like(parameters).exponential_(generator=generator)
        return (F.softmax(parameters, -1) / clock).argmax(-1)

    def mode(self, parameters: Tensor) -> Tensor:
        """The likeliest action."""
        return parameters.argmax(-1)

    def cloning_loss(self, parameters: Tensor, action: Tensor) -> Tensor:
        """-log π."""
        return -(F.log_softmax(parameters, -1) * action).sum(-1)

    def as_input(self, action: Tensor) -> Tensor:
        """One-hot."""
        return F.one_hot(action, self.outputs).float()

    def named(self, parameters: Tensor) -> dict[str, Tensor]:
        """The logits."""
        return {"logits": parameters}

    def allowing(self, parameters: Tensor, mask: Tensor) -> Tensor:
        """See `ActionDistribution`; a forbidden action has probability 0 and no gradient."""
        return parameters.masked_fill(~mask, FORBIDDEN)


def _normal(like: Tensor, generator: Generator) -> Tensor:
    return torch.empty_like(like).normal_(generator=generator)
