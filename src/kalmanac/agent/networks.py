"""Actor and critic (paper, Fig. 1): embed → encode → skip → head.

Each owns an embedder and a history encoder; the twin Q heads share the critic's.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from kalmanac.agent.heads import ActionDistribution, Categorical, SquashedGaussian
from kalmanac.agent.images import ImageEmbedder
from kalmanac.agent.settings import AgentSettings
from kalmanac.agent.twin import Perceptron, TwinPerceptron
from kalmanac.encoders import State, make_encoder
from kalmanac.encoders.projection import Projection
from kalmanac.observation import Observation, Sizes
from kalmanac.replay import Batch


class History(NamedTuple):
    """What an encoder reads of a batch, with zeros on pads: a NaN there would reach gradients.

    The observation's vector and the previous action are views of `joined`, in which they lie side
    by side. Its action mask is True on pads: a policy needs one action.
    """

    joined: Tensor  # (B, T + 1, O + A)
    observation: Observation[Tensor]  # (B, T + 1, …), without a privileged part
    previous_action: Tensor  # (B, T + 1, A)
    lengths: Tensor  # (B,)
    reset: Tensor | None  # (B, T + 1)

    def but_last(self) -> "History":
        """Without the last token, (B, T)."""
        return History(
            self.joined[:, :-1],
            self.observation.map(lambda x: x[:, :-1]),
            self.previous_action[:, :-1],
            self.lengths.clamp(max=self.joined.shape[1] - 1),
            None if self.reset is None else self.reset[:, :-1],
        )


def read_history(batch: Batch, *, privileged: bool = False) -> History:
    """The batch's tokens; with `privileged`, the true state stands in the observation's vector."""
    observation = batch.observation
    parts = [observation.vector, batch.previous_action]
    if privileged and observation.privileged is not None:
        parts.insert(1, observation.privileged)
    padded = token_pads(batch)[..., None]
    joined = torch.cat(parts, -1).masked_fill_(padded, 0)
    vector, previous_action = joined.tensor_split([-batch.previous_action.shape[-1]], -1)
    mask = observation.action_mask
    seen = observation._replace(
        vector=vector, action_mask=None if mask is None else mask | padded, privileged=None
    )
    return History(joined, seen, previous_action, batch.lengths, batch.reset)


def token_pads(batch: Batch) -> Tensor:
    """(B, T + 1) bool: True on padding."""
    tokens = batch.previous_action.shape[1]
    return torch.arange(tokens, device=batch.lengths.device) >= batch.lengths[:, None]


class HistoryNetwork(nn.Module):
    """[z_t, o_t] with z = encoder(W [o_t, a_{t-1}]); o_t alone if the encoder has no memory.

    Where there are images, o_t is the observation's vector with their features beside it.
    """

    def __init__(
        self, observation: int, action: int, settings: AgentSettings,
        images: Sequence[tuple[int, int, int]] = (),
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
            inputs = observation + action * settings.previous_action
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
        features = self.look(history.observation)
        if self.encoder is None:
            return (features,)
        assert self.embedder is not None
        whole = self.previous_action and features is history.observation.vector
        z = self.encoder.represent(
            self.embedder(history.joined)
            if whole
            else self.embed(features, history.previous_action),
            lengths=history.lengths,
            reset=history.reset,
            observed=history.observation.observed,
        )
        return z, features

    def step(
        self, observation: Observation[Tensor], previous_action: Tensor, state: State, *,
        reset: Tensor,
    ) -> tuple[Tensor, State]:  # fmt: skip
        """The features of one token, (B, E + O), and the state behind it."""
        features = self.look(observation)
        if self.encoder is None:
            return features, state
        h = self.embed(features, previous_action)
        z, state = self.encoder.step(h, state, reset=reset, observed=observation.observed)
        return torch.cat([z, features], -1), state

    def look(self, observation: Observation[Tensor]) -> Tensor:
        """o_t (…, O) of tokens; a missing reading has zeros in the place of image features too."""
        if self.eyes is None or observation.images is None:
            return observation.vector
        features = self.eyes(observation.images)
        if observation.observed is not None:
            features = features.masked_fill(~observation.observed[..., None], 0)
        return torch.cat([observation.vector, features], -1)

    def embed(self, features: Tensor, previous_action: Tensor) -> Tensor:
        """h (…, E) of tokens, from what `look` gives and the previous action."""
        assert self.embedder is not None
        inputs = [features, previous_action] if self.previous_action else [features]
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
        mask = history.observation.action_mask
        return parameters if mask is None else self.distribution.allowing(parameters, mask)


class Critic(nn.Module):
    """Twin Q functions on one encoder."""

    def __init__(self, sizes: Sizes, settings: AgentSettings) -> None:
        super().__init__()
        self.discrete = sizes.discrete
        seen = sizes.observation + sizes.privileged * settings.privileged_critic
        self.network = HistoryNetwork(seen, sizes.action, settings, sizes.images)
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
        """Of all steps (B, T) but the first."""
        return QValues(self.critic, [x[:, 1:] for x in self.features])

    def taken(self, action: Tensor) -> Tensor:
        """(2, …) of actions (…, A); gradients reach the critic."""
        return self.critic.head(*self.features, action)[..., 0]

    def frozen(self, action: Tensor) -> Tensor:
        """The lower of the twins, (…): gradients reach the action and never the critic."""
        features = (x.detach() for x in self.features)
        return self.critic.head(*features, action, frozen=True)[..., 0].amin(0)
