"""Bandits on a device are those of the environments, given the same random numbers."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kalmanac.envs.best_arm_rules import Rules
from kalmanac.rollout.bandits import BanditRules
from tests.rollout.fed import drawn, fed

CPU = torch.device("cpu")
HOW = {"cost": 0.05, "horizon": 6, "win": 7.0, "loss": -3.0}


@given(st.integers(0, 2**31), st.floats(0.2, 1.0), st.integers(1, 8))
def test_they_show_pay_and_end_as_the_environments_do(seed, asking, n):
    rng, draws = np.random.default_rng(seed), drawn(n, 12, seed)
    env, rules = fed(draws, **HOW), BanditRules([Rules(**HOW)], n, CPU)
    noise = torch.from_numpy(draws.noise)
    observation, infos = env.reset()
    bandits = rules.begin(torch.from_numpy(draws.uniform), noise[0])
    returns, over = np.zeros(n), np.zeros(n, bool)
    for step in range(1, 8):
        same = ~over
        shown, belief = bandits.observation(), bandits.observation(privileged=True)
        np.testing.assert_array_equal(shown[same].numpy(), observation[same])
        np.testing.assert_array_equal(belief[same].numpy(), infos["privileged"][same])
        np.testing.assert_array_equal(bandits.over.numpy(), over)
        action = np.where(rng.random(n) < asking, 0, rng.integers(1, 3, n))
        observation, reward, ended, _, infos = env.step(action)
        bandits = rules.step(bandits, torch.from_numpy(action), noise[step])
        returns += np.where(same, reward, 0.0)
        now = same & ended
        for i in np.flatnonzero(now):
            assert bandits.won[i] == infos["final_info"]["win"][i]
            assert bandits.length[i] == step
            assert bandits.last_action[i] == action[i]
        over |= ended
        np.testing.assert_array_equal(bandits.reward.numpy(), returns)
    assert over.all()


def test_each_has_the_rules_of_its_own():
    some = [Rules(sigma=(0.0, 0.0), horizon=2), Rules(sigma=(2.0, 3.0), horizon=3, loss=-1.0)]
    rules = BanditRules(some, 4, CPU)
    uniform = torch.linspace(0, 0.9, 16, dtype=torch.float64).reshape(2, 8)
    bandits = rules.begin(uniform, torch.ones(8, dtype=torch.float64))
    assert bandits.sigma[:4].tolist() == [0.0] * 4
    assert ((bandits.sigma[4:] >= 2) & (bandits.sigma[4:] < 3)).all()
    for _ in range(2):
        bandits = rules.step(bandits, torch.zeros(8, dtype=torch.int64), torch.ones(8))
    assert bandits.over.tolist() == [True] * 4 + [False] * 4
    bandits = rules.step(bandits, torch.zeros(8, dtype=torch.int64), torch.ones(8))
    assert bandits.length.tolist() == [2] * 4 + [3] * 4
    assert bandits.reward.tolist() == [-10.0] * 4 + [-1.0] * 4


@pytest.mark.gpu
def test_on_a_gpu_they_are_the_same_bit_by_bit():
    draws = drawn(64, 12, 0)
    found = []
    for device in ("cpu", "cuda"):
        rules = BanditRules([Rules(**HOW)], 64, torch.device(device))
        noise = torch.from_numpy(draws.noise).to(device)
        bandits = rules.begin(torch.from_numpy(draws.uniform).to(device), noise[0])
        for step in range(1, 7):
            action = (torch.arange(64) + step) % 5 % 3
            bandits = rules.step(bandits, action.to(device), noise[step])
        found.append([x.cpu() for x in (*bandits, bandits.observation(privileged=True))])
    for x, y in zip(*found, strict=True):
        assert torch.equal(x, y)
