"""Twelve tasks of POPGym (paper, section 5.4) through a thin adapter.

Tasks and rewards are those of popgym 1.0.6, whose numbers the paper reports. The adapter one-hot
encodes what is discrete, counts the actions of a grid through, brings continuous ones to [−1, 1]
and tells the hidden state.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from enum import Enum
from functools import cache
from types import MethodType
from typing import Any, ClassVar, final

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import seeding
from numpy.typing import NDArray

from kalmanac.envs.extras import load
from kalmanac.envs.generators import check_names, generator
from kalmanac.envs.one_hot import Row, Rows, one_hot

Floats = NDArray[np.float32]

# task → steps of its longest episode
HORIZONS = {
    "AutoencodeEasy": 103,
    "CountRecallEasy": 51,
    "HigherLowerEasy": 51,
    "MineSweeperEasy": 15,
    "MultiarmedBanditEasy": 200,
    "MultiarmedBanditHard": 600,
    "NoisyPositionOnlyCartPoleHard": 200,
    "NoisyPositionOnlyPendulumHard": 200,
    "RepeatFirstEasy": 51,
    "RepeatFirstMedium": 415,
    "RepeatPreviousEasy": 51,
    "RepeatPreviousMedium": 103,
}
_MOST_REWARDS = 64  # whose float32 is remembered; most tasks pay two or three numbers
NOISE = {"NoisyPositionOnlyCartPoleHard": 0.3, "NoisyPositionOnlyPendulumHard": 0.3}


class POPGym(gymnasium.Env[Floats, Any]):
    """One task by popgym's name for it, such as "RepeatPreviousEasy".

    Discrete and multi-discrete observations are one-hot, one group after another; a multi-discrete
    action is one number, counted row by row; rewards are float32. With `truth`,
    `info["privileged"]` is popgym's own `get_state()`, encoded in the same way; leaving it out
    saves its time. Every observation is the caller's own; without `copy`, the same few one-hot rows
    are handed out again and again, read-only, for those who copy them anyway, as all vectors do.
    """

    # A task's number of steps is part of it: popgym calls the end of some of them truncation.
    metadata: ClassVar[dict[str, Any]] = {  # type: ignore[misc]
        "render_modes": [], "bootstrap_truncated": False
    }  # fmt: skip

    def __init__(
        self, task: str = "RepeatPreviousEasy", truth: bool = True, copy: bool = True
    ) -> None:
        tasks = load("popgym", "popgym.envs")
        kind = getattr(tasks, task, None)
        if not isinstance(kind, type) or not issubclass(kind, gymnasium.Env):
            raise ValueError(
                f"task: got {task!r}, expected a task of popgym such as 'RepeatPreviousEasy'"
            )
        self._task: Any = _quick(getattr(tasks, task))()
        self.observation_space, self._rows = one_hot(self._task.observation_space, copy)
        self.privileged_space: Row | None = None
        self._truth: Rows | None = None
        if truth:
            self.privileged_space, self._truth = one_hot(self._task.state_space, copy)
            self.step = self._telling_step  # type: ignore[method-assign]
        self.action_space, self.own_action = _actions(self._task.action_space)
        self._rewards: dict[float, np.float32] = {}
        # What steps go to; a step is too short for asking whether an episode is running.
        self._playing = self._task
        if self.own_action is not None:
            self._playing = _Translated(self._task, self.own_action)
        self._game: Any = _NoEpisode()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Floats, dict[str, Any]]:
        """A new episode."""
        if seed is not None:
            super().reset(seed=seed)
        observation, told = self._task.reset(seed=seed)
        told.clear()  # none of it is handed on, and the bandits copy theirs at every step
        self._game = self._playing
        return self._rows[observation], self._info()

    def step(self, action: Any) -> tuple[Floats, np.float32, bool, bool, dict[str, Any]]:
        """One action."""
        observation, reward, terminated, truncated, info = self._game.step(action)
        if terminated or truncated:
            self._game = _NoEpisode()
        try:
            reward = self._rewards[reward]
        except KeyError:
            reward = self._rounded(reward)
        # popgym makes an info for every step; what it tells in one is no business of the agent
        return self._rows[observation], reward, terminated, truncated, {} if info else info

    def _telling_step(self, action: Any) -> tuple[Floats, np.float32, bool, bool, dict[str, Any]]:
        """One action; the state is told."""
        row, reward, terminated, truncated, _ = POPGym.step(self, action)
        return row, reward, terminated, truncated, self._info()

    def get_checkpoint_state(self) -> dict[str, Any]:
        """All that the future depends on, as plain data and arrays."""
        return {
            "task": _changing(self._task),
            "running": self._game is self._playing,
            "generator": self._task.np_random.bit_generator.state,
        }

    def set_checkpoint_state(self, state: Mapping[str, Any]) -> None:
        """Go on exactly where `get_checkpoint_state` was called."""
        self.reset()  # what an episode works with is there from its beginning
        now = self.get_checkpoint_state()
        check_names(state, now)
        check_names(state["task"], now["task"], "state['task']")
        for name, value in state["task"].items():
            _restore(self._task, name, value)
        self._game = self._playing if state["running"] else _NoEpisode()
        self._task.np_random = generator(state["generator"])

    def __deepcopy__(self, memo: dict[int, Any]) -> "POPGym":
        for rows in (self._rows, self._truth):  # a copy of a read-only row could be written
            memo[id(rows)] = rows
        copied = memo[id(self)] = POPGym.__new__(type(self))
        vars(copied).update(deepcopy(vars(self), memo))
        return copied

    def _info(self) -> dict[str, Any]:
        if self._truth is None:
            return {}
        return {"privileged": self._truth[self._task.get_state()]}

    def _rounded(self, reward: float) -> np.float32:
        rounded = np.float32(reward)
        if len(self._rewards) < _MOST_REWARDS:
            self._rewards[reward] = rounded
        return rounded


@final
class _Translated:
    """A task whose actions are translated on their way."""

    def __init__(self, task: Any, own_action: Callable[[Any], Any]) -> None:
        self._task, self._own_action = task, own_action

    def step(self, action: Any) -> Any:
        return self._task.step(self._own_action(action))


@final
class _NoEpisode:
    """What steps go to before an episode, and after it."""

    def step(self, action: Any) -> Any:
        raise gymnasium.error.ResetNeeded("step: no episode is running, call reset first")


@cache  # one class for all copies of a task: Python's caches of attributes go by class
def _quick(kind: type[Any]) -> type[Any]:
    """The same task, whose `np_random` is a place in memory, and whose cards are dealt quickly.

    Gymnasium's is a property that asks at every draw whether there is a generator. Here there
    always is one, and `np_random` is another name for where Gymnasium keeps it.
    """
    # Those of another task: Python finds attributes slowly in objects once they have shown `vars`.
    decks = [name for name, value in vars(kind()).items() if hasattr(value, "hands")]

    @final
    class Quick(kind):  # type: ignore[misc]
        __slots__ = ("_np_random",)

        def __init__(self) -> None:
            self._np_random, self._np_random_seed = seeding.np_random()  # type: ignore[misc]
            super().__init__()
            for name in decks:
                deck = getattr(self, name)
                deck.deal = MethodType(_deal, deck)

    Quick.np_random = Quick.__dict__["_np_random"]
    return Quick


def _deal(deck: Any, player: str, num_cards: int = 1) -> None:
    """What popgym's `Deck.deal` does; one card, the usual case, without slices of arrays."""
    left = deck.deck_len - num_cards
    if num_cards == 1 and left >= 0:
        deck.hands[player].append(deck.idx.item(left))
        deck.deck_len = left
    else:
        type(deck).deal(deck, player, num_cards)


def _actions(
    space: gymnasium.Space[Any],
) -> tuple[gymnasium.Space[Any], Callable[[Any], Any] | None]:
    """The adapter's action space, and how its actions become the task's; None: as they are."""
    if isinstance(space, spaces.MultiDiscrete):
        grid = tuple(int(n) for n in space.nvec)
        return spaces.Discrete(int(np.prod(grid))), lambda action: np.unravel_index(action, grid)
    if isinstance(space, spaces.Box):  # all of popgym's are symmetric
        return spaces.Box(-1.0, 1.0, space.shape, np.float32), lambda action: space.high * action
    return space, None


def _changing(task: Any) -> dict[str, Any]:
    """A task's numbers, arrays and decks of cards; the rest stays as it was constructed."""
    found: dict[str, Any] = {}
    for name, value in vars(task).items():
        if hasattr(value, "hands"):
            hands = {player: list(cards) for player, cards in value.hands.items()}
            found[name] = {"cards": value.idx.copy(), "left": value.deck_len, "hands": hands}
        elif isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
            found[name] = value.copy()
        elif isinstance(value, np.generic):
            found[name] = value.item()
        elif isinstance(value, bool | int | float) or value is None:
            found[name] = value.value if isinstance(value, Enum) else value
    return found


def _restore(task: Any, name: str, value: Any) -> None:
    """Give an attribute its value back, in the type that it has now."""
    now = getattr(task, name)
    if hasattr(now, "hands"):
        now.idx, now.deck_len = np.array(value["cards"], now.idx.dtype), int(value["left"])
        for player, cards in value["hands"].items():
            now.hands[player][:] = map(int, cards)
    elif isinstance(now, np.ndarray):
        now[...] = value  # in place: others may hold it too
    elif isinstance(now, np.generic | Enum):
        setattr(task, name, type(now)(value))
    else:
        setattr(task, name, value)
