"""The policy in use: observations go in, actions come out, and its memory is passed along.

A `Session` carries that memory for its user.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from kalmanac._observation import Observation
from kalmanac._ops.cuda_streams import ForkedStreams
from kalmanac._ops.transfer import Returning, arrived, packed, sent, side_by_side, unpacked
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

    @property
    def tensors(self) -> list[Tensor]:
        """All of it."""
        return [self.previous_action, *self.encoder]

    def like(self, tensors: Iterator[Tensor]) -> "PolicyState":
        """A state of this kind, of the next `tensors`."""
        previous_action = next(tensors)
        return PolicyState(type(self.encoder)(*islice(tensors, len(self.encoder))), previous_action)


class PendingActions:
    """Actions that policies are choosing, perhaps still on a GPU: `actions` waits for them all."""

    def __init__(self, returning: Returning, number: int, state: PolicyState) -> None:
        self.state = state  # with the actions in it
        self._returning, self._number = returning, number

    def actions(self) -> NDArray[Any]:
        """Agent actions, int64 (n,) or float32 (n, A)."""
        return self._returning.arrays()[self._number]


class Question(NamedTuple):
    """What n environments show a policy, and what it remembers of their episodes."""

    policy: "Policy"
    observation: Observation[Any]
    state: PolicyState
    episode_start: Any
    generator: torch.Generator | None  # draws the actions; None: the most likely ones

    def shown(self) -> list[Tensor]:
        """All that the host has to tell."""
        parts = self.observation._replace(privileged=None).parts().values()
        # torch warns of arrays that it must not write to
        arrays = [np.require(x, requirements="W") for x in (self.episode_start, *parts)]
        return [torch.from_numpy(x) for x in arrays]

    def answer(self, shown: Iterator[Tensor], memory: Iterator[Tensor]) -> tuple[Tensor, Any]:
        """The answer to a question like this one, with these tensors on the device in it."""
        start, parts = next(shown), self.observation._replace(privileged=None)
        observation = parts.map(lambda _: next(shown))
        return self.policy.answer(observation, start, self.state.like(memory), self.generator)


class Asking:
    """Asks one policy or several at once: one copy there, one graph, and one copy back on a GPU.

    With `carried`, the memory stays where the graph left it: a state is good until the next
    question. Whatever else is asked comes after it on the device.
    """

    def __init__(self, *, carried: bool = False) -> None:
        self.carried = carried
        self._recordings: dict[Hashable, tuple[GraphedCall, list[Tensor]]] = {}

    def __call__(self, questions: Sequence[Question]) -> list[PendingActions]:
        """Let them choose; on a GPU nobody waits before the actions are read."""
        device = questions[0].policy.device
        shown = [x for question in questions for x in question.shown()]
        memory, joined = [x for question in questions for x in question.state.tensors], None
        if can_record(device) and all(question.policy.replays for question in questions):
            for question in questions:
                question.policy.settle()
            whose = ((question.policy, question.generator) for question in questions)
            key = (*whose, *((x.shape, x.dtype) for x in (*shown, *memory)))
            if key not in self._recordings:
                self._recordings[key] = self._recording(questions, shown, device)
            call, actions = self._recordings[key]
            joined, *memory = call([packed(shown, device), *memory])
        else:
            actions, memory = _answers(questions, sent(shown, device), memory)
        returning, tensors = Returning(actions, joined), iter(memory)
        return [
            PendingActions(returning, number, question.state.like(tensors))
            for number, question in enumerate(questions)
        ]

    def _recording(
        self, questions: Sequence[Question], shown: list[Tensor], device: torch.device
    ) -> tuple[GraphedCall, list[Tensor]]:
        """The answers to such questions as a graph of branches, and actions like those in them."""
        streams, like = ForkedStreams(device, most=len(questions)), list[Tensor]()

        def function(inputs: list[Tensor]) -> list[Tensor]:
            values = unpacked(arrived(inputs[0], device), shown)
            like[:], memory = _answers(questions, values, inputs[1:], streams)
            return [side_by_side(like), *memory]

        generators = [x.generator for x in questions if x.generator is not None]
        return GraphedCall(function, generators, device, carried=self.carried), like


def _answers(
    questions: Sequence[Question], shown: Sequence[Tensor], memory: Sequence[Tensor],
    streams: ForkedStreams | None = None,
) -> tuple[list[Tensor], list[Tensor]]:  # fmt: skip
    """The actions of all policies, and what they remember then; perhaps side by side."""
    values, tensors = iter(shown), iter(memory)
    pieces = [partial(question.answer, values, tensors) for question in questions]
    results = [piece() for piece in pieces] if streams is None else streams(None, *pieces)
    return [action for action, _ in results], [x for _, state in results for x in state.tensors]


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
        self._asking = Asking()

    @property
    def replays(self) -> bool:
        """Whether acting may be a graph."""
        return self.graph and not self.eager

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
        (pending,) = self._asking([Question(self, observation, state, episode_start, rng)])
        return pending.actions(), pending.state

    def choose(
        self, observation: Observation[Tensor], state: PolicyState, *, episode_start: Tensor
    ) -> tuple[Tensor, PolicyState]:
        """The most likely actions for n raw observations on the device, where all stays."""
        return self.answer(observation, episode_start, state, None)

    def settle(self) -> None:
        """Bring the normalizers on the device up to date, before `choose` is recorded."""
        for one in (self.normalizer, self.return_scale):
            if one is not None:
                one.settle(self.device)

    def answer(
        self, observation: Observation[Tensor], episode_start: Tensor, state: PolicyState,
        rng: torch.Generator | None,
    ) -> tuple[Tensor, PolicyState]:  # fmt: skip
        """Actions for n raw observations, which `rng` draws, if given; all on the device."""
        for one in (self.normalizer, self.return_scale):
            if one is not None:
                observation = one.normalize(observation)
        action, encoder = self.learner.act(
            observation, state.previous_action, state.encoder, episode_start=episode_start,
            explore=rng is not None, generator=rng, averaged=self.averaged,
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
