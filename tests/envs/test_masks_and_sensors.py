"""What is allowed is no reading: masks pass the wrappers, or the wrappers refuse them."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from kalmanac._envs.action_codecs import action_codec
from kalmanac._envs.actuators import FrameRepeat
from kalmanac._envs.observation_codecs import observation_codec
from kalmanac._envs.registry import make_vector
from kalmanac._envs.sensors import ObservationDelay, burst_length
from kalmanac._envs.wrappers import PrivilegedObservation


class Locked(gymnasium.Env):
    """Another action is locked at every step; the mask stands in the observation or in the info."""

    def __init__(self, inside: bool = True) -> None:
        self.inside = inside
        seen = {"x": spaces.Box(-1, 1, (2,)), "action_mask": spaces.MultiBinary(3)}
        self.observation_space = spaces.Dict(seen) if inside else seen["x"]
        self.action_space = spaces.Discrete(3, start=5)
        self.privileged_space = spaces.Box(-1, 1, (2,))
        self.forbidden = self.taken = 0

    def _shown(self):
        self.steps += 1
        self.mask = np.arange(3) != self.steps % 3
        x, mask = np.full(2, self.steps / 100, np.float32), self.mask.astype(np.int8)
        info = {"privileged": x}
        return (
            ({"x": x, "action_mask": mask}, info)
            if self.inside
            else (x, info | {"action_mask": mask})
        )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = -1
        return self._shown()

    def step(self, action):
        self.taken += 1
        self.forbidden += not self.mask[action - 5]
        observation, info = self._shown()
        return observation, 1.0, False, self.steps >= 30, info


def test_late_readings_come_with_the_mask_of_now():
    env = ObservationDelay(Locked(), 2)
    env.reset(seed=0)
    seen = [env.step(5)[0] for _ in range(5)]
    assert [s["x"][0] * 100 for s in seen] == pytest.approx([0, 0, 1, 2, 3])
    assert [int(s["action_mask"].argmin()) for s in seen] == [1, 2, 0, 1, 2]


@pytest.mark.parametrize("inside", [True, False])
def test_an_action_is_not_repeated_where_it_is_forbidden(inside):
    inner = Locked(inside)
    env = FrameRepeat(inner, 3)
    env.reset(seed=0)
    rewards = []
    for _ in range(8):
        allowed = np.flatnonzero(inner.mask)[0]
        rewards.append(env.step(allowed + 5)[1])
    assert inner.forbidden == 0
    assert inner.taken == sum(rewards) > 8


def test_the_true_state_cannot_replace_an_observation_with_a_mask():
    env = SyncVectorEnv([Locked], autoreset_mode=AutoresetMode.SAME_STEP)
    with pytest.raises(ValueError, match="env: got an action_mask inside the observation"):
        PrivilegedObservation(env)


def test_an_environment_that_goes_on_in_its_own_array_is_delayed_too():
    class InPlace(gymnasium.Env):
        observation_space, action_space = spaces.Box(-9, 9, (1,)), spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            self.x = np.zeros(1, np.float32)
            return self.x, {}

        def step(self, action):
            self.x += 1
            return self.x, 0.0, False, False, {}

    env = ObservationDelay(InPlace(), 2)
    env.reset()
    assert [env.step(0)[0][0] for _ in range(5)] == [0, 0, 1, 2, 3]


def test_masks_are_zeros_and_ones():
    codec = action_codec(spaces.Discrete(3))
    assert codec.mask([[1, 0, 1]]).tolist() == [[True, False, True]]
    for additive in ([[0.0, -np.inf, 0.0]], [[0.0, np.nan, 1.0]], [[2, 0, 1]]):
        with pytest.raises(ValueError, match=r"action_mask: got .*, expected 1 where"):
            codec.mask(additive)


def test_spaces_without_a_number_are_refused():
    empty = spaces.Box(-1, 1, (0,))
    with pytest.raises(ValueError, match=r"action space: got .*, expected at least one number"):
        action_codec(empty)
    with pytest.raises(ValueError, match=r"observation space: got .*, expected at least one part"):
        observation_codec(empty)


def test_the_shortest_bursts_that_can_be_are_allowed():
    assert burst_length("dropout_burst", 4, 0.8) == 4
    with pytest.raises(ValueError, match=r"dropout_burst: got 3\.9, expected at least 4 steps"):
        burst_length("dropout_burst", 3.9, 0.8)


def nothing():
    return None


def test_what_is_no_environment_is_said_so():
    with pytest.raises(TypeError, match=r"env: got a NoneType from .*, expected a gymnasium.Env"):
        make_vector("tests.envs.test_masks_and_sensors:nothing", 2)


@pytest.mark.parametrize("name", ["os:system", "subprocess:run", "builtins:eval"])
def test_a_run_folder_cannot_name_a_command_as_its_environment(name):
    with pytest.raises(ValueError, match="expected something that makes environments"):
        make_vector(name, 1, command="true")
