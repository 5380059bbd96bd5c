"""Twelve tasks of POPGym (paper, section 5.3) through a thin adapter.

Tasks and rewards are those of popgym 1.0.6, whose numbers the paper reports. The adapter one-hot
encodes what is discrete, counts the actions of a grid through, brings continuous ones to [−1, 1]
and tells the hidden state.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from kalmanac.envs.extras import load
from kalmanac.envs.generators import check_names, generator

Floats = NDArray[np.float32]
Row = spaces.Box[np.float32]

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
NOISE = {"NoisyPositionOnlyCartPoleHard": 0.3, "NoisyPositionOnlyPendulumHard": 0.3}

_MOST_ROWS = 4096  # of a table with every value of a space


class POPGym(gymnasium.Env[Floats, Any]):
    """One task by popgym's name for it, such as "RepeatPreviousEasy".

    Discrete and multi-discrete observations are one-hot, one group after another; a multi-discrete
    action is one number, counted row by row; rewards are float32. With `truth`,
    `info["privileged"]` is popgym's own `get_state()`, encoded in the same way; leaving it out
    saves its time.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}  # type: ignore[misc]

    def __init__(self, task: str = "RepeatPreviousEasy", truth: bool = True) -> None:
        tasks = load("popgym", "popgym.envs")
        kind = getattr(tasks, task, None)
        if not isinstance(kind, type) or not issubclass(kind, gymnasium.Env):
            raise ValueError(
                f"task: got {task!r}, expected a task of popgym such as 'RepeatPreviousEasy'"
            )
        self._task: Any = getattr(tasks, task)()
        self._step = self._task.step
        space, self._encode = one_hot(self._task.observation_space)
        self.observation_space = space
        self.privileged_space: Row | None = None
        if truth:
            self.privileged_space, self._encode_truth = one_hot(self._task.state_space)
        self.action_space, self._own_action = _actions(self._task.action_space)
        self._running = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Floats, dict[str, Any]]:
        """A new episode."""
        super().reset(seed=seed)
        observation, _ = self._task.reset(seed=seed)
        self._running = True
        return self._encode(observation), self._info()

    def step(self, action: Any) -> tuple[Floats, np.float32, bool, bool, dict[str, Any]]:
        """One action."""
        if not self._running:
            raise gymnasium.error.ResetNeeded("step: no episode is running, call reset first")
        if self._own_action is not None:
            action = self._own_action(action)
        observation, reward, terminated, truncated, _ = self._step(action)
        if terminated or truncated:
            self._running = False
        return (
            self._encode(observation), np.float32(reward), terminated, truncated,
            self._info() if self.privileged_space is not None else {},
        )  # fmt: skip

    def get_checkpoint_state(self) -> dict[str, Any]:
        """All that the future depends on, as plain data and arrays."""
        return {
            "task": _changing(self._task),
            "running": self._running,
            "generator": self._task.np_random.bit_generator.state,
        }

    def set_checkpoint_state(self, state: Mapping[str, Any]) -> None:
        """Go on exactly where `get_checkpoint_state` was called."""
        self._task.reset()  # what an episode works with is there from its beginning
        now = self.get_checkpoint_state()
        check_names(state, now)
        check_names(state["task"], now["task"], "state['task']")
        for name, value in state["task"].items():
            _restore(self._task, name, value)
        self._running = bool(state["running"])
        self._task.np_random = generator(state["generator"])

    def _info(self) -> dict[str, Any]:
        if self.privileged_space is None:
            return {}
        return {"privileged": self._encode_truth(self._task.get_state())}


def one_hot(space: gymnasium.Space[Any]) -> tuple[Row, Callable[[Any], Floats]]:
    """A flat Box for the values of `space`, and the function that puts a value into it.

    Groups stand in the order of the space: one-hot where it is discrete, as they are elsewhere.
    """
    leaves = space.spaces if isinstance(space, spaces.Tuple) else (space,)
    box = _flat_box(leaves)
    sizes = [n for leaf in leaves for n in _counts(leaf)]
    if all(sizes) and np.prod(sizes) <= _MOST_ROWS:
        table = np.zeros((*sizes, sum(sizes)), np.float32)
        for value in np.ndindex(*sizes):
            table[value][np.cumsum([0, *sizes[:-1]]) + value] = 1.0
        if isinstance(space, spaces.MultiDiscrete):
            return box, lambda value: table[tuple(value)].copy()
        return box, lambda value: table[value].copy()
    if isinstance(space, spaces.Box):
        return box, lambda value: np.array(value, np.float32).ravel()
    offsets, end = [], 0
    for leaf in leaves:
        offsets.append(end + np.cumsum([0, *_counts(leaf)[:-1]]) if all(_counts(leaf)) else end)
        end += _width(leaf)

    def encode(value: Any) -> Floats:
        row = np.zeros(end, np.float32)
        for leaf, offset, part in zip(leaves, offsets, value, strict=True):
            if isinstance(leaf, spaces.Box):
                row[offset : offset + _width(leaf)] = np.ravel(part)
            else:
                row[offset + part] = 1.0
        return row

    if isinstance(space, spaces.Tuple):
        return box, encode
    return box, lambda value: encode((value,))


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


def _counts(leaf: gymnasium.Space[Any]) -> list[int]:
    """How many values each discrete number of a space can have; a zero for a Box."""
    if isinstance(leaf, spaces.Discrete) and leaf.start == 0:
        return [int(leaf.n)]
    if isinstance(leaf, spaces.MultiDiscrete) and not leaf.start.any():
        return [int(n) for n in leaf.nvec.ravel()]
    if isinstance(leaf, spaces.Box):
        return [0]
    raise TypeError(f"space: got {leaf}, expected Box, Discrete or MultiDiscrete from 0 on")


def _width(leaf: gymnasium.Space[Any]) -> int:
    return int(np.prod(leaf.shape)) if isinstance(leaf, spaces.Box) else sum(_counts(leaf))


def _flat_box(leaves: Sequence[gymnasium.Space[Any]]) -> Row:
    largest = np.finfo(np.float32).max  # finite, because Gymnasium's checker asks for it
    low, high = [], []
    for leaf in leaves:
        width = _width(leaf)
        low.append(leaf.low.ravel() if isinstance(leaf, spaces.Box) else np.zeros(width))
        high.append(leaf.high.ravel() if isinstance(leaf, spaces.Box) else np.ones(width))
    least, most = (np.concatenate(side).clip(-largest, largest) for side in (low, high))
    return spaces.Box(least.astype(np.float32), most.astype(np.float32), dtype=np.float32)


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
