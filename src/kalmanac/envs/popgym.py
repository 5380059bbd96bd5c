"""Twelve tasks of POPGym (paper, section 5.3) through a thin adapter.

Tasks and rewards are those of popgym 1.0.6, whose numbers the paper reports. The adapter one-hot
encodes what is discrete, counts the actions of a grid through, brings continuous ones to [−1, 1]
and tells the hidden state.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from kalmanac.envs.extras import load
from kalmanac.envs.generators import check_names, generator
from kalmanac.envs.one_hot import Row, one_hot

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
NOISE = {"NoisyPositionOnlyCartPoleHard": 0.3, "NoisyPositionOnlyPendulumHard": 0.3}


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
        self.observation_space, self._row = one_hot(self._task.observation_space)
        self.privileged_space: Row | None = None
        self._truth: Callable[[Any], Floats] | None = None
        if truth:
            self.privileged_space, self._truth = one_hot(self._task.state_space)
        self.action_space, self.own_action = _actions(self._task.action_space)
        self._reward = lru_cache(maxsize=64)(np.float32)  # most tasks pay two or three numbers
        self._act = self._refuse  # a step is too short for asking whether an episode is running

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Floats, dict[str, Any]]:
        """A new episode."""
        super().reset(seed=seed)
        observation, _ = self._task.reset(seed=seed)
        self._go_on(True)
        return self._row(observation).copy(), self._info()

    def step(self, action: Any) -> tuple[Floats, np.float32, bool, bool, dict[str, Any]]:
        """One action."""
        observation, reward, terminated, truncated, _ = self._act(action)
        if terminated or truncated:
            self._go_on(False)
        info = {} if self._truth is None else self._info()
        return self._row(observation).copy(), self._reward(reward), terminated, truncated, info

    def get_checkpoint_state(self) -> dict[str, Any]:
        """All that the future depends on, as plain data and arrays."""
        return {
            "task": _changing(self._task),
            "running": self._act != self._refuse,
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
        self._go_on(bool(state["running"]))
        self._task.np_random = generator(state["generator"])

    def _info(self) -> dict[str, Any]:
        if self._truth is None:
            return {}
        return {"privileged": self._truth(self._task.get_state()).copy()}

    def _go_on(self, running: bool) -> None:
        if not running:
            self._act = self._refuse
        else:
            self._act = self._task.step if self.own_action is None else self._translated

    def _translated(self, action: Any) -> Any:
        assert self.own_action is not None
        return self._task.step(self.own_action(action))

    def _refuse(self, action: Any) -> Any:
        raise gymnasium.error.ResetNeeded("step: no episode is running, call reset first")


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
