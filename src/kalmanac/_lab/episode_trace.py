"""A trained policy in use: what goes on inside it, step by step, and maps of its latent space."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv, VectorWrapper
from numpy.typing import NDArray
from torch import Tensor, nn

from kalmanac._encoders.kalman import KalmanLayer
from kalmanac._encoders.kalman_encoder import KalmanBlock, KalmanEncoder
from kalmanac._encoders.layers import Stack
from kalmanac._encoders.ssm import SSMLayer
from kalmanac._envs.action_codecs import action_codec
from kalmanac._envs.observation_codecs import observation_codec
from kalmanac._sac.distributions import SquashedGaussian
from kalmanac._sac.networks import Actor
from kalmanac._sac.policy import PolicyState
from kalmanac._sac.recurrent_sac import RecurrentSAC

POINTS = 121  # a side
LEAST = 2.5  # the map goes at least so far from the origin: the prior is N(0, 1)
MARGIN = 0.12  # beyond the trajectory, as a share of the map
ADVICE = "kalmanac train best-arm-demo --encoder vssm+kf --encoder-settings d_state=2"

Floats = NDArray[np.float32]


def has_latent_map(model: RecurrentSAC) -> bool:
    """Whether the agent has a latent space that can be drawn, and actions to draw in it."""
    return model.learner.sizes.discrete and _stack(model.learner.averaged) is not None


def refuse_without_latent_map(model: RecurrentSAC) -> None:
    """Raise ValueError, with the way to train another agent, where there is no such map."""
    if has_latent_map(model):
        return
    settings = model.settings
    chosen = dict(settings.encoder_settings)
    actions = "discrete" if model.learner.sizes.discrete else "continuous"
    raise ValueError(
        f"latent: got an agent with encoder {settings.encoder!r}, settings {chosen} and {actions} "
        "actions, expected vssm, vssm+kf or vssm+kf-u with two latent channels, one layer and "
        f"discrete actions, as {ADVICE} trains it"
    )


@torch.no_grad()
def latent_map(model: RecurrentSAC, latent: Floats, skip: Tensor) -> tuple[Floats, Floats]:
    """Values of the two channels around a trajectory (T, 2), (2, G), and π there, (G, G, A).

    `skip` (1, O) is what stands beside z in the features that the head reads.
    """
    actor = model.learner.averaged
    stack = _stack(actor)
    assert stack is not None
    low, high = latent.min(0), latent.max(0)
    margin = MARGIN * np.maximum(high - low, 2 * LEAST)
    low, high = np.minimum(low - margin, -LEAST), np.maximum(high + margin, LEAST)
    grid = np.linspace(low, high, POINTS, dtype=np.float32).T  # (2, G)
    first, second = np.meshgrid(*grid)  # [second, first]
    places = torch.from_numpy(np.stack([first, second], -1)).to(skip.device)
    z = stack.norm(_layer(stack).out_projection(places))
    features = torch.cat([z, skip.expand(POINTS, POINTS, -1)], -1)
    return grid, torch.softmax(actor.head(features), -1).cpu().numpy()


def _stack(actor: Actor) -> Stack | None:
    """The encoder's one layer, with what stands behind it; None where it cannot be drawn."""
    encoder = actor.network.encoder
    stack = encoder.stack if isinstance(encoder, KalmanEncoder) else encoder
    if not isinstance(stack, Stack) or len(stack.layers) != 1:
        return None
    layer = stack.layers[0]
    plain = isinstance(layer, SSMLayer) or (
        isinstance(layer, KalmanLayer) and not layer.variance_feature
    )
    return stack if plain and _layer(stack).d_state == 2 else None


def _layer(stack: Stack) -> KalmanLayer | SSMLayer:
    layer = stack.layers[0]
    assert isinstance(layer, KalmanLayer | SSMLayer)
    return layer


Array = NDArray[Any]


class ObservationTrace(VectorWrapper[Any, Any, Any, Any, Any]):
    """Records a vector of one environment, below what replaces the agent's observation."""

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        super().__init__(env)
        self.terminated = False
        self.first: dict[str, Any] = {}  # infos of the reset
        self._codec = observation_codec(env.single_observation_space)
        self._over = False
        self._observations: list[Array] = []
        self._truths: list[Array] = []
        self._rewards: list[float] = []

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset, and record the first observation."""
        observation, self.first = self.env.reset(seed=seed, options=options)
        self._record(observation, self.first)
        return observation, self.first

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        """Step, and record what comes of it; an episode's last observation leads to no action."""
        transition = self.env.step(actions)
        observation, rewards, terminated, truncated, infos = transition
        if not self._over:
            self._rewards.append(float(rewards[0]))
            self.terminated = bool(terminated[0])
            self._over = self.terminated or bool(truncated[0])
        if not self._over:
            self._record(observation, infos)
        return transition

    def arrays(self) -> dict[str, Array]:
        """Observations, rewards and true states, named as in an episode file."""
        arrays: dict[str, Array] = {
            "observation": np.asarray(self._observations, np.float32),
            "reward": np.asarray(self._rewards, np.float64),
        }
        if self._truths:
            arrays["truth"] = np.asarray(self._truths, np.float32)
        return arrays

    def _record(self, observation: Any, infos: dict[str, Any]) -> None:
        self._observations.append(self._codec.encode(observation).vector[0])
        if "privileged" in infos:
            self._truths.append(np.array(infos["privileged"][0]))


class PolicyTrace:
    """A model to evaluate for one episode; `arrays` has what went on in the agent.

    It acts as `model` does. Hooks record the outputs of its actor's embedder and head.
    """

    def __init__(self, model: RecurrentSAC) -> None:
        self.model = model
        self.actor = model.learner.averaged
        self.actions = action_codec(model.action_space)
        self._embedded: list[Tensor] = []  # what the encoder reads, (1, E) each
        self._features: list[Tensor] = []  # what the head reads, (1, E + O) each
        self._outputs: list[Tensor] = []  # the policy's parameters, (1, P) each
        self._actions: list[Tensor] = []  # actions as the networks read them, (1, A) each
        self._masks: list[Any] = []  # of the actions allowed, (1, A) each; None: all are
        self._observed: list[Any] = []  # whether a reading came, (1,) each; None: it did
        self._latent: list[Tensor] = []  # (2,) each, of agents whose latent space can be drawn

    @property
    def info_keys(self) -> frozenset[str]:
        """The keys of infos that the model asks for."""
        return self.model.info_keys

    @property
    def previous_reward(self) -> bool:
        """Whether the model asks for the last step's reward."""
        return self.model.previous_reward

    def predict(
        self, observation: Any, state: Any = None,
        episode_start: NDArray[np.bool_] | None = None, deterministic: bool = False,
        action_masks: Any = None, observed: Any = None, previous_reward: Any = None,
    ) -> tuple[Any, PolicyState]:  # fmt: skip
        """The model's own answer for one environment, (1, …)."""
        with self._hooked(), self.model.eager_acting():
            action, after = self.model.predict(
                observation, state, episode_start, deterministic, action_masks, observed,
                previous_reward,
            )  # fmt: skip
        self._masks.append(action_masks)
        self._observed.append(observed)
        self._actions.append(after.previous_action)
        if has_latent_map(self.model):
            self._latent.append(after.encoder[0][0, -1])
        return action, after

    def arrays(self) -> dict[str, Array]:
        """The policy, the beliefs and the latent space, named as in an episode file."""
        return self._policy() | self._beliefs() | self._latent_space()

    @contextmanager
    def _hooked(self) -> Iterator[None]:
        def at_head(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            self._features.append(inputs[0])
            self._outputs.append(output)

        def at_embedder(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            self._embedded.append(output)

        hooks = [self.actor.head.register_forward_hook(at_head)]
        if self.actor.network.embedder is not None:
            hooks.append(self.actor.network.embedder.register_forward_hook(at_embedder))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _policy(self) -> dict[str, Array]:
        outputs, actions = torch.cat(self._outputs), torch.cat(self._actions)
        policy = self.actor.distribution
        if not isinstance(policy, SquashedGaussian):
            if all(mask is not None for mask in self._masks):
                allowed = np.concatenate([self.actions.mask(mask) for mask in self._masks])
                outputs = policy.allowing(outputs, torch.as_tensor(allowed, device=outputs.device))
            share = torch.softmax(outputs, -1)
            return {"action": actions.argmax(-1).cpu().numpy(), "probability": share.cpu().numpy()}
        mean, log_std = outputs.chunk(2, -1)
        std = log_std.clamp(*policy.log_std_range).exp()
        values = {"action_mean": mean, "action_low": mean - std, "action_high": mean + std}
        squashed = {name: torch.tanh(x) for name, x in values.items()}
        return {name: self._decoded(x) for name, x in {"action": actions, **squashed}.items()}

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
        beliefs = encoder.beliefs(h, observed=observed)
        mean = beliefs.posterior.mean[0]  # (L, T, N)
        weight = read_out(encoder)[:, : mean.shape[-1]]  # (E, N), without variances
        arrays = {
            "belief_mean": mean,
            "belief_variance": beliefs.posterior.variance[0],
            "gain": beliefs.gain[0],
            "influence": mean[-1].std(0, correction=0) * weight.norm(dim=0),
        }
        return {name: x.cpu().numpy() for name, x in arrays.items()}

    def _latent_space(self) -> dict[str, Array]:
        if not self._latent:
            return {}
        latent = torch.stack(self._latent).cpu().numpy()
        skip = self._features[-1][:, self.model.settings.embedding :]  # the skip connection
        grid, probability = latent_map(self.model, latent, skip)
        return {"latent": latent, "latent_grid": grid, "latent_probability": probability}


def read_out(encoder: KalmanEncoder) -> Tensor:
    """The weights between the last filter's channels and the representation, (E, N or 2 N)."""
    layer = encoder.stack.layers[-1]
    layer = layer.filter if isinstance(layer, KalmanBlock) else layer
    assert isinstance(layer, KalmanLayer)
    return layer.out_projection.weight
