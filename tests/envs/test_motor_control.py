"""The engineer's controllers: gains of the books, and a filter that is exact."""

import sys
from unittest.mock import MagicMock

import numpy as np
import pytest

from kalmanac._envs.motor import SERVO, discretized
from kalmanac._envs.motor_control import (
    CascadedPI,
    Engineer,
    KalmanFilter,
    LastReading,
    tuned,
)
from kalmanac._envs.registry import make_env
from kalmanac._envs.sensors import Corruption
from tests.envs.test_motor import gem_environment


def simulated(rng, load, noise, steps):
    """States (T + 1, 3), readings (T + 1, 2) and voltages (T,) of a motor that begins at rest."""
    step = discretized(SERVO, load)
    root = np.linalg.cholesky(step.q + 1e-30 * np.eye(3))
    states, voltages = (
        [np.array([0.0, 0.0, load * rng.standard_normal()])],
        rng.uniform(-20, 20, steps),
    )
    for u in voltages:
        states.append(step.a @ states[-1] + step.b * u + root @ rng.standard_normal(3))
    states = np.array(states)
    readings = states[:, :2] / [SERVO.current, SERVO.speed]
    return states, readings + noise * rng.standard_normal(readings.shape), voltages


def batch_estimate(load, noise, readings, voltages, known):
    """Mean and covariance of the last state by one large Gaussian regression: the slow truth."""
    step, steps = discretized(SERVO, load), len(voltages)
    means, maps = [np.zeros(3)], [np.eye(3, 3 + 3 * steps)]  # states as maps of all randomness
    for t in range(steps):
        means.append(step.a @ means[-1] + step.b * voltages[t])
        drive = np.zeros((3, 3 + 3 * steps))
        drive[:, 3 + 3 * t : 6 + 3 * t] = np.eye(3)
        maps.append(step.a @ maps[-1] + drive)
    prior = np.kron(np.eye(steps + 1), step.q)
    prior[:3, :3] = np.diag([0, 0, load**2])
    scale = np.array([SERVO.current, SERVO.speed])
    rows = np.concatenate([maps[t][:2] / scale[:, None] for t in known])
    gap = np.concatenate([readings[t] - means[t][:2] / scale for t in known])
    spread = rows @ prior @ rows.T + noise**2 * np.eye(len(rows))
    gain = np.linalg.solve(spread, rows @ prior).T
    last = maps[-1]
    mean = means[-1] + last @ gain @ gap
    return mean, last @ (prior - gain @ rows @ prior) @ last.T


@pytest.mark.parametrize("delay", [0, 1, 3])
def test_the_filter_is_exact_with_gaps_and_delay(delay):
    rng = np.random.default_rng(delay)
    load, noise, steps = 0.5, 0.05, 12
    _, readings, voltages = simulated(rng, load, noise, steps)
    there = rng.random(steps + 1) > 0.4
    kalman = KalmanFilter(load, noise, delay)
    known = []
    for t in range(steps + 1):
        source = max(t - delay, 0)
        kalman.update(readings[source], bool(there[t]), voltages[t - 1] if t else 0.0)
        if there[t] and source > 0:
            known.append(source)
    mean, covariance = batch_estimate(load, noise, readings, voltages, known)
    np.testing.assert_allclose(kalman.mean, mean, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(kalman.covariance, covariance, rtol=1e-5, atol=1e-9)


def test_the_filter_is_as_sure_as_it_is_right():
    rng = np.random.default_rng(0)
    inside = []
    for _ in range(60):
        states, readings, voltages = simulated(rng, 0.5, 0.05, 60)
        kalman, there = KalmanFilter(0.5, 0.05, 1), rng.random(61) > 0.5
        for t in range(61):
            kalman.update(readings[max(t - 1, 0)], bool(there[t]), voltages[t - 1] if t else 0.0)
        error = (kalman.mean - states[-1]) / np.sqrt(np.diag(kalman.covariance))
        inside.append(np.abs(error) < 2)
    assert 0.88 < np.mean(inside) <= 1


def test_gains_follow_the_symmetrical_optimum():
    gains = tuned(a=4.0)
    assert gains == pytest.approx((0.0078125, 0.1220703125, 0.75, 46.875))
    assert tuned(a=2.0).speed == 8 * gains.speed
    with pytest.raises(ValueError, match="a: got 1, expected a number above 1"):
        tuned(a=1)


@pytest.mark.filterwarnings("ignore")
def test_gains_are_those_of_gem_controllers(monkeypatch):
    pytest.importorskip("gym_electric_motor")
    drawing = "control_block_diagram"  # which gem_controllers imports and does not install
    for name in (drawing, f"{drawing}.components", f"{drawing}.predefined_components"):
        monkeypatch.setitem(sys.modules, name, MagicMock())
    import gem_controllers

    env, name = gem_environment()
    for a in (4, 2):
        made = gem_controllers.GemController.make(env, name, block_diagram=False, a=a)
        speed = made.controller.speed_control_stage
        current = made.controller.torque_controller.current_controller.current_base_controller
        theirs = [float(x[0]) for x in (speed.p_gain, speed.i_gain, current.p_gain, current.i_gain)]
        assert theirs == pytest.approx(tuned(a=a))


def test_limits_hold_and_nothing_winds_up():
    cascade = CascadedPI(tuned(a=2.0))
    for _ in range(50):
        assert abs(cascade.control(0.0, 0.0, 10 * SERVO.speed)) <= SERVO.voltage
    assert cascade._speed == 0.0


def played(engineer, corruption, episodes=4):
    env, returns = make_env("motor", corruption=corruption), []
    for seed in range(episodes):
        observation, info = env.reset(seed=seed)
        engineer.reset()
        returns.append(0.0)
        over = False
        while not over:
            action = engineer.act(observation, info.get("observed", True))
            observation, reward, _, over, info = env.step(action)
            returns[-1] += reward
    return np.mean(returns)


def test_the_filter_is_worth_most_where_readings_are_missing():
    clean = Corruption(delay=1)
    bad = Corruption(noise=0.05, delay=1, dropout=0.5, dropout_burst=8.0)
    held = played(Engineer(tuned(a=2.5), LastReading()), bad)
    zeros = played(Engineer(tuned(a=2.5), LastReading(), told=False), bad)
    kalman = played(Engineer(tuned(a=1.5), KalmanFilter(0.5, 0.05, 1)), bad)
    best = played(Engineer(tuned(a=1.5), KalmanFilter(0.5, 0.0, 1)), clean)
    assert zeros < 2 * held < 4 * kalman < 4 * best < 0
