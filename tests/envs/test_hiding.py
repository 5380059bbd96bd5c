"""Hidden numbers are gone from every observation; all the rest is as it was."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from kalmanac._envs.checkpointable import environment_state, restore_environment
from kalmanac._envs.novel import HiddenNumbers
from tests.envs.test_noise import Still
from tests.lab.drifting import Drifting


class Shows(gymnasium.Env):
    """An environment of whatever space."""

    action_space = spaces.Discrete(2)

    def __init__(self, space):
        self.observation_space = space


def test_the_numbers_left_keep_their_order_their_bounds_and_their_type():
    class Bounded(Still):
        def __init__(self):
            super().__init__(shown=(1, 2, 3, 4))
            low, high = np.float32([-1, -2, -3, -4]), np.float32([5, 6, 7, np.inf])
            self.observation_space = spaces.Box(low, high)

    env = HiddenNumbers(Bounded(), (2, 0))
    assert env.observation_space == spaces.Box(np.float32([-2, -4]), np.float32([6, np.inf]))
    first, info = env.reset(seed=0)
    later, *_, info_too = env.step(np.zeros(2, np.float32))
    for seen, told in ((first, info), (later, info_too)):
        np.testing.assert_array_equal(seen, np.float32([2, 4]))
        assert seen.dtype == np.float32
        np.testing.assert_array_equal(told["privileged"], [1, 2, 3, 4])


def test_what_is_shown_is_no_view_of_the_environments_own_numbers():
    inside = Still()
    seen, _ = HiddenNumbers(inside, [0]).reset()
    seen[:] = 9
    assert 9 not in inside.shown


def test_any_vector_will_do():
    env = HiddenNumbers(Shows(spaces.Box(0, 255, (3,), np.uint8)), (1,))
    assert env.observation_space == spaces.Box(0, 255, (2,), np.uint8)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Dict({"a": spaces.Box(0, 1, (3,))}),
        spaces.Discrete(3),
        spaces.MultiBinary(3),
        spaces.Box(0, 1, (3, 3)),
        spaces.Box(0, 1, ()),
    ],
)
def test_other_observations_are_refused(space):
    with pytest.raises(TypeError, match=r"observation space: got .*expected a Box of one axis"):
        HiddenNumbers(Shows(space), (1,))


@pytest.mark.parametrize("hidden", [(), (0, 1, 2, 3), (4,), (-1,), (1, 1), (True,), (0.5,), ("a",)])
def test_places_that_are_none_are_refused(hidden):
    with pytest.raises(ValueError, match=r"hidden: got \(.*expected different places of 0 to 3"):
        HiddenNumbers(Still(), hidden)


def test_the_state_is_that_of_the_environment_inside():
    class Two(Drifting):
        """Its reading twice."""

        observation_space = spaces.Box(-9, 9, (2,), np.float32)

        def reset(self, **options):
            seen, info = super().reset(**options)
            return np.repeat(seen, 2), info

        def step(self, action):
            seen, *rest = super().step(action)
            return np.repeat(seen, 2), *rest

    env, other = (HiddenNumbers(Two(), (1,)) for _ in range(2))
    env.reset(seed=3)
    env.step(np.float32([0.5]))
    restore_environment(other, environment_state(env))
    for _ in range(20):
        (seen, *rest), (seen_too, *rest_too) = (e.step(np.float32([0.1])) for e in (env, other))
        np.testing.assert_array_equal(seen, seen_too)
        assert rest == rest_too
        if rest[1] or rest[2]:
            np.testing.assert_array_equal(env.reset()[0], other.reset()[0])
    silent = HiddenNumbers(Shows(spaces.Box(0, 1, (2,))), (1,))
    assert environment_state(silent) is None
