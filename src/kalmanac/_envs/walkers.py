"""Walkers of which only positions (-P) or only velocities (-V) are observed.

The machines are Gymnasium's of MuJoCo, version 5, and PyBullet's through pybullet_envs_gymnasium;
physics, rewards and time limits are theirs. Which numbers are positions is pomdp-baselines' choice
for PyBullet, and where MuJoCo's qpos ends for MuJoCo. `info["privileged"]` has all of them.
PyBullet has no state that can be left and entered again: a resumed run begins new episodes there.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from gymnasium.wrappers import TimeLimit

from kalmanac._envs.checkpointable import check_state
from kalmanac._envs.dmc import quiet
from kalmanac._envs.extras import load
from kalmanac._envs.novel import HiddenNumbers
from kalmanac._envs.wrappers import CorruptionWrapper, ObservationAsPrivileged

HORIZON = 1000  # steps of the longest episode
SHOWN = ("P", "V")


class Walker(NamedTuple):
    """A machine: its id, how many numbers it shows, and which of them are positions."""

    id: str
    numbers: int
    positions: tuple[int, ...]
    settings: Mapping[str, Any] = {}


MUJOCO = {  # positions first, velocities behind them
    "Hopper": Walker("Hopper-v5", 11, tuple(range(5))),
    "Walker2d": Walker("Walker2d-v5", 17, tuple(range(8))),
    "HalfCheetah": Walker("HalfCheetah-v5", 17, tuple(range(8))),
    # its contact forces, 78 numbers that are neither, are switched off
    "Ant": Walker("Ant-v5", 27, tuple(range(13)), {"include_cfrc_ext_in_observation": False}),
}
# Height, heading and tilt; then each joint's angle and speed; then which feet touch the ground.
BULLET = {
    "Hopper": Walker("HopperBulletEnv-v0", 15, (0, 1, 2, 6, 7, 8, 10, 12, 14)),
    "Walker2d": Walker("Walker2DBulletEnv-v0", 22, (0, 1, 2, 6, 7, *range(8, 20, 2), 20, 21)),
    "HalfCheetah": Walker(
        "HalfCheetahBulletEnv-v0", 26, (0, 1, 2, 6, 7, *range(8, 20, 2), *range(20, 26))
    ),
    "Ant": Walker("AntBulletEnv-v0", 28, (0, 1, 2, 6, 7, *range(8, 24, 2), *range(24, 28))),
}
ENGINES = {"mujoco": MUJOCO, "bullet": BULLET}
TASKS = tuple(f"{engine}/{name}-{what}" for engine in ENGINES for name in MUJOCO for what in SHOWN)


class MuJoCoWalker(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """This wrapper lets a walker of MuJoCo without its time limit be resumed; it has no infos."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        super().__init__(env)
        self._mujoco = load("mujoco", "mujoco")
        self._kind = self._mujoco.mjtState.mjSTATE_INTEGRATION

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin a new episode."""
        return self.env.reset(seed=seed, options=options)[0], {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take one step."""
        return *self.env.step(action)[:4], {}

    def get_checkpoint_state(self) -> dict[str, Any]:
        """Return all that the future depends on, as plain data and arrays."""
        inside: Any = self.unwrapped
        physics = np.empty(self._mujoco.mj_stateSize(inside.model, self._kind))
        self._mujoco.mj_getState(inside.model, inside.data, physics, self._kind)
        return {
            "physics": physics,
            "places": inside.data.xpos.copy(),  # of the step before, by which rewards go
            "generator": inside.np_random.bit_generator.state,
        }

    def set_checkpoint_state(self, state: Mapping[str, Any]) -> None:
        """Go on exactly where `get_checkpoint_state` was called."""
        check_state(state, self.get_checkpoint_state())
        inside: Any = self.unwrapped
        physics = np.asarray(state["physics"], np.float64)
        self._mujoco.mj_setState(inside.model, inside.data, physics, self._kind)
        inside.data.xpos[:] = state["places"]
        inside.np_random.bit_generator.state = state["generator"]


class SinglePrecision(CorruptionWrapper):
    """This wrapper gives observations as float32, with the finite bounds that checkers ask for."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        largest = float(np.finfo(np.float32).max)
        shape = env.observation_space.shape
        assert shape is not None
        self.observation_space = spaces.Box(-largest, largest, shape, np.float32)

    def transform_observation(self, observation: Any, info: dict[str, Any], first: bool) -> Any:
        """Return the observation as a new array."""
        return np.array(observation, np.float32)


def walker(task: str = "mujoco/Hopper-P") -> gymnasium.Env[Any, Any]:
    """Make one of TASKS."""
    if task not in TASKS:
        raise ValueError(f"task: got {task!r}, expected one of {', '.join(TASKS)}")
    engine, _, rest = task.partition("/")
    name, _, what = rest.partition("-")
    machine = ENGINES[engine][name]
    env: gymnasium.Env[Any, Any]
    if engine == "mujoco":
        load("mujoco", "gymnasium.envs.mujoco")
        with quiet("absl"):  # as of dm_control's, one of its models is out of fashion
            env = MuJoCoWalker(gymnasium.make(machine.id, **machine.settings).unwrapped)
    else:
        load("bullet", "pybullet_envs_gymnasium")
        env = gymnasium.make(machine.id).unwrapped
        env.reset()  # the first one loads the model; those after it are alike to the bit
    whole = ObservationAsPrivileged(SinglePrecision(TimeLimit(env, HORIZON)))
    everything = set(range(machine.numbers))
    hidden = everything - set(machine.positions) if what == "P" else set(machine.positions)
    return HiddenNumbers(whole, sorted(hidden))
