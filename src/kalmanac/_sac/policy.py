"""The policy in use: observations go in, actions come out, and its memory is passed along.

A `Session` carries that memory for its user.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from kalmanac._observation import Observation
from kalmanac._ops.cuda_streams import ForkedStreams
from kalmanac._ops.graphed_call import GraphedCall, can_record
from kalmanac._ops.transfer import Returning, packed, sent, unpacked
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

    def like(self, tensors: Iterator[Tensor]) -> "PolicyState":
        """A state of this kind, of the next `tensors`."""
        previous = next(tensors)
        return PolicyState(type(self.encoder)(*(next(tensors) for _ in self.encoder)), previous)


class PendingActions(NamedTuple):
    """Actions that a policy is choosing, perhaps still on a GPU, and the state that has them."""

    action: Returning  # int64 (n,) or float32 (n, A)
    state: PolicyState


class Question(NamedTuple):
    """What n environments show a policy, and what it remembers of their episodes."""

    policy: "Policy"
    observation: Observation[Any]  # arrays of the host; none that only a critic may see
    episode_start: NDArray[np.bool_]
    state: PolicyState
    generator: torch.Generator | None  # draws the actions; None: the most likely ones
    noise: NDArray[np.float32] | None = None  # (n, A) that it is to draw by instead

    @property
    def shown(self) -> list[NDArray[Any]]:
        """All arrays that go to the device, in the order in which `answer` takes them."""
        seen = [self.episode_start, *self.observation.parts().values()]
        return seen if self.noise is None else [*seen, self.noise]

    def answer(self, shown: Iterator[Tensor], memory: Iterator[Tensor]) -> list[Tensor]:
        """Actions, and the memory with them, for such a question of tensors on the device."""
        start, seen = next(shown), self.observation.map(lambda _: next(shown))
        noise = None if self.noise is None else next(shown)
        before = self.state.like(memory)
        action, state = self.policy.answer(seen, start, before, self.generator, noise)
        return [action, state.previous_action, *state.encoder]


class Asking:
    """Asks one policy or several at once: on a GPU, one copy of what they see and one graph.

    With `carried`, the memory stays where the graph left it: a state is good until the next
    question. Whatever else is asked comes after it on the device.
    """

    def __init__(self, *, carried: bool = False) -> None:
        self.carried = carried
        self._recordings: dict[Hashable, GraphedCall] = {}

    def __call__(self, questions: Sequence[Question]) -> list[PendingActions]:
        """Let them choose; on a GPU nobody waits before the actions are read."""
        device = questions[0].policy.device
        told = [x for q in questions for x in q.shown]
        # torch warns of arrays that it must not write to
        shown = [torch.from_numpy(np.require(x, requirements="W")) for x in told]
        memory = [x for q in questions for x in (q.state.previous_action, *q.state.encoder)]
        if can_record(device) and all(q.policy.graph and not q.policy.eager for q in questions):
            for q in questions:
                q.policy.settle()
            whose = ((q.policy, q.generator) for q in questions)
            key = (*whose, *((x.shape, x.dtype) for x in (*shown, *memory)))
            if key not in self._recordings:
                self._recordings[key] = self._recording(questions, shown)
            results = self._recordings[key]([packed(shown, device), *memory])
        else:
            results = _answers(questions, sent(shown, device), memory, ForkedStreams(device, 1))
        actions, after = map(Returning, results[: len(questions)]), iter(results[len(questions) :])
        return [PendingActions(next(actions), q.state.like(after)) for q in questions]

    def _recording(self, questions: Sequence[Question], shown: list[Tensor]) -> GraphedCall:
        """The answers to such questions, as branches of a graph."""
        device = questions[0].policy.device
        streams = ForkedStreams(device, len(questions))

        def function(inputs: list[Tensor]) -> list[Tensor]:
            values = unpacked(inputs[0].to(device, non_blocking=True), shown)
            return _answers(questions, values, inputs[1:], streams)

        generators = [q.generator for q in questions if q.generator is not None]
        return GraphedCall(function, generators, device, carried=self.carried)


def _answers(
    questions: Sequence[Question], shown: Sequence[Tensor], memory: Sequence[Tensor],
    streams: ForkedStreams,
) -> list[Tensor]:  # fmt: skip
    """The actions of all, and then what they remember."""
    values, tensors = iter(shown), iter(memory)
    results = streams(None, *(partial(q.answer, values, tensors) for q in questions))
    return [x[0] for x in results] + [x for result in results for x in result[1:]]


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
        self.return_scale = return_scale
        self.scales = [x for x in (normalizer, return_scale) if x is not None]
        self.averaged = averaged
        self.device = learner.device
        self.eager = False
        self._asking = Asking()

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
        rng = (generator or self.learner.acting) if explore else None
        seen = observation._replace(privileged=None)
        (pending,) = self._asking([Question(self, seen, episode_start, state, rng)])
        return pending.action.array(), pending.state

    def settle(self) -> None:
        """Bring the normalizers on the device up to date, before `answer` is recorded."""
        for scale in self.scales:
            scale.settle(self.device)

    def answer(
        self, observation: Observation[Tensor], episode_start: Tensor, state: PolicyState,
        rng: torch.Generator | None, noise: Tensor | None = None,
    ) -> tuple[Tensor, PolicyState]:  # fmt: skip
        """Actions for n raw observations, which `rng` draws, if given; all on the device.

        The noise, (n, A), takes the place of what `rng` would draw.
        """
        for scale in self.scales:
            observation = scale.normalize(observation)
        action, encoder = self.learner.act(
            observation, state.previous_action, state.encoder, episode_start=episode_start,
            explore=rng is not None, generator=rng, noise=noise, averaged=self.averaged,
        )  # fmt: skip
        return action, PolicyState(encoder, self.learner.action_as_input(action))

    def replace_action(self, action: NDArray[Any], state: PolicyState) -> PolicyState:
        """Return `state` with `action` as what was really done."""
        tensor = torch.as_tensor(action, device=self.device)
        return PolicyState(state.encoder, self.learner.action_as_input(tensor))


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
