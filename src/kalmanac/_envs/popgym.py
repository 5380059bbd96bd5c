"""The tasks of POPGym through a thin adapter: all that it registers, twelve of them in the paper.

Tasks and rewards are those of popgym 1.0.6, whose numbers the paper reports (section 5.4). The
adapter one-hot encodes what is discrete, counts the actions of a grid through, brings continuous
ones to [−1, 1] and reports the hidden state. Labyrinths need mazelib, an extra of their own.
"""

import math
import random
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from itertools import product
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from kalmanac._envs.checkpointable import check_names, generator
from kalmanac._envs.extras import load

Floats = NDArray[np.float32]

LEVELS = ("Easy", "Medium", "Hard")
STEPS = {  # of the longest episode at each level
    "Autoencode": (103, 207, 311),
    "Battleship": (64, 100, 144),
    "Concentration": (104, 208, 104),
    "CountRecall": (51, 103, 207),
    "HigherLower": (51, 103, 155),
    "MineSweeper": (15, 31, 55),
    "MultiarmedBandit": (200, 400, 600),
    "NoisyPositionOnlyCartPole": (200, 200, 200),
    "NoisyPositionOnlyPendulum": (200, 200, 200),
    "PositionOnlyCartPole": (200, 400, 600),
    "PositionOnlyPendulum": (200, 150, 100),
    "RepeatFirst": (51, 415, 831),
    "RepeatPrevious": (51, 103, 155),
    "VelocityOnlyCartPole": (200, 400, 600),
    "LabyrinthEscape": (1023, 1023, 1023),
    "LabyrinthExplore": (1023, 1023, 1023),
}
# task → steps of its longest episode
HORIZONS = {
    f"{name}{level}": steps
    for name, longest in STEPS.items()
    for level, steps in zip(LEVELS, longest, strict=True)
}
PAPER = (  # the twelve of its benchmark
    "AutoencodeEasy", "CountRecallEasy", "HigherLowerEasy", "MineSweeperEasy",
    "MultiarmedBanditEasy", "MultiarmedBanditHard", "NoisyPositionOnlyCartPoleHard",
    "NoisyPositionOnlyPendulumHard", "RepeatFirstEasy", "RepeatFirstMedium",
    "RepeatPreviousEasy", "RepeatPreviousMedium",
)  # fmt: skip
CONTROL = ("CartPole", "Pendulum")
NOISE = {
    f"NoisyPositionOnly{name}{level}": noise
    for name in CONTROL
    for level, noise in zip(LEVELS, (0.1, 0.2, 0.3), strict=True)
}
MAZE = ("grid", "start", "end")  # what changes in a labyrinth
FEW = 1024  # values of a space, of which a table is made


def extra(task: str) -> str:
    """Name the extra that a task needs."""
    return "labyrinth" if task.startswith("Labyrinth") else "popgym"


class POPGym(gymnasium.Env[Floats, Any]):
    """This environment is one task by popgym's name for it, such as "RepeatPreviousEasy".

    Discrete and multi-discrete observations are one-hot, one group after another; a multi-discrete
    action is one number, counted row by row; rewards are float32. With `truth`,
    `info["privileged"]` is popgym's own `get_state()`, encoded in the same way; leaving it out
    saves its time.
    """

    def __init__(self, task: str = "RepeatPreviousEasy", truth: bool = True) -> None:
        tasks = load(extra(task), "popgym.envs")
        kind = getattr(tasks, task, None)
        if not isinstance(kind, type) or not issubclass(kind, gymnasium.Env):
            raise ValueError(
                f"task: got {task!r}, expected a task of popgym such as 'RepeatPreviousEasy'"
            )
        with warnings.catch_warnings():  # popgym calls its labyrinths a poor test of memory
            warnings.simplefilter("ignore", DeprecationWarning)
            self._task: Any = getattr(tasks, task)()
        self.observation_space, self._row = one_hot(self._task.observation_space)
        self.privileged_space: spaces.Box | None = None
        if truth:
            self.privileged_space, self._state_row = one_hot(self._task.state_space)
        self.action_space, self.own_action = _actions(self._task.action_space)
        # The number of steps is part of a game, though popgym calls the end of some truncation. A
        # pole or a pendulum knows no clock: where it is cut off, its value is not zero.
        control = any(name in task for name in CONTROL)
        self.metadata = {"render_modes": [], "bootstrap_truncated": control}
        self._labyrinth = extra(task) == "labyrinth"
        self._running = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Floats, dict[str, Any]]:
        """Begin a new episode."""
        super().reset(seed=seed)
        if self._labyrinth:
            with global_generators(self.np_random):
                observation, _ = self._task.reset(seed=seed)
        else:
            observation, _ = self._task.reset(seed=seed)
        self._running = True
        return self._row(observation), self._info()

    def step(self, action: Any) -> tuple[Floats, np.float32, bool, bool, dict[str, Any]]:
        """Take one action."""
        if not self._running:
            raise gymnasium.error.ResetNeeded("step: no episode is running, call reset first")
        if self.own_action is not None:
            action = self.own_action(action)
        # The agent must not learn what popgym puts into its own info.
        observation, reward, terminated, truncated, _ = self._task.step(action)
        self._running = not (terminated or truncated)
        info = {} if self.privileged_space is None else self._info()
        return self._row(observation), np.float32(reward), terminated, truncated, info

    def get_checkpoint_state(self) -> dict[str, Any]:
        """Return all that the future depends on, as plain data and arrays."""
        drawing = self._task.np_random.bit_generator.state  # first: reading it may create it
        if self._labyrinth:
            drawing = self.np_random.bit_generator.state
        return {"task": _changing(self._task), "running": self._running, "generator": drawing}

    def set_checkpoint_state(self, state: Mapping[str, Any]) -> None:
        """Go on exactly where `get_checkpoint_state` was called."""
        self.reset()  # what an episode works with is there from its beginning
        now = self.get_checkpoint_state()
        check_names(state, now)
        check_names(state["task"], now["task"], "state['task']")
        for name, value in state["task"].items():
            _restore(self._task, name, value)
        self._running = bool(state["running"])
        (self if self._labyrinth else self._task).np_random = generator(state["generator"])

    def _info(self) -> dict[str, Any]:
        if self.privileged_space is None:
            return {}
        return {"privileged": self._state_row(self._task.get_state())}


@contextmanager
def global_generators(own: np.random.Generator) -> Iterator[None]:
    """Let the global generators, by which mazelib draws, follow `own` and then be as before."""
    before = random.getstate(), np.random.get_state()  # noqa: NPY002, mazelib's own
    random.seed(int(own.integers(2**32)))
    np.random.seed(int(own.integers(2**32)))  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002


def one_hot(space: gymnasium.Space[Any]) -> tuple[spaces.Box[np.float32], Callable[[Any], Floats]]:
    """Return a flat Box for the values of `space`, and a function from a value to a new row.

    Groups stand in the order of the space: a discrete number is one-hot, the numbers of a Box stay
    as they are.
    """
    leaves = space.spaces if isinstance(space, spaces.Tuple) else (space,)
    low, high, end = [], [], 0
    places: list[Any] = []  # of a Box its slice, else where its groups begin: one or an array
    for leaf in leaves:
        if isinstance(leaf, spaces.MultiBinary):
            leaf = spaces.Box(0, 1, leaf.shape)
        if isinstance(leaf, spaces.Box):
            low.append(leaf.low.ravel())
            high.append(leaf.high.ravel())
            places.append(slice(end, end + low[-1].size))
        else:
            counts = _counts(leaf)
            low.append(np.zeros(sum(counts)))
            high.append(np.ones(sum(counts)))
            begins = end + np.cumsum([0, *counts[:-1]]).reshape(leaf.shape)
            places.append(begins if leaf.shape else end)
        end += low[-1].size
    largest = np.finfo(np.float32).max  # finite, because Gymnasium's checker asks for it
    least, most = (np.concatenate(side).clip(-largest, largest) for side in (low, high))
    box = spaces.Box(least.astype(np.float32), most.astype(np.float32), dtype=np.float32)

    def choice(value: Any) -> Floats:
        row = np.zeros(end, np.float32)
        row[places[0] + value] = 1.0
        return row

    def numbers(value: NDArray[Any]) -> Floats:
        return np.array(value, np.float32).reshape(end)

    def groups(values: Any) -> Floats:
        row = np.zeros(end, np.float32)
        for place, value in zip(places, values, strict=True):
            if isinstance(place, slice):
                row[place] = value.ravel()
            else:
                row[place + np.asarray(value, np.int64)] = 1.0
        return row

    if isinstance(space, spaces.Box):
        return box, numbers
    return box, _looked_up(space, groups if isinstance(space, spaces.Tuple) else choice)


def _looked_up(
    space: gymnasium.Space[Any], row: Callable[[Any], Floats]
) -> Callable[[Any], Floats]:
    """Return `row`, from a table where a space has few values: many steps are shorter than it."""
    if isinstance(space, spaces.Discrete):
        of_number = [row(i) for i in range(int(space.n))]
        return lambda value: of_number[value].copy()
    if isinstance(space, spaces.Tuple) and all(isinstance(x, spaces.Discrete) for x in space):
        numbers = product(*(range(count) for leaf in space for count in _counts(leaf)))
        of_numbers = {value: row(value) for value in numbers}
        return lambda value: of_numbers[value].copy()
    if isinstance(space, spaces.MultiDiscrete) and math.prod(_counts(space)) <= FEW:
        arrays = (np.reshape(value, space.shape) for value in np.ndindex(*_counts(space)))
        of_bytes = {value.tobytes(): row(value) for value in arrays}
        return lambda value: of_bytes[value.tobytes()].copy()
    return row


def _counts(leaf: gymnasium.Space[Any]) -> list[int]:
    """Count the values that each number of a discrete space can have."""
    if isinstance(leaf, spaces.Discrete) and leaf.start == 0:
        return [int(leaf.n)]
    if isinstance(leaf, spaces.MultiDiscrete) and not leaf.start.any():
        return [int(n) for n in leaf.nvec.ravel()]
    raise TypeError(f"space: got {leaf}, expected Box, Discrete or MultiDiscrete from 0 on")


def _actions(
    space: gymnasium.Space[Any],
) -> tuple[gymnasium.Space[Any], Callable[[Any], Any] | None]:
    """Return the adapter's action space, and what turns its actions into the task's, if need be."""
    if isinstance(space, spaces.MultiDiscrete):
        grid = tuple(int(n) for n in space.nvec)
        return spaces.Discrete(int(np.prod(grid))), lambda action: np.unravel_index(action, grid)
    if isinstance(space, spaces.Box):  # all of popgym's are symmetric
        return spaces.Box(-1.0, 1.0, space.shape, np.float32), lambda action: space.high * action
    return space, None


def _changing(task: Any) -> dict[str, Any]:
    """Collect a task's numbers, arrays and decks; the rest stays as it was constructed."""
    state: dict[str, Any] = {}
    for name, value in vars(task).items():
        if hasattr(value, "hands"):
            hands = {player: list(cards) for player, cards in value.hands.items()}
            state[name] = {"cards": value.idx.copy(), "left": value.deck_len, "hands": hands}
        elif isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
            state[name] = value.copy()
        elif isinstance(value, np.generic):
            state[name] = value.item()
        elif isinstance(value, bool | int | float) or value is None:
            state[name] = value.value if isinstance(value, Enum) else value
        elif hasattr(value, "grid"):  # a labyrinth
            state[name] = {part: np.array(getattr(value, part)) for part in MAZE}
        elif name == "position":  # in a labyrinth
            state[name] = [int(number) for number in value]
    return state


def _restore(task: Any, name: str, value: Any) -> None:
    """Give an attribute its value back, in the type that it has now."""
    now = getattr(task, name)
    if hasattr(now, "hands"):
        now.idx, now.deck_len = np.array(value["cards"], now.idx.dtype), int(value["left"])
        for player, cards in value["hands"].items():
            now.hands[player][:] = map(int, cards)
    elif hasattr(now, "grid"):
        now.grid[...] = value["grid"]
        now.start, now.end = (tuple(map(int, value[part])) for part in MAZE[1:])
    elif isinstance(now, np.ndarray):
        now[...] = value  # in place: others may hold it too
    elif isinstance(now, tuple | np.generic | Enum):
        setattr(task, name, type(now)(value))
    else:
        setattr(task, name, value)
