"""A trained policy in use, with what goes on inside it written down."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from kalmanac.agent.heads import SquashedGaussian
from kalmanac.encoders import KalmanEncoder
from kalmanac.encoders.kalman import KalmanLayer
from kalmanac.encoders.kalman_block import KalmanBlock
from kalmanac.envs.action_codecs import action_codec
from kalmanac.experiment.latent_map import has_latent_map, latent_map
from kalmanac.sac import PolicyState, RecurrentSAC

Array = NDArray[Any]


class Insight:
    """A model to evaluate for one episode; `arrays` tells afterwards what the agent thought.

    It acts as `model` does. What the embedder and the head of its actor say is overheard.
    """

    def __init__(self, model: RecurrentSAC) -> None:
        self.model = model
        self.actor = model.learner.averaged
        self.actions = action_codec(model.action_space)
        self._embedded: list[Tensor] = []  # what the encoder reads, (1, E) each
        self._features: list[Tensor] = []  # what the head reads, (1, E + O) each
        self._outputs: list[Tensor] = []  # the policy's parameters, (1, P) each
        self._taken: list[Tensor] = []  # actions as the networks read them, (1, A) each
        self._masks: list[Any] = []  # of the actions allowed, (1, A) each; None: all are
        self._observed: list[Any] = []  # whether a reading came, (1,) each; None: it did
        self._latent: list[Tensor] = []  # (2,) each, of agents whose latent space can be drawn

    @property
    def info_keys(self) -> frozenset[str]:
        """The keys of infos that the model asks for."""
        return self.model.info_keys

    def predict(
        self, observation: Any, state: Any = None,
        episode_start: NDArray[np.bool_] | None = None, deterministic: bool = False,
        action_masks: Any = None, observed: Any = None,
    ) -> tuple[Any, PolicyState]:  # fmt: skip
        """The model's own answer for one environment, (1, …)."""
        with self._overhearing(), self.model.overheard():
            action, after = self.model.predict(
                observation, state, episode_start, deterministic, action_masks, observed
            )
        self._masks.append(action_masks)
        self._observed.append(observed)
        self._taken.append(after.previous_action)
        if has_latent_map(self.model):
            self._latent.append(after.encoder[0][0, -1])
        return action, after

    def arrays(self) -> dict[str, Array]:
        """The policy, the beliefs and the latent space, named as in an episode file."""
        return self._policy() | self._beliefs() | self._latent_space()

    @contextmanager
    def _overhearing(self) -> Iterator[None]:
        def at_head(_: nn.Module, heard: tuple[Tensor, ...], said: Tensor) -> None:
            self._features.append(heard[0])
            self._outputs.append(said)

        def at_embedder(_: nn.Module, heard: tuple[Tensor, ...], said: Tensor) -> None:
            self._embedded.append(said)

        hooks = [self.actor.head.register_forward_hook(at_head)]
        if self.actor.network.embedder is not None:
            hooks.append(self.actor.network.embedder.register_forward_hook(at_embedder))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _policy(self) -> dict[str, Array]:
        outputs, taken = torch.cat(self._outputs), torch.cat(self._taken)
        policy = self.actor.distribution
        if not isinstance(policy, SquashedGaussian):
            if all(mask is not None for mask in self._masks):
                allowed = np.concatenate([self.actions.mask(mask) for mask in self._masks])
                outputs = policy.allowing(outputs, torch.as_tensor(allowed, device=outputs.device))
            share = torch.softmax(outputs, -1)
            return {"action": taken.argmax(-1).cpu().numpy(), "probability": share.cpu().numpy()}
        mean, log_std = outputs.chunk(2, -1)
        std = log_std.clamp(*policy.log_std_range).exp()
        values = {"action_mean": mean, "action_low": mean - std, "action_high": mean + std}
        squashed = {name: torch.tanh(x) for name, x in values.items()}
        return {name: self._decoded(x) for name, x in {"action": taken, **squashed}.items()}

    def _decoded(self, action: Tensor) -> Array:
        return self.actions.decode(action.cpu().numpy()).reshape(len(action), -1)

    @torch.no_grad()
    def _beliefs(self) -> dict[str, Array]:
        encoder = self.actor.network.encoder
        if not isinstance(encoder, KalmanEncoder):
            return {}
        h, observed = torch.cat(self._embedded)[None], None
        if all(flag is not None for flag in self._observed):
            observed = torch.as_tensor(np.stack(self._observed, 1), device=h.device)  # (1, T)
        seen = encoder.beliefs(h, observed=observed)
        mean = seen.posterior.mean[0]  # (L, T, N)
        weight = read_out(encoder)[:, : mean.shape[-1]]  # (E, N), without variances
        found = {
            "belief_mean": mean,
            "belief_variance": seen.posterior.variance[0],
            "gain": seen.gain[0],
            "influence": mean[-1].std(0, correction=0) * weight.norm(dim=0),
        }
        return {name: x.cpu().numpy() for name, x in found.items()}

    def _latent_space(self) -> dict[str, Array]:
        if not self._latent:
            return {}
        latent = torch.stack(self._latent).cpu().numpy()
        seen = self._features[-1][:, self.model.settings.embedding :]  # the skip connection
        grid, probability = latent_map(self.model, latent, seen)
        return {"latent": latent, "latent_grid": grid, "latent_probability": probability}


def read_out(encoder: KalmanEncoder) -> Tensor:
    """The weights between the last filter's channels and the representation, (E, N or 2 N)."""
    layer = encoder.stack.layers[-1]
    layer = layer.filter if isinstance(layer, KalmanBlock) else layer
    assert isinstance(layer, KalmanLayer)
    return layer.out_projection.weight
