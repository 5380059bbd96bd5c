"""The policy in use: observations go in, actions come out, and its memory is passed along.

A `Session` carries that memory for its user.
"""

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from kalmanac._observation import Observation
from kalmanac._ops.transfer import Returning, sent
from kalmanac._sac.cuda_graph import GraphedCall, can_record
from kalmanac._sac.evaluation import PredictingModel
from kalmanac._sac.learner import Learner
from kalmanac._sac.normalization import ObservationNormalizer, ReturnScale


class PolicyState(NamedTuple):
    """What the policy remembers of n episodes: the actor's encoder state and the last actions."""

    encoder: Any
    previous_action: Tensor  # (n, A), one-hot if discrete; zero at an episode's start

    @property
    def episodes(self) -> int:
        """n, the number of episodes."""
        return len(self.previous_action)


class PendingActions:
    """Actions that a policy is choosing, perhaps still on a GPU: `actions` waits for them."""

    def __init__(self, action: Tensor, state: PolicyState) -> None:
        self.state = state  # with the actions in it
        self._action = Returning(action)

    def actions(self) -> NDArray[Any]:
        """Agent actions, int64 (n,) or float32 (n, A)."""
        return self._action.array()


class Policy:
    """The actor of `learner` behind the normalizers, for n environments at a time.

    On a GPU, acting is replayed from a graph for each n, with `graph` and unless it is `eager`:
    hooks on the actor's modules hear nothing of a replay. With `averaged`, the running average of
    the actor's weights acts, where the learner keeps one.
    """

    def __init__(
        self, learner: Learner, normalizer: ObservationNormalizer | None, *, graph: bool = True,
        averaged: bool = False, return_scale: ReturnScale | None = None,
    ) -> None:  # fmt: skip
        self.learner, self.normalizer, self.graph = learner, normalizer, graph
        self.return_scale = return_scale  # of previous rewards
        self.averaged = averaged
        self.device = learner.device
        self.eager = False
        self._graphed_calls: dict[Hashable, GraphedCall] = {}

    def start(self, n: int) -> PolicyState:
        """The state before the first step of n episodes."""
        size = self.learner.sizes.action
        nothing = torch.zeros(n, size, dtype=torch.float32, device=self.device)
        return PolicyState(self.learner.initial_state(n), nothing)

    def act(
        self, observation: Observation[NDArray[Any]], state: PolicyState,
        episode_start: NDArray[np.bool_], *, explore: bool,
        generator: torch.Generator | None = None,
    ) -> tuple[NDArray[Any], PolicyState]:  # fmt: skip
        """Agent actions, int64 (n,) or float32 (n, A), and the state that includes them."""
        pending = self.ask(observation, state, episode_start, explore=explore, generator=generator)
        return pending.actions(), pending.state

    def ask(
        self, observation: Observation[NDArray[Any]], state: PolicyState,
        episode_start: NDArray[np.bool_], *, explore: bool,
        generator: torch.Generator | None = None,
    ) -> PendingActions:  # fmt: skip
        """Act, but on a GPU wait for the actions only where they are read.

        What is asked meanwhile, of this or another policy, comes after it on the device.
        """
        parts = observation._replace(privileged=None).parts()
        start, *tensors = sent([_tensor(episode_start), *map(_tensor, parts.values())], self.device)
        current = self._normalized(Observation(**dict(zip(parts, tensors, strict=True))))
        rng = (generator or self.learner.acting) if explore else None
        if not can_record(self.device) or self.eager or not self.graph:
            action, next_state = self._act(current, start, state, rng)
        else:
            action, next_state = self._replay(current, start, state, rng)
        return PendingActions(action, next_state)

    def choose(
        self, observation: Observation[Tensor], state: PolicyState, *, episode_start: Tensor
    ) -> tuple[Tensor, PolicyState]:
        """The most likely actions for n raw observations on the device, where all stays."""
        return self._act(self._normalized(observation), episode_start, state, None)

    def settle(self) -> None:
        """Bring the normalizers on the device up to date, before `choose` is recorded."""
        for one in (self.normalizer, self.return_scale):
            if one is not None:
                one.settle(self.device)

    def _normalized(self, observation: Observation[Tensor]) -> Observation[Tensor]:
        for one in (self.normalizer, self.return_scale):
            if one is not None:
                observation = one.normalize(observation)
        return observation

    def _act(
        self, observation: Observation[Tensor], episode_start: Tensor, state: PolicyState,
        rng: torch.Generator | None,
    ) -> tuple[Tensor, PolicyState]:  # fmt: skip
        action, encoder = self.learner.act(
            observation, state.previous_action, state.encoder, episode_start=episode_start,
            explore=rng is not None, generator=rng, averaged=self.averaged,
        )  # fmt: skip
        return action, PolicyState(encoder, self.learner.action_as_input(action))

    def _replay(
        self, observation: Observation[Tensor], episode_start: Tensor, state: PolicyState,
        rng: torch.Generator | None,
    ) -> tuple[Tensor, PolicyState]:  # fmt: skip
        """`_act` as a graph: one for each set and shape of inputs and each generator."""
        parts, kind = observation.parts(), type(state.encoder)
        names = list(parts)
        inputs = [*parts.values(), episode_start, state.previous_action, *state.encoder]
        key = (tuple(names), tuple(x.shape for x in inputs), id(rng))

        def flat(inputs: list[Tensor]) -> list[Tensor]:
            current = Observation(**dict(zip(names, inputs, strict=False)))
            start, previous, *memory = inputs[len(names) :]
            action, after = self._act(current, start, PolicyState(kind(*memory), previous), rng)
            return [action, after.previous_action, *after.encoder]

        if key not in self._graphed_calls:
            generators = [] if rng is None else [rng]
            self._graphed_calls[key] = GraphedCall(flat, generators, self.device)
        action, previous, *memory = self._graphed_calls[key](inputs)
        return action, PolicyState(kind(*memory), previous)

    def replace_action(self, action: NDArray[Any], state: PolicyState) -> PolicyState:
        """Return `state` with `action` as what was really done."""
        tensor = torch.as_tensor(action, device=self.device)
        return PolicyState(state.encoder, self.learner.action_as_input(tensor))


def _tensor(array: NDArray[Any]) -> Tensor:
    # torch warns of arrays that it must not write to
    return torch.from_numpy(np.require(array, requirements="W"))


class Session:
    """`act` once per time step; `reset` when a new episode begins.

    The same as calling `predict` with the state it returned the last time. A session serves one
    environment, or always the same number of them as a batch; several sessions of one model do not
    know of each other.

    Examples:
        >>> from kalmanac import RecurrentSAC, Track
        >>> env = Track(horizon=5)
        >>> session = RecurrentSAC("vssm+kf", env, seed=0).session()
        >>> observation, info = env.reset(seed=0)
        >>> over = False
        >>> while not over:
        ...     action = session.act(observation)
        ...     observation, reward, terminated, over, info = env.step(action)
        >>> session.state.encoder.variance.shape  # what the filter believes: (episodes, layers, N)
        torch.Size([1, 1, 128])
        >>> session.reset()  # before the next episode
    """

    def __init__(self, model: PredictingModel, *, deterministic: bool = True) -> None:
        self.model = model
        self.deterministic = deterministic
        self.state: Any = None
        self._starts: Any = None

    def act(
        self, observation: Any, *, action_masks: ArrayLike | None = None,
        observed: ArrayLike | None = None, previous_reward: ArrayLike | None = None,
    ) -> Any:  # fmt: skip
        """The action for this observation, in the environment's own terms.

        What else the environment says of this step, forbidden actions, missing readings and the
        reward that came with this observation, goes to `predict` as it is.
        """
        arguments = {
            "action_masks": action_masks, "observed": observed, "previous_reward": previous_reward
        }  # fmt: skip
        predict: Callable[..., tuple[Any, Any]] = self.model.predict
        action, self.state = predict(
            observation,
            state=self.state,
            episode_start=self._starts,
            deterministic=self.deterministic,
            **{name: x for name, x in arguments.items() if x is not None},
        )
        self._starts = None
        return action

    def reset(self, rows: ArrayLike | None = None) -> None:
        """Forget the episode; with a bool mask `rows` (n,), only those of a batch that ended."""
        if rows is None:
            self.state = self._starts = None
        elif self.state is not None:
            starts = np.asarray(rows, dtype=np.bool_)
            self._starts = starts if self._starts is None else self._starts | starts

    __call__ = act
