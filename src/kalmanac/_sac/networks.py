"""Actor and critic (paper, Fig. 1): embed → encode → skip → head.

Each owns an embedder and a history encoder; the twin Q heads share the critic's.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from kalmanac._encoders.contract import State
from kalmanac._encoders.layers import Projection
from kalmanac._encoders.registry import make_encoder
from kalmanac._observation import Observation, Sizes
from kalmanac._ops.dispatch import pads_are_free
from kalmanac._ops.mlp import mlp
from kalmanac._ops.windows import token_pads
from kalmanac._replay.sampling import Batch
from kalmanac._sac.config import AgentSettings
from kalmanac._sac.distributions import ActionDistribution, Categorical, SquashedGaussian

ImageShape = tuple[int, int, int]  # channels, height, width
CLOCK = 4  # numbers that tell the time


class History(NamedTuple):
    """What an encoder reads of a batch, finite on pads: a NaN there would reach gradients.

    The observation's vector, the previous action and, where the agent sees it, the previous reward
    are views of `joined`, in which they lie side by side. The observation's action mask is True on
    pads: a policy needs one action.
    """

    joined: Tensor  # (B, T + 1, O + A), or one more
    observation: Observation[Tensor]  # (B, T + 1, …), without a privileged part
    previous_action: Tensor  # (B, T + 1, A)
    lengths: Tensor  # (B,)
    reset: Tensor | None  # (B, T + 1)

    def but_last(self) -> "History":
        """Return the history without its last token, (B, T)."""
        return History(
            self.joined[:, :-1],
            self.observation.map(lambda x: x[:, :-1]),
            self.previous_action[:, :-1],
            self.lengths.clamp(max=self.joined.shape[1] - 1),
            None if self.reset is None else self.reset[:, :-1],
        )


def read_clock(elapsed: Tensor) -> Tensor:
    """Tell the time after so many steps (…): 1 − exp(−steps / 16, 64, 256 and 1024), (…, CLOCK).

    No horizon has to be known, and at each of them one of the numbers still moves.
    """
    spans = 16.0 * 4.0 ** torch.arange(CLOCK, device=elapsed.device)
    return -torch.expm1(-elapsed[..., None] / spans)


def read_history(batch: Batch, critic: AgentSettings | None = None) -> History:
    """The batch's tokens, with what the `critic` of these settings sees in the observation, too:
    the true state, and the clock."""
    observation = batch.observation
    parts = [observation.vector, batch.previous_action]
    if critic is not None and critic.privileged_critic and observation.privileged is not None:
        parts.insert(1, observation.privileged)
    if critic is not None and critic.critic_clock and batch.elapsed is not None:
        parts.insert(1, read_clock(batch.elapsed))
    ends = [-batch.previous_action.shape[-1]]
    if observation.previous_reward is not None:
        parts.append(observation.previous_reward[..., None])
        ends = [ends[0] - 1, -1]
    joined = torch.cat(parts, -1)
    if not pads_are_free(joined):  # where they are, they stay what batches hold: finite numbers
        joined.masked_fill_(token_pads(joined, batch.lengths)[..., None], 0)
    vector, previous_action, *reward = joined.tensor_split(ends, -1)
    mask = observation.action_mask
    if mask is not None:
        mask = mask | token_pads(mask, batch.lengths)[..., None]
    observation = observation._replace(
        vector=vector, action_mask=mask, privileged=None,
        previous_reward=reward[0][..., 0] if reward else None,
    )  # fmt: skip
    return History(joined, observation, previous_action, batch.lengths, batch.reset)


class HistoryNetwork(nn.Module):
    """[z_t, o_t] with z = encoder(W [o_t, a_{t-1}]); o_t alone if the encoder has no memory.

    With `previous_reward`, r_{t-1} stands behind a_{t-1}.

    Where there are images, o_t is the observation's vector with their features beside it.
    """

    def __init__(
        self, observation: int, action: int, settings: AgentSettings,
        images: Sequence[ImageShape] = (),
    ) -> None:  # fmt: skip
        super().__init__()
        self.eyes = None
        if images:
            self.eyes = ImageEmbedder(images, settings.image_channels, settings.image_features)
            observation += self.eyes.features
        encoder = make_encoder(settings.encoder, **settings.for_encoder())
        self.previous_action = settings.previous_action
        self.encoder = encoder if encoder.uses_history else None
        self.embedder = None
        self.features = observation
        if self.encoder is not None:
            inputs = observation + action * settings.previous_action + settings.previous_reward
            self.embedder = Projection(inputs, settings.embedding)
            self.features += settings.embedding

    def initial_state(self, batch: int) -> State:
        """The encoder's state before an episode's first step; () without a memory."""
        return () if self.encoder is None else self.encoder.initial_state(batch)

    def forward(self, history: History) -> Tensor:
        """The features of every token, (B, T + 1, E + O)."""
        return torch.cat(self.encode(history), -1)

    def encode(self, history: History) -> tuple[Tensor, ...]:
        """The features in parts, as heads take them: (z, observation), or the latter alone."""
        features = self.observation_features(history.observation)
        if self.encoder is None:
            return (features,)
        assert self.embedder is not None
        whole = self.previous_action and features is history.observation.vector
        known: dict[str, Any] = {
            "lengths": history.lengths,
            "reset": history.reset,
            "observed": history.observation.observed,
        }
        if whole:
            return self.encoder.represent_embedded(history.joined, self.embedder, **known), features
        reward = history.observation.previous_reward
        h = self.embed(features, history.previous_action, reward)
        return self.encoder.represent(h, **known), features

    def step(
        self, observation: Observation[Tensor], previous_action: Tensor, state: State, *,
        reset: Tensor,
    ) -> tuple[Tensor, State]:  # fmt: skip
        """The features of one token, (B, E + O), and the state behind it."""
        features = self.observation_features(observation)
        if self.encoder is None:
            return features, state
        h = self.embed(features, previous_action, observation.previous_reward)
        z, state = self.encoder.step(h, state, reset=reset, observed=observation.observed)
        return torch.cat([z, features], -1), state

    def observation_features(self, observation: Observation[Tensor]) -> Tensor:
        """o_t (…, O) of tokens; a missing reading has zeros in the place of image features too."""
        if self.eyes is None or observation.images is None:
            return observation.vector
        features = self.eyes(observation.images)
        if observation.observed is not None:
            features = features.masked_fill(~observation.observed[..., None], 0)
        return torch.cat([observation.vector, features], -1)

    def embed(
        self, features: Tensor, previous_action: Tensor, previous_reward: Tensor | None = None
    ) -> Tensor:
        """h (…, E) of tokens, from what `observation_features` gives and what was before them."""
        assert self.embedder is not None
        inputs = [features, previous_action] if self.previous_action else [features]
        if previous_reward is not None:
            inputs.append(previous_reward[..., None])
        return self.embedder(torch.cat(inputs, -1))


class Actor(nn.Module):
    """A policy's parameters from the history."""

    def __init__(self, sizes: Sizes, settings: AgentSettings) -> None:
        super().__init__()
        self.distribution: ActionDistribution = (
            Categorical(sizes.action)
            if sizes.discrete
            else SquashedGaussian(sizes.action, settings.log_std_range)
        )
        self.network = HistoryNetwork(sizes.observation, sizes.action, settings, sizes.images)
        widths = [self.network.features, *settings.actor_hidden, self.distribution.outputs]
        self.head = Perceptron(widths, gain=settings.head_gain)

    def forward(self, history: History) -> Tensor:
        """The policy's parameters at every token, (B, T + 1, P)."""
        parameters = self.head(*self.network.encode(history))
        return self._allowing(parameters, history.observation.action_mask)

    def step(
        self, observation: Observation[Tensor], previous_action: Tensor, state: State, *,
        episode_start: Tensor,
    ) -> tuple[Tensor, State]:  # fmt: skip
        """The policy's parameters at one token, (B, P), and the state behind it.

        Where `episode_start` (B,), the state is emptied first, and there is no previous action and
        no previous reward.
        """
        previous_action = previous_action.masked_fill(episode_start[:, None], 0)
        if observation.previous_reward is not None:
            reward = observation.previous_reward.masked_fill(episode_start, 0)
            observation = observation._replace(previous_reward=reward)
        features, state = self.network.step(
            observation, previous_action, state, reset=episode_start
        )
        return self._allowing(self.head(features), observation.action_mask), state

    def _allowing(self, parameters: Tensor, mask: Tensor | None) -> Tensor:
        return parameters if mask is None else self.distribution.allowing(parameters, mask)


class Critic(nn.Module):
    """Twin Q functions on one encoder."""

    def __init__(self, sizes: Sizes, settings: AgentSettings) -> None:
        super().__init__()
        self.discrete = sizes.discrete
        inputs = sizes.observation + sizes.privileged * settings.privileged_critic
        inputs += CLOCK * settings.critic_clock
        self.network = HistoryNetwork(inputs, sizes.action, settings, sizes.images)
        width = self.network.features + (0 if sizes.discrete else sizes.action)
        outputs = sizes.action if sizes.discrete else 1
        self.head = TwinPerceptron(
            [width, *settings.critic_hidden, outputs], gain=settings.head_gain
        )

    def q_values(self, *features: Tensor) -> "QValues":
        """Q of continuous actions at features of `network`, whole or in parts."""
        return QValues(self, features)


class QValues:
    """Q at given features: of the actions taken, and of those that a policy would take."""

    def __init__(self, critic: Critic, features: Sequence[Tensor]) -> None:
        self.features: Sequence[Tensor] = features
        self.critic = critic

    def following(self) -> "QValues":
        """Return Q at all steps (B, T) but the first."""
        return QValues(self.critic, [x[:, 1:] for x in self.features])

    def taken(self, action: Tensor) -> Tensor:
        """(2, …) of actions (…, A); gradients reach the critic."""
        return self.critic.head(*self.features, action)[..., 0]

    def frozen(self, action: Tensor) -> Tensor:
        """The lower of the twins, (…): gradients reach the action and never the critic."""
        return self.frozen_twins(action).amin(0)

    def frozen_twins(self, action: Tensor) -> Tensor:
        """Both, (2, …)."""
        features = (x.detach() for x in self.features)
        return self.critic.head(*features, action, frozen=True)[..., 0]


class Perceptron(nn.Module):
    """Linear layers with ReLU between them; orthogonal weights, zero biases."""

    def __init__(self, widths: Sequence[int], *, gain: float = 1.0) -> None:
        super().__init__()
        layers = [nn.Linear(n, m) for n, m in pairwise(widths)]
        self.layers = nn.ModuleList(layers)
        for layer in layers:
            nn.init.orthogonal_(layer.weight, gain)
            nn.init.zeros_(layer.bias)

    def forward(self, *parts: Tensor) -> Tensor:
        """(…, first width), perhaps in several parts side by side, to (…, last width)."""
        weights = [layer.weight.mT[None] for layer in self.linear()]
        biases = [layer.bias[None, None] for layer in self.linear()]
        return mlp(parts, weights, biases).squeeze(0)

    def linear(self) -> list[nn.Linear]:
        """The layers, with their type."""
        return [cast(nn.Linear, layer) for layer in self.layers]


class TwinPerceptron(nn.Module):
    """Two independent perceptrons on the same input, each layer one matrix product."""

    def __init__(self, widths: Sequence[int], *, gain: float = 1.0) -> None:
        super().__init__()
        self.weights = nn.ParameterList(torch.empty(2, n, m) for n, m in pairwise(widths))
        self.biases = nn.ParameterList(torch.zeros(2, 1, m) for m in widths[1:])
        for weight in self.weights:
            for matrix in weight:
                nn.init.orthogonal_(matrix, gain)

    def forward(self, *parts: Tensor, frozen: bool = False) -> Tensor:
        """(…, first width), perhaps in several parts side by side, to (2, …, last width).

        `frozen`: gradients reach the parts, not the weights.
        """
        layers = [*self.weights, *self.biases]
        if frozen:
            layers = [x.detach() for x in layers]
        count = len(self.weights)
        return mlp(parts, layers[:count], layers[count:])


class ImageEmbedder(nn.Module):
    """Pixels (…, P) uint8 to features (…, F · images).

    Each image goes through 3 × 3 convolutions that halve its sides (rounded up), with ReLU behind
    each, one linear layer and a LayerNorm: its features have the scale of normalized numbers.
    """

    def __init__(
        self, shapes: Sequence[ImageShape], channels: Sequence[int], features: int
    ) -> None:
        super().__init__()
        self.shapes = tuple(shapes)
        self.features = features * len(self.shapes)
        self.towers = nn.ModuleList(_tower(shape, channels, features) for shape in self.shapes)

    def forward(self, pixels: Tensor) -> Tensor:
        """(…, P) to (…, F · images)."""
        rows = pixels.flatten(0, -2)
        features = []
        images = rows.split([math.prod(shape) for shape in self.shapes], -1)
        for tower, shape, image in zip(self.towers, self.shapes, images, strict=True):
            # as numbers in [-1/2, 1/2]; channels last in memory, which is faster on a CPU
            x = image.unflatten(-1, shape).contiguous(memory_format=torch.channels_last)
            features.append(tower(x.float() / 255 - 0.5))
        return torch.cat(features, -1).unflatten(0, pixels.shape[:-1])


def _tower(shape: ImageShape, channels: Sequence[int], features: int) -> nn.Sequential:
    depth, height, width = shape
    layers: list[nn.Module] = []
    for n, m in pairwise([depth, *channels]):
        layers += [nn.Conv2d(n, m, 3, stride=2, padding=1), nn.ReLU()]
        height, width = (height + 1) // 2, (width + 1) // 2
    last = channels[-1] if channels else depth
    linear = nn.Linear(last * height * width, features)
    return nn.Sequential(*layers, nn.Flatten(), linear, nn.LayerNorm(features))
