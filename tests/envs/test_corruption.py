"""Corruption as plain data: order, truth, and what it cannot be done to."""

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from kalmanac._envs.actuators import ActionNoise, FrameRepeat
from kalmanac._envs.best_arm import BestArm
from kalmanac._envs.observation_codecs import privileged_space
from kalmanac._envs.registry import make_vector
from kalmanac._envs.sensors import (
    Corruption,
    ObservationDelay,
    ObservationDropout,
    ObservationNoise,
    corrupted,
)
from kalmanac._lab.experiment import Experiment
from kalmanac._lab.factory import check_environment, horizon
from tests.envs.toys import Identity

ALL = Corruption(noise=0.1, action_noise=0.2, dropout=0.3, dropout_burst=4, delay=2, frame_repeat=3)


def layers(env):
    found = []
    while isinstance(env, gymnasium.Wrapper):
        found.append(type(env))
        env = env.env
    return found


def test_the_order_is_as_documented():
    env = corrupted(gymnasium.make("MountainCarContinuous-v0").unwrapped, ALL)
    assert [kind.__name__ for kind in layers(env)] == [
        "ObservationDropout", "ObservationDelay", "ObservationNoise", "ObservationAsPrivileged",
        "ActionNoise", "FrameRepeat",
    ]  # fmt: skip
    assert (env.probability, env.burst, env.told) == (0.3, 4.0, True)
    inner = gymnasium.make("CartPole-v1")
    assert corrupted(inner, Corruption()) is inner


def test_the_truth_is_the_reading_before_it_was_corrupted():
    how = Corruption(noise=0.5, dropout=0.5, delay=1)
    env = make_vector("CartPole-v1", 2, corruption=how)
    clean = SyncVectorEnv(
        [lambda: gymnasium.make("CartPole-v1")] * 2, autoreset_mode=AutoresetMode.SAME_STEP
    )
    assert privileged_space(env).shape == (4,)
    env.reset(seed=0)
    clean.reset(seed=0)
    for _ in range(50):
        *_, infos = env.step(np.array([0, 1]))
        seen, *_ = clean.step(np.array([0, 1]))
        np.testing.assert_array_equal(infos["privileged"], seen)
        assert infos["observed"].dtype == bool
    oracle = make_vector("CartPole-v1", 2, corruption=how, privileged=True)
    np.testing.assert_array_equal(oracle.reset(seed=0)[0], clean.reset(seed=0)[0])


def test_an_environment_s_own_truth_stays():
    env = make_vector("best-arm", 2, corruption=Corruption(noise=0.5))
    assert [type(copy.unwrapped) for copy in env.envs] == [BestArm] * 2
    assert privileged_space(env).shape == (2,)


def test_what_comes_as_a_vector_only_is_refused():
    with pytest.raises(ValueError, match=r"corruption: got noise 0.1, expected none: 'kalmanac"):
        make_vector("kalmanac._envs.best_arm:BestArmVector", 2, corruption=Corruption(noise=0.1))
    assert not Corruption()
    assert Corruption(frame_repeat=2)
    assert str(ALL).startswith(
        "noise 0.1, action noise 0.2, dropout 0.3, dropout burst 4.0, delay 2"
    )


def test_experiments_carry_it_and_their_hash_covers_it():
    plain = Experiment(env="dmc/cheetah-run")
    hashes = {plain.hash}
    for name, value in (
        ("noise", 0.3), ("action_noise", 0.3), ("dropout", 0.2), ("dropout_burst", 4.0),
        ("dropout_told", False), ("delay", 1), ("frame_repeat", 4),
    ):  # fmt: skip
        changed = plain.changed({name: value})
        assert Experiment.from_json(changed.to_json()) == changed
        hashes.add(changed.hash)
    assert len(hashes) == 8
    assert horizon(plain.changed({"frame_repeat": 3})) == 334
    check_environment(plain)
    with pytest.raises(ValueError, match=r"dropout: got 1.0, expected a number in \[0, 1\)"):
        Experiment(dropout=1.0)
    with pytest.raises(ValueError, match="delay: got -1"):
        Experiment(delay=-1)


def test_every_kind_of_corruption_has_its_wrapper():
    for how, kind in (
        (Corruption(noise=1), ObservationNoise), (Corruption(action_noise=1), ActionNoise),
        (Corruption(dropout=0.5), ObservationDropout), (Corruption(delay=1), ObservationDelay),
        (Corruption(frame_repeat=2), FrameRepeat),
    ):  # fmt: skip
        env = corrupted(gymnasium.make("MountainCarContinuous-v0").unwrapped, how)
        assert kind in layers(env)
    assert layers(corrupted(Identity(), Corruption(delay=1))) == [ObservationDelay]
