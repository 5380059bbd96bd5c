"""Tracking: the process, its reward, and what can be reached in it."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from kalmanac._envs.registry import make_vector
from kalmanac._envs.track import Track, exact_filter, filter_error


def test_gymnasium_finds_nothing_wrong(recwarn):
    check_env(Track(), skip_render_check=True)
    assert all("Box" in str(w.message) for w in recwarn.list), "only that actions go beyond one"


def test_targets_wander_as_described():
    env = make_vector("track", 200, decay=0.9, noise=0.5, horizon=40)
    readings, infos = env.reset(seed=0)
    targets, seen, rewards, ends = [infos["privileged"]], [readings], [], []
    for _ in range(39):
        readings, reward, terminated, truncated, infos = env.step(np.full((200, 1), 2.0, "f"))
        targets.append(infos["privileged"])
        seen.append(readings)
        rewards.append(reward)
        ends.append(terminated | truncated)
    x, y = np.array(targets)[..., 0], np.array(seen)[..., 0]
    assert x.var() == pytest.approx(1, abs=0.1)
    assert (x[1:] * x[:-1]).mean() == pytest.approx(0.9, abs=0.1)
    assert (y - x).std() == pytest.approx(0.5, abs=0.02)
    np.testing.assert_allclose(rewards, -((2 - x[:-1]) ** 2), rtol=1e-4, atol=1e-4)
    assert not np.any(ends)
    *_, terminated, truncated, _ = env.step(np.zeros((200, 1), "f"))
    assert truncated.all()
    assert not terminated.any()


def test_the_exact_filter_pays_what_filter_error_says():
    env, total = make_vector("track", 500), 0.0
    y, _ = env.reset(seed=0)
    mean, variance = np.zeros((500, 1)), 1.0
    for t in range(64):
        if t:
            mean, variance = 0.95 * mean, 0.95**2 * variance + 1 - 0.95**2
        gain = variance / (variance + 0.3**2)
        mean, variance = mean + gain * (y - mean), (1 - gain) * variance
        y, reward, *_ = env.step(mean.astype(np.float32))
        total -= reward.mean()
    assert total / 64 == pytest.approx(filter_error(), rel=0.05)


def test_the_best_return_is_the_exact_filter_s():
    assert Track().best_return() == pytest.approx(-64 * filter_error(), rel=0.03)
    assert Track(horizon=1, noise=1.0).best_return() == pytest.approx(-1 / 2), "one reading of two"
    assert Track(noise=0.0).best_return() == 0


def test_the_exact_filter_only_predicts_where_a_reading_is_missing():
    there = np.array([True, False, True])
    mean, variance = exact_filter(np.array([1.0, 9.0, 0.0]), there, decay=0.5, noise=1.0)
    np.testing.assert_allclose(mean[:2], [1 / 2, 1 / 4])
    np.testing.assert_allclose(variance[:2], [1 / 2, 7 / 8])
    ahead = 7 / 8 / 4 + 3 / 4
    gain = ahead / (ahead + 1)
    assert mean[2] == pytest.approx((1 - gain) / 8)
    assert variance[2] == pytest.approx((1 - gain) * ahead)


def test_gaps_cost_and_knowing_of_them_pays():
    whole, gaps = filter_error(), filter_error(missing=0.5)
    unknown = filter_error(missing=0.5, told=False)
    assert whole < 0.6 * gaps
    assert gaps < 0.7 * unknown
    assert filter_error(told=False) == pytest.approx(whole, rel=0.1), "without gaps nothing to know"


def test_a_state_goes_on_where_it_was_taken():
    env, other = Track(), Track()
    env.reset(seed=0)
    env.step(np.zeros(1))
    other.reset(seed=5)
    other.set_checkpoint_state(env.get_checkpoint_state())
    for _ in range(63):
        here, there = env.step(np.ones(1)), other.step(np.ones(1))
        assert here == there
    assert here[3], "the horizon is counted on"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"decay": 1.0}, "decay: got 1.0, expected a number in"),
        ({"noise": -1}, "noise: got -1, expected a number of at least 0"),
        ({"noise": "a"}, "noise: got 'a', expected a number of at least 0"),
        ({"horizon": 0}, "horizon: got 0, expected an integer of at least 1"),
        ({"horizon": 2.5}, "horizon: got 2.5, expected an integer of at least 1"),
        ({"horizon": None}, "horizon: got None, expected an integer of at least 1"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Track(**settings)


def test_bad_steps_are_refused():
    env = Track()
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(np.zeros(1))
    env.reset(seed=0)
    for action in (np.zeros(2), np.array([np.nan])):
        with pytest.raises(ValueError, match=r"action: got .*expected one finite number"):
            env.step(action)
