"""Noise has the statistics that it claims, a stream of its own, and leaves the truth alone."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from kalmanac._envs.actuators import ActionNoise
from kalmanac._envs.registry import make_vector
from kalmanac._envs.sensors import Corruption, ObservationNoise, corrupted
from kalmanac._lab.experiment import Experiment
from kalmanac._lab.factory import make_model, training_environment
from tests.envs.toys import Identity

DRAWS = 100_000


class Still(gymnasium.Env):
    """Shows `shown` for ever, and keeps the actions that reach it."""

    def __init__(self, shown=(1.0, -2.0, 0.0, 5.0), low=-1.0, high=1.0):
        self.shown = np.float32(shown)
        self.observation_space = spaces.Box(-5, 5, (len(self.shown),), np.float32)
        self.action_space = spaces.Box(low, high, (2,), np.float32)
        self.privileged_space = self.observation_space
        self.received = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.shown.copy(), {"privileged": self.shown.copy()}

    def step(self, action):
        self.received.append(np.array(action))
        return self.shown.copy(), 0.0, False, False, {"privileged": self.shown.copy()}


def independent(noise):
    """Correlations between coordinates, and between neighbors in time, are noise themselves."""
    n = len(noise)
    across = np.corrcoef(noise.T) - np.eye(noise.shape[1])
    along = [np.corrcoef(noise[:-k].T, noise[k:].T)[: noise.shape[1], noise.shape[1] :]
             for k in (1, 2, 7)]  # fmt: skip
    return max(np.abs(across).max(), np.abs(along).max()) < 5 / np.sqrt(n)


def test_observation_noise_is_gaussian_and_independent():
    env = ObservationNoise(Still(), 0.3)
    first, _ = env.reset(seed=0)
    steps = [env.step(np.zeros(2, np.float32)) for _ in range(DRAWS // 4 - 1)]
    noise = np.stack([first, *(step[0] for step in steps)]).astype(np.float64) - env.env.shown
    assert noise.size == DRAWS
    assert np.abs(noise.mean(0)).max() < 4 * 0.3 / np.sqrt(len(noise))
    assert np.abs(noise.std(0) / 0.3 - 1).max() < 4 / np.sqrt(2 * len(noise))
    assert np.abs((noise**4).mean() / 0.3**4 - 3) < 0.1  # a Gaussian's kurtosis
    assert independent(noise)
    assert all((step[4]["privileged"] == env.env.shown).all() for step in steps)
    assert first.dtype == np.float32


def test_the_simulator_receives_the_action_with_noise_clipped():
    env = ActionNoise(Still(), 0.3)
    env.reset(seed=0)
    own = np.float32([0.2, -0.9])
    for _ in range(DRAWS // 2):
        env.step(own)
    received = np.stack(env.env.received).astype(np.float64)
    assert received.size == DRAWS
    assert np.abs(received).max() == 1.0
    inside = (received[:, 0] - own[0]) / 0.3
    assert abs(inside.mean()) < 0.02  # hardly ever clipped
    assert abs(inside.std() - 1) < 0.02
    share = (received[:, 1] == -1).mean()  # Φ(−1/3)
    assert share == pytest.approx(0.3694, abs=0.01)
    assert independent(received)
    np.testing.assert_array_equal(own, np.float32([0.2, -0.9]))  # the agent's own stays


def test_action_noise_is_in_units_of_the_agents_actions():
    env = ActionNoise(Still(low=-10.0, high=30.0), 0.01)
    env.reset(seed=0)
    for _ in range(4000):
        env.step(np.float32([10.0, 10.0]))
    assert np.std(env.env.received) == pytest.approx(0.01 * 20, rel=0.05)


def test_streams_are_apart_and_the_seed_decides_them():
    def noise(*layers, seed=0):
        env = Still(shown=(0.0, 0.0))
        for kind, std in layers:
            env = kind(env, std)
        env.reset(seed=seed)
        action = np.zeros(2, np.float32)
        return np.array([env.step(action)[0] for _ in range(50)]), env.unwrapped.received

    seen, _ = noise((ObservationNoise, 1.0))
    assert np.array_equal(seen, noise((ObservationNoise, 1.0))[0])
    assert not np.array_equal(seen, noise((ObservationNoise, 1.0), seed=1)[0])
    both, done = noise((ActionNoise, 0.1), (ObservationNoise, 1.0))
    assert np.array_equal(seen, both)  # another kind of noise changes nothing in this one
    assert np.array_equal(done, noise((ActionNoise, 0.1))[1])
    assert not np.allclose(done[1:], 0.1 * seen[:-1])  # the first reading took one draw more
    twice, _ = noise((ObservationNoise, 1.0), (ObservationNoise, 1.0))
    assert not np.allclose(twice, 2 * seen)  # the second one draws for itself
    simulator = np.random.default_rng(0).standard_normal((51, 2))[1:]
    assert not np.allclose(simulator, seen)


def test_copies_of_a_vector_have_noise_of_their_own():
    env = make_vector("dmc/pendulum-swingup", 3, corruption=Corruption(noise=0.3))
    seen, infos = env.reset(seed=0)
    noise = seen - infos["privileged"]
    assert len(np.unique(noise)) == noise.size


def test_the_replay_holds_the_agents_own_actions_and_the_true_state_is_clean():
    experiment = Experiment(
        env=f"{__name__}:Still", num_envs=1, total_steps=40, learning_starts=1000, noise=0.5,
        action_noise=0.5, privileged_critic=True, encoder="memoryless", actor_hidden=(8,),
        critic_hidden=(8,),
    )  # fmt: skip
    env = training_environment(experiment)
    model = make_model(experiment, env, "cpu")
    taken = []
    step = env.step
    env.step = lambda actions: (taken.append(actions.copy()), step(actions))[1]
    model.learn(40)
    kept = {name: x[0] for name, x in model.replay.state_dict()["storage"].items()}
    stored = kept["action"][:40].numpy()
    received = np.stack(env.envs[0].unwrapped.received)
    np.testing.assert_allclose(stored, np.concatenate(taken), atol=1e-6)
    assert 0.3 < np.std(received - stored) < 0.6
    assert np.abs(received).max() <= 1
    shown = env.envs[0].unwrapped.shown
    assert (kept["privileged"][:41].numpy() == shown).all()
    assert (kept["observation"][:41].numpy() != shown).all()


def test_spaces_without_room_for_noise_are_refused():
    with pytest.raises(TypeError, match="observation space: got Discrete"):
        ObservationNoise(Identity(), 0.1)
    with pytest.raises(TypeError, match="action space: got Discrete"):
        corrupted(Identity(), Corruption(action_noise=0.1))
    with pytest.raises(ValueError, match=r"action space: got Box.*, expected finite bounds"):
        ActionNoise(Still(low=-np.inf), 0.1)
    for bad in (-0.1, float("nan"), float("inf"), True, "0.3"):
        with pytest.raises(ValueError, match=r"std: got .*, expected a number of at least 0"):
            ObservationNoise(Still(), bad)
