"""Rewards on the scale of discounted returns."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kalmanac.replay import Batch
from kalmanac.sac.return_scale import ReturnScale

GAMMA = 0.9


def batch_of(reward):
    nothing = torch.zeros(1)
    return Batch(nothing, nothing, nothing, reward, nothing, nothing, nothing)


def seen(rewards, stepped, ended):
    scale = ReturnScale(GAMMA)
    scale.attach(rewards.shape[1])
    for row in zip(rewards, stepped, ended, strict=True):
        scale.update(*row)
    return scale


def plainly(rewards, stepped, ended):
    """All discounted returns on the way, stream by stream."""
    found = []
    for stream in range(rewards.shape[1]):
        running = 0.0
        for reward, took, over in zip(
            rewards[:, stream], stepped[:, stream], ended[:, stream], strict=True
        ):
            if took:
                running = GAMMA * running + reward
                found.append(running)
            running = 0.0 if over else running
    return np.array(found)


@given(st.integers(0, 2**32 - 1), st.integers(2, 40), st.integers(1, 4))
def test_the_factor_is_that_of_all_returns_so_far(seed, steps, streams):
    rng = np.random.default_rng(seed)
    rewards = 7 * rng.standard_normal((steps, streams))
    stepped, ended = rng.random((2, steps, streams)) < [[[0.8]], [[0.2]]]
    truth = plainly(rewards, stepped, ended)
    scale = seen(rewards, stepped, ended)
    if len(truth) < 2:
        assert scale.factor == 1.0
    else:
        assert scale.factor == pytest.approx(1 / np.sqrt(truth.var() + 1e-8), rel=1e-9)
    reward = torch.tensor([[2.0, -3.0]])
    torch.testing.assert_close(scale.batch(batch_of(reward)).reward, reward * scale.factor)


def test_rewards_that_are_always_zero_stay_as_they_are():
    scale = seen(np.zeros((9, 2)), np.ones((9, 2), bool), np.zeros((9, 2), bool))
    assert scale.factor == 1.0


def test_a_restored_scale_goes_on_as_the_first():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((30, 3)), np.ones((30, 3), bool), rng.random((30, 3)) < 0.1
    whole = seen(*rows)
    first = seen(*(x[:17] for x in rows))
    other = ReturnScale(GAMMA)
    other.load_state_dict(first.state_dict())
    for row in zip(*(x[17:] for x in rows), strict=True):
        other.update(*row)
    assert other.state_dict()["running"].equal(whole.state_dict()["running"])
    assert other.factor == whole.factor
