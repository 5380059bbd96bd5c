"""An environment entered again goes on as if it had never been left."""

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import NormalizeReward, TimeLimit

from kalmanac._envs.best_arm import BestArmVector
from kalmanac._envs.checkpointable import environment_state, restore_environment
from kalmanac._envs.registry import make_vector
from kalmanac._envs.wrappers import Checkpointable
from kalmanac._files.document import Kind, decode, encode
from tests.lab.drifting import Drifting, Mute

# Python warns of a fork where other tests have left threads
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
KIND = Kind("test", 1, "tests")


def copies(make, mode=AutoresetMode.SAME_STEP):
    return SyncVectorEnv([make] * 3, autoreset_mode=mode)


def workers(make, mode=AutoresetMode.SAME_STEP):
    return AsyncVectorEnv([make] * 3, autoreset_mode=mode)


MAKERS = {
    "best-arm": lambda: make_vector("best-arm", 3, horizon=4),
    "oracle": lambda: make_vector("best-arm", 3, privileged=True),
    "registered": lambda: copies(lambda: gymnasium.make("kalmanac/BestArm-v0", horizon=4)),
    "limited": lambda: copies(
        lambda: gymnasium.make("kalmanac/BestArm-v0", horizon=9, max_episode_steps=3)
    ),
    "module": lambda: make_vector("tests.lab.drifting:Drifting", 3),
    "next step": lambda: copies(Drifting, AutoresetMode.NEXT_STEP),
    "workers": lambda: workers(lambda: Checkpointable(TimeLimit(Drifting(), 4))),
}


def played(env, rng, steps):
    """Everything that comes out of some random steps."""
    found = []
    for _ in range(steps):
        if isinstance(env.single_action_space, gymnasium.spaces.Discrete):
            actions = rng.choice(3, 3, p=(0.8, 0.1, 0.1))
        else:
            actions = rng.uniform(-1, 2, (3, 1)).astype(np.float32)
        observation, reward, terminated, truncated, _ = env.step(actions)
        found.append(np.concatenate([observation.ravel(), reward, terminated, truncated]))
    return np.array(found)


@pytest.mark.parametrize("name", MAKERS)
def test_left_and_entered_equals_never_left(name):
    env = MAKERS[name]()
    env.reset(seed=3)
    for seed in range(8):
        played(env, np.random.default_rng(seed), 3)
        file = encode({"env": environment_state(env)}, KIND)
        other = MAKERS[name]()
        restore_environment(other, decode(file, KIND, "")["env"])
        truth, found = (played(e, np.random.default_rng(99), 20) for e in (env, other))
        np.testing.assert_array_equal(found, truth)
        other.close()
    env.close()


@pytest.mark.parametrize(
    "make",
    [
        lambda: copies(Mute),
        lambda: SyncVectorEnv([Drifting, Mute]),
        lambda: copies(lambda: NormalizeReward(Drifting())),  # remembers more than is told
        lambda: make_vector("CartPole-v1", 2),
        lambda: workers(Drifting),
        lambda: workers(lambda: Checkpointable(Mute())),
        lambda: workers(lambda: Checkpointable(Drifting()), AutoresetMode.NEXT_STEP),
    ],
)
def test_what_cannot_be_told_is_not_half_told(make):
    env = make()
    env.reset(seed=0)
    assert environment_state(env) is None
    env.step(env.action_space.sample())  # and it is as well as before
    env.close()
    with pytest.raises(TypeError, match="expected one with set_checkpoint_state"):
        restore_environment(Mute(), {})


def test_a_wrapper_with_the_methods_answers_for_all():
    class Own(TimeLimit):
        def get_checkpoint_state(self):
            return {"steps": self._elapsed_steps}

        def set_checkpoint_state(self, state):
            self._elapsed_steps = state["steps"]

    env = Own(Mute(), 5)
    env.reset(seed=0)
    assert environment_state(env) == {"steps": 0}


def test_another_number_of_environments_is_refused():
    env = copies(Drifting)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="state: got 3 environments, expected 2"):
        restore_environment(SyncVectorEnv([Drifting] * 2), environment_state(env))
    with pytest.raises(ValueError, match=r"state\['mu'\]: got shape \(3,\), expected \(2,\)"):
        restore_environment(BestArmVector(2), environment_state(BestArmVector(3)))
