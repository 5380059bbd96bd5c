"""A trained policy in use, with what goes on inside it written down."""

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from kalmanac.agent.heads import SquashedGaussian
from kalmanac.encoders import KalmanEncoder
from kalmanac.encoders.kalman import KalmanLayer
from kalmanac.encoders.kalman_block import KalmanBlock
from kalmanac.envs.spaces import action_codec, observation_codec
from kalmanac.experiment.latent_map import has_latent_map, latent_map
from kalmanac.sac import RecurrentSAC

Array = NDArray[Any]


class Insight:
    """Plays one episode in one environment; `arrays` tells afterwards what the agent thought.

    Args:
        seed: of the actions that are drawn where the play is not `deterministic`.
    """

    def __init__(self, model: RecurrentSAC, *, deterministic: bool, seed: int) -> None:
        self.model, self.deterministic = model, deterministic
        self.observations = observation_codec(model.observation_space)
        self.actions = action_codec(model.action_space)
        learner = model.learner
        self._generator = torch.Generator(learner.device).manual_seed(seed)
        self._state: Any = learner.initial_state(1)
        self._previous = torch.zeros(1, learner.sizes.action, device=learner.device)
        self._taken: list[Tensor] = []  # the agent's own actions, (1,) or (1, A) each
        self._seen: list[Tensor] = []  # (1, O) each
        self._before: list[Tensor] = []  # previous actions, (1, A) each
        self._outputs: list[Tensor] = []  # the policy's parameters, (1, P) each
        self._latent: list[Tensor] = []  # (2,) each, of agents whose latent space can be drawn

    @torch.no_grad()
    def act(self, observation: Any) -> Array:
        """The environment's action, (1, …), for its observation, (1, …)."""
        learner = self.model.learner
        seen = torch.as_tensor(self.observations.encode(observation), device=learner.device)
        if self.model.normaliser is not None:
            seen = self.model.normaliser(seen)
        start = torch.full((1,), not self._seen, device=learner.device)
        told = (seen, self._previous, self._state)
        action, after = learner.act(
            *told,
            episode_start=start,
            explore=not self.deterministic,
            generator=self._generator,
        )
        features, _ = learner.actor.network.step(*told, reset=start)
        self._outputs.append(learner.actor.head(features))
        self._taken.append(action)
        self._seen.append(seen)
        self._before.append(self._previous)
        if has_latent_map(self.model):
            self._latent.append(after[0][0, -1])
        self._state, self._previous = after, learner.action_as_input(action)
        return self.actions.decode(action.cpu().numpy())

    def arrays(self) -> dict[str, Array]:
        """The policy, the beliefs and the latent space, named as in an episode file."""
        return self._policy() | self._beliefs() | self._latent_space()

    def _policy(self) -> dict[str, Array]:
        outputs, taken = torch.cat(self._outputs), torch.cat(self._taken)
        policy = self.model.learner.actor.policy
        if not isinstance(policy, SquashedGaussian):
            share = torch.softmax(outputs, -1)
            return {"action": taken.cpu().numpy(), "probability": share.cpu().numpy()}
        mean, log_std = outputs.chunk(2, -1)
        std = log_std.clamp(*policy.log_std_range).exp()
        values = {"action_mean": mean, "action_low": mean - std, "action_high": mean + std}
        squashed = {name: torch.tanh(x) for name, x in values.items()}
        return {name: self._decoded(x) for name, x in {"action": taken, **squashed}.items()}

    def _decoded(self, action: Tensor) -> Array:
        return self.actions.decode(action.cpu().numpy()).reshape(len(action), -1)

    @torch.no_grad()
    def _beliefs(self) -> dict[str, Array]:
        network = self.model.learner.actor.network
        if not isinstance(network.encoder, KalmanEncoder):
            return {}
        h = network.embed(torch.cat(self._seen), torch.cat(self._before))[None]
        seen = network.encoder.beliefs(h)
        mean = seen.posterior.mean[0]  # (L, T, N)
        weight = read_out(network.encoder)[:, : mean.shape[-1]]  # (E, N), without variances
        influence = mean[-1].std(0, correction=0) * weight.norm(dim=0)
        found = {
            "belief_mean": mean,
            "belief_variance": seen.posterior.variance[0],
            "gain": seen.gain[0],
            "influence": influence,
        }
        return {name: x.cpu().numpy() for name, x in found.items()}

    def _latent_space(self) -> dict[str, Array]:
        if not self._latent:
            return {}
        latent = torch.stack(self._latent).cpu().numpy()
        grid, probability = latent_map(self.model, latent, self._seen[-1])
        return {"latent": latent, "latent_grid": grid, "latent_probability": probability}


def read_out(encoder: KalmanEncoder) -> Tensor:
    """The weights between the last filter's channels and the representation, (E, N or 2 N)."""
    layer = encoder.stack.layers[-1]
    layer = layer.filter if isinstance(layer, KalmanBlock) else layer
    assert isinstance(layer, KalmanLayer)
    return layer.out_projection.weight
