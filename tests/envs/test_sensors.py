"""Missing, late and skipped readings."""

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env, data_equivalence
from hypothesis import given
from hypothesis import strategies as st

from kalmanac._envs.actuators import ActionNoise, FrameRepeat
from kalmanac._envs.dmc import DMC
from kalmanac._envs.popgym import POPGym
from kalmanac._envs.sensors import ObservationDelay, ObservationDropout, ObservationNoise
from tests.envs.toys import Identity, NoisyIntegrator


class Clock(gymnasium.Env):
    """Shows the time, from 1 on; every step pays 1; ends after `length` steps."""

    observation_space = spaces.Box(1, 1000_000, (1,), np.float32)
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, length=10):
        self.length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 1
        return np.float32([self.time]), {}

    def step(self, action):
        self.time += 1
        return np.float32([self.time]), 1.0, False, self.time > self.length, {"time": self.time}

    def get_checkpoint_state(self):
        return {"time": self.time}

    def set_checkpoint_state(self, state):
        self.time = state["time"]


def watch(env, steps, seed=0):
    """Observations, and what is said of them, of the first reading and `steps` more."""
    reading, info = env.reset(seed=seed)
    told = [(reading[0], info.get("observed", True))]
    for _ in range(steps):
        reading, *_, info = env.step(np.zeros(1, np.float32))
        told.append((reading[0], info.get("observed", True)))
    readings, observed = zip(*told, strict=True)
    return np.array(readings), np.array(observed)


def test_readings_go_missing_as_often_as_asked_and_independently():
    readings, observed = watch(ObservationDropout(Clock(10**6), 0.2), 100_000)
    missing = readings == 0
    assert np.array_equal(missing, ~observed)
    assert np.isfinite(readings).all()
    assert missing.mean() == pytest.approx(0.2, abs=4 * 0.4 / np.sqrt(100_000))
    assert abs(np.corrcoef(missing[:-1], missing[1:])[0, 1]) < 5 / np.sqrt(100_000)
    assert (readings[~missing] == np.arange(1, 100_002)[~missing]).all()


def test_bursts_last_as_long_as_asked_and_the_share_stays():
    readings, _ = watch(ObservationDropout(Clock(10**6), 0.2, burst=5), 60_000)
    missing = (readings == 0).astype(int)
    begins = np.flatnonzero(np.diff(missing) == 1)
    assert missing.mean() == pytest.approx(0.2, abs=0.02)
    assert missing.sum() / len(begins) == pytest.approx(5, rel=0.05)


def test_the_first_reading_of_every_episode_is_as_likely_to_be_missing():
    env = ObservationDropout(Clock(), 0.25, burst=3)
    env.reset(seed=0)
    firsts = [env.reset()[0][0] == 0 for _ in range(8000)]
    assert np.mean(firsts) == pytest.approx(0.25, abs=0.02)
    assert abs(np.corrcoef(firsts[:-1], firsts[1:])[0, 1]) < 0.05  # whatever came before


def test_who_is_not_told_gets_the_same_zeros():
    told = watch(ObservationDropout(Clock(), 0.4), 8)
    silent = watch(ObservationDropout(Clock(), 0.4, told=False), 8)
    assert np.array_equal(told[0], silent[0])
    assert (~told[1]).any()
    assert silent[1].all()


def test_two_sensors_in_a_row_miss_what_either_misses():
    inner = ObservationDropout(Clock(10**4), 0.3)
    readings, observed = watch(ObservationDropout(inner, 0.3), 4000)
    assert np.array_equal(readings == 0, ~observed)
    assert (~observed).mean() == pytest.approx(1 - 0.7**2, abs=0.05)


@given(delay=st.integers(0, 6), length=st.integers(1, 12))
def test_readings_are_late_and_the_first_is_repeated(delay, length):
    env = ObservationDelay(Clock(length), delay)
    for _ in range(2):
        readings, _ = watch(env, length)
        assert readings.tolist() == [max(1, 1 + t - delay) for t in range(length + 1)]


def test_what_is_said_of_a_reading_is_as_late_as_the_reading():
    now = watch(ObservationDropout(Clock(10**4), 0.4), 200)
    late = watch(ObservationDelay(ObservationDropout(Clock(10**4), 0.4), 3), 200)
    for prompt, delayed in zip(now, late, strict=True):
        assert np.array_equal(delayed[3:], prompt[:-3])


@pytest.mark.parametrize(
    "layer", [lambda x: ObservationDropout(x, 0.5), lambda x: ObservationDelay(x, 1)]
)
def test_what_is_said_of_a_reading_is_a_bool(layer):
    class Vague(Clock):
        def reset(self, **how):
            return super().reset(**how)[0], {"observed": "no"}

    with pytest.raises(ValueError, match=r'info\["observed"\]: got \'no\', expected True or False'):
        layer(Vague()).reset(seed=0)


def test_frames_are_repeated_until_the_end():
    env = FrameRepeat(Clock(10), 4)
    env.reset(seed=0)
    action = np.zeros(1, np.float32)
    steps = [env.step(action) for _ in range(3)]
    assert [(s[0][0], s[1], s[3], s[4]["time"]) for s in steps] == [
        (5, 4.0, False, 5), (9, 4.0, False, 9), (11, 2.0, True, 11)
    ]  # fmt: skip


LAYERS = {
    "noise": lambda env: ObservationNoise(env, 0.3),
    "action noise": lambda env: ActionNoise(env, 0.3),
    "dropout": lambda env: ObservationDropout(env, 0.3),
    "bursts": lambda env: ObservationDropout(env, 0.3, burst=4),
    "delay": lambda env: ObservationDelay(env, 3),
    "repeat": lambda env: FrameRepeat(env, 2),
}


def checked(env):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*different from the unwrapped version.*")
        check_env(env, skip_render_check=True)
    return env


def run(env, steps, seed=2):
    rng, out = np.random.default_rng(seed), []
    low, high = getattr(env.action_space, "low", None), getattr(env.action_space, "high", None)
    for _ in range(steps):
        discrete = low is None
        action = (
            rng.integers(env.action_space.n) if discrete else np.float32(rng.uniform(low, high))
        )
        out.append(env.step(action))
        if out[-1][2] or out[-1][3]:
            out.append(env.reset())
    return out


@pytest.mark.parametrize("layer", LAYERS)
def test_gymnasium_accepts_it_and_it_goes_on_bit_by_bit(layer):
    makers = [lambda: NoisyIntegrator(), lambda: DMC("pendulum-swingup")]
    if layer != "action noise":
        makers.append(lambda: POPGym("RepeatPreviousEasy"))
    for make in makers:
        env = checked(LAYERS[layer](make()))
        env.reset(seed=3)
        run(env, 20)
        state = env.get_checkpoint_state()
        if isinstance(env.unwrapped, NoisyIntegrator):
            assert state is None  # it cannot tell its own
            continue
        ahead = run(env, 60, seed=4)
        fresh = LAYERS[layer](make())
        for other in (fresh, env):
            other.set_checkpoint_state(state)
            assert data_equivalence(ahead, run(other, 60, seed=4), exact=True)


def test_all_of_them_together_go_on_bit_by_bit():
    def make():
        env = DMC("reacher-easy")
        for layer in LAYERS.values():
            env = layer(env)
        return env

    env, fresh = make(), make()
    env.reset(seed=3)
    run(env, 20)
    fresh.set_checkpoint_state(env.get_checkpoint_state())
    assert data_equivalence(run(env, 100), run(fresh, 100), exact=True)
    with pytest.raises(ValueError, match=r"state: got \[\], expected \['env', 'memory', 'gen"):
        env.env.set_checkpoint_state({})


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda env: ObservationDropout(env, 1.0), r"probability: got 1.0, expected a number in"),
        (lambda env: ObservationDropout(env, -0.1), r"probability: got -0.1"),
        (lambda env: ObservationDropout(env, 0.9, burst=2), r"burst: got 2, expected at least 9"),
        (lambda env: ObservationDropout(env, 0.1, burst=0.5), r"burst: got 0.5, expected at least"),
        (
            lambda env: ObservationDelay(env, -1),
            r"steps: got -1, expected an integer",
        ),
        (lambda env: FrameRepeat(env, 0), r"times: got 0, expected an integer of at least 1"),
        (lambda env: FrameRepeat(env, 1.5), r"times: got 1.5"),
    ],
)
def test_settings_without_sense_are_refused(make, told):
    with pytest.raises(ValueError, match=told):
        make(Clock())


def test_zeros_need_a_box():
    with pytest.raises(TypeError, match="observation space: got Discrete"):
        ObservationDropout(Identity(), 0.1)
    assert ObservationDropout(Clock(), 0.1).observation_space.low == 0  # zeros belong to it
