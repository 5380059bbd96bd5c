"""The DeepMind Control suite (paper, section 5.3) through a thin adapter to Gymnasium.

Simulation, tasks and rewards are those of dm_control and MuJoCo; the adapter flattens observations,
brings actions to [−1, 1] and passes seeds and states on. Noise comes from wrappers.
"""

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from kalmanac._envs.checkpointable import check_state
from kalmanac._envs.extras import load

Floats = NDArray[np.float32]

# Standard deviation of the paper's observation noise: nine tasks of the benchmark (appendix F), and
# one of the comparison with model-based agents alone (appendix H).
NOISE = {
    "ball_in_cup-catch": 0.3,
    "cartpole-swingup": 0.3,
    "cheetah-run": 0.3,
    "finger-spin": 0.3,
    "pendulum-swingup": 0.1,
    "point_mass-easy": 0.1,
    "reacher-easy": 0.3,
    "walker-run": 0.3,
    "walker-walk": 0.3,
    "quadruped-walk": 0.3,
}
HORIZON = 1000  # steps of every episode, by dm_control's time limits

# What the beginning of an episode may change in the model itself, such as where a target lies.
_MODEL_FIELDS = (
    "dof_damping", "geom_pos", "geom_size", "hfield_data", "site_pos", "site_rgba", "site_size",
    "wrap_prm",
)  # fmt: skip


class DMC(gymnasium.Env[Floats, Floats]):
    """This environment is one task, "domain-task", of 1000 steps that end as truncated.

    The observation is dm_control's, flattened in its order, in float32; `info["privileged"]`
    repeats it, so that wrappers which corrupt the observation leave the truth beside it.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}  # type: ignore[misc]

    def __init__(self, task: str = "cheetah-run") -> None:
        os.environ.setdefault("MUJOCO_GL", "disabled")  # no display needed; read by the import
        suite = load("dmc", "dm_control.suite")
        self._mujoco = load("dmc", "mujoco")
        domain, _, name = task.partition("-")
        if (domain, name) not in suite.ALL_TASKS:
            raise ValueError(
                f"task: got {task!r}, expected a task of dm_control such as 'cheetah-run'"
            )
        self._random = np.random.RandomState()
        with quiet("absl"):  # some of dm_control's models are out of fashion for MuJoCo
            self._sim = suite.load(domain, name, task_kwargs={"random": self._random})
        self._slices, self._size = _layout(self._sim.observation_spec())
        largest = float(np.finfo(np.float32).max)  # finite, because Gymnasium's checker asks for it
        self.observation_space = spaces.Box(-largest, largest, (self._size,), np.float32)
        self.privileged_space = self.observation_space
        action = self._sim.action_spec()
        self.action_space = spaces.Box(-1.0, 1.0, action.shape, np.float32)
        self._middle = (action.maximum + action.minimum) / 2
        self._half = (action.maximum - action.minimum) / 2
        self._as_it_is = bool((action.minimum == -1).all() and (action.maximum == 1).all())

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Floats, dict[str, Any]]:
        """Begin a new episode."""
        super().reset(seed=seed)
        if seed is not None:
            self._random.seed(self.np_random.integers(2**32))
        observation = self._flat(self._sim.reset().observation)
        return observation, {"privileged": observation.copy()}

    def step(self, action: Any) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """Take one control step."""
        if self._sim._reset_next_step:
            raise gymnasium.error.ResetNeeded("step: no episode is running, call reset first")
        if not self._as_it_is:
            action = self._middle + self._half * action
        _, reward, discount, parts = self._sim.step(action)
        observation = self._flat(parts)
        over = self._sim._reset_next_step
        info = {"privileged": observation.copy()}
        return observation, float(reward), over and discount == 0, over and discount != 0, info

    def get_checkpoint_state(self) -> dict[str, Any]:
        """Return all that the future depends on, as plain data and arrays."""
        model, data = self._sim.physics.model.ptr, self._sim.physics.data.ptr
        kind = self._mujoco.mjtState.mjSTATE_INTEGRATION
        physics = np.empty(self._mujoco.mj_stateSize(model, kind))
        self._mujoco.mj_getState(model, data, physics, kind)
        random: Any = self._random.get_state(legacy=True)
        _, key, position, has_gauss, gauss = random
        return {
            "physics": physics,
            "sensors": data.sensordata.copy(),
            "model": {
                name: getattr(model, name).copy()
                for name in _MODEL_FIELDS
                if getattr(model, name).size
            },
            "steps": self._sim._step_count,
            "running": not self._sim._reset_next_step,
            "random": {
                "key": key.astype(np.int64),
                "numbers": [int(position), int(has_gauss), float(gauss)],
            },
            "generator": self.np_random.bit_generator.state,
        }

    def set_checkpoint_state(self, state: Mapping[str, Any]) -> None:
        """Go on exactly where `get_checkpoint_state` was called."""
        check_state(state, self.get_checkpoint_state())
        model, data = self._sim.physics.model.ptr, self._sim.physics.data.ptr
        for name, values in state["model"].items():
            getattr(model, name)[:] = values
        kind = self._mujoco.mjtState.mjSTATE_INTEGRATION
        self._mujoco.mj_setState(model, data, np.asarray(state["physics"], np.float64), kind)
        # What dm_control's step leaves computed: all that follows from positions and velocities.
        self._mujoco.mj_step1(model, data)
        data.sensordata[:] = state["sensors"]
        self._sim._step_count = int(state["steps"])
        self._sim._reset_next_step = not state["running"]
        position, has_gauss, gauss = state["random"]["numbers"]
        key = np.asarray(state["random"]["key"], np.uint32)
        self._random.set_state(("MT19937", key, int(position), int(has_gauss), float(gauss)))
        self.np_random.bit_generator.state = state["generator"]

    def _flat(self, observation: Mapping[str, Any]) -> Floats:
        row = np.empty(self._size, np.float32)
        for name, place in self._slices:
            row[place] = observation[name]
        return row


@contextmanager
def quiet(name: str) -> Iterator[None]:
    """Silence the warnings of logger `name` for a while."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _layout(spec: Mapping[str, Any]) -> tuple[list[tuple[str, slice]], int]:
    """Find where each part of an observation goes in the row, and how long the row is."""
    slices, size = [], 0
    for name, part in spec.items():
        if len(part.shape) > 1:
            raise ValueError(f"observation {name!r}: got shape {part.shape}, expected one axis")
        width = int(np.prod(part.shape))
        slices.append((name, slice(size, size + width)))
        size += width
    return slices, size
