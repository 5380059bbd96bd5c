"""The motor behind the exact filter is the motor, and what is observed is what the filter knows."""

import numpy as np
from gymnasium.utils.env_checker import check_env

from kalmanac._envs.motor import SERVO
from kalmanac._envs.motor_control import CascadedPI, KalmanFilter, tuned
from kalmanac._envs.registry import make_env


def test_it_is_an_environment(bench):
    check_env(bench("filtered_motor").FilteredMotor(), skip_render_check=True)


def test_a_controller_behind_it_is_the_engineer_behind_a_filter_of_its_own(bench):
    filtered, motor = bench("filtered_motor"), bench("motor")
    env = filtered.FilteredMotor(0.5)
    played = motor.play_engineer("PI behind the exact filter", 1.5, 0.5, 2, 7)
    for number in range(2):
        cascade, over, total = CascadedPI(tuned(a=1.5)), False, 0.0
        (current, speed, _, reference), _ = env.reset(seed=7 + number)
        while not over:
            told = SERVO.current * current, SERVO.speed * speed, SERVO.speed * reference
            voltage = cascade.control(*map(float, told))
            action = np.array([voltage / SERVO.voltage], np.float32)
            (current, speed, _, reference), reward, _, over, _ = env.step(action)
            total += reward
        assert abs(total - played.returns[number]) < 1e-2 * abs(total)


def test_the_filter_is_told_which_readings_are_missing(bench):
    """By hand: the same filter beside it, with readings of the same motor."""
    filtered = bench("filtered_motor")
    env = filtered.FilteredMotor(0.2)
    motor = make_env("motor", corruption=bench("motor").corruption(0.2))
    beside = KalmanFilter(0.5, filtered.NOISE, filtered.DELAY)
    seen, known = env.reset(seed=3)
    reading, info = motor.reset(seed=3)
    missing = 0
    for step in range(50):
        beside.update(reading[:2], bool(info["observed"]), 6.0 if step else 0.0)
        missing += not info["observed"]
        current, speed, load = beside.mean
        near = np.array([current / SERVO.current, speed / SERVO.speed, load, reading[2]])
        np.testing.assert_allclose(seen, near, rtol=1e-5, atol=1e-6)
        action = np.array([0.1], np.float32)
        assert "observed" not in known, "agents would take such a step's estimate for missing"
        seen, _, _, _, known = env.step(action)
        reading, _, _, _, info = motor.step(action)
    assert missing > 0
