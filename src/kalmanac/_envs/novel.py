"""NoVel: three classic control tasks whose velocities are hidden, as in RL Baselines3 Zoo.

Positions and angles are observed; speeds have to be inferred from how they change. Physics,
rewards and time limits are Gymnasium's. `HiddenNumbers` hides numbers of any other environment.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from gymnasium.wrappers import TimeLimit
from numpy.typing import NDArray

from kalmanac._envs.checkpointable import check_state
from kalmanac._envs.observation_codecs import unmeasured_places
from kalmanac._envs.wrappers import CorruptionWrapper, ObservationAsPrivileged


class HiddenNumbers(CorruptionWrapper):
    """Leaves the numbers at the places `hidden` out of every observation, the first one too.

    They are dropped, not set to zero: the observation is that much shorter. Places count from 0;
    the observation is a vector, a Box of one axis. `info["privileged"]`, rewards and ends are left
    alone.

    Examples:
        >>> import gymnasium
        >>> from kalmanac import HiddenNumbers
        >>> env = HiddenNumbers(gymnasium.make("CartPole-v1"), (1, 3))  # without its velocities
        >>> env.reset(seed=0)[0].shape
        (2,)
    """

    def __init__(self, env: gymnasium.Env[Any, Any], hidden: Sequence[int]) -> None:
        hidden = tuple(hidden)
        super().__init__(env, hidden=hidden)
        space = env.observation_space
        if not isinstance(space, spaces.Box) or len(space.shape) != 1:
            raise TypeError(f"observation space: got {space}, expected a Box of one axis")
        places = range(space.shape[0])
        valid = all(type(place) is not bool and place in places for place in hidden)
        if not valid or len(set(hidden)) != len(hidden) or not 0 < len(hidden) < len(places):
            raise ValueError(
                f"hidden: got {hidden}, expected different places of 0 to {len(places) - 1}, "
                "at least one and not all"
            )
        self._shown = np.array([place for place in places if place not in hidden])
        kept = unmeasured_places(env)
        self.unmeasured = [i for i, place in enumerate(self._shown) if place in kept]
        low, high = space.low[self._shown], space.high[self._shown]
        self.observation_space = spaces.Box(low, high, dtype=space.dtype.type)

    def transform_observation(
        self, observation: NDArray[Any], info: dict[str, Any], first: bool
    ) -> NDArray[Any]:
        """Return the numbers that are shown, as a new array."""
        return observation[self._shown]


class Task(NamedTuple):
    """A task of Gymnasium."""

    id: str
    velocities: tuple[int, ...]  # their places in the observation
    horizon: int  # steps of the longest episode


TASKS = {
    "CartPole": Task("CartPole-v1", (1, 3), 500),
    "Pendulum": Task("Pendulum-v1", (2,), 200),
    "MountainCarContinuous": Task("MountainCarContinuous-v0", (1,), 999),
}


class ClassicControl(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """This wrapper lets a classic control task without its time limit be resumed."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        super().__init__(env)

    def get_checkpoint_state(self) -> dict[str, Any]:
        """Return all that the future depends on: the mechanical state and the generator."""
        inside: Any = self.unwrapped
        return {
            "state": None if inside.state is None else np.array(inside.state),
            "fallen": getattr(inside, "steps_beyond_terminated", None),  # CartPole alone
            "generator": inside.np_random.bit_generator.state,
        }

    def set_checkpoint_state(self, state: Mapping[str, Any]) -> None:
        """Go on exactly where `get_checkpoint_state` was called."""
        check_state(state, self.get_checkpoint_state())
        inside: Any = self.unwrapped
        inside.state = np.array(state["state"])
        if hasattr(inside, "steps_beyond_terminated"):
            inside.steps_beyond_terminated = state["fallen"]
        inside.np_random.bit_generator.state = state["generator"]


def novel(task: str = "Pendulum", *, render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
    """Make one of TASKS, whose `info["privileged"]` holds positions and velocities."""
    if task not in TASKS:
        raise ValueError(f"task: got {task!r}, expected one of {', '.join(TASKS)}")
    settings = TASKS[task]
    physics = ClassicControl(gymnasium.make(settings.id, render_mode=render_mode).unwrapped)
    whole = ObservationAsPrivileged(TimeLimit(physics, settings.horizon))
    return HiddenNumbers(whole, settings.velocities)
