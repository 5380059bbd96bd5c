"""Values that the rewards cannot account for are told of once, with the likely cause."""

import dataclasses
from contextlib import nullcontext

import gymnasium
import numpy as np
import pytest
import torch

from kalmanac._sac import diagnostics
from kalmanac._sac.config import AgentSettings
from kalmanac._sac.diagnostics import EPISODES, EVERY, RunawayValuesWarning, ValueCheck
from kalmanac._sac.episode_streams import Episode
from tests.sac.small import small


def checked(
    values, *, largest=1.0, truncated=True, bootstraps=True, episodes=EPISODES, temperatures=None,
    horizon=10.0, entropy=2.0,
):  # fmt: skip
    """A check that has seen episodes of 5 steps, and mean Q as `values` at its looks."""
    check = ValueCheck(bootstraps_truncated=bootstraps, horizon=horizon)
    for i in range(episodes):
        size = largest if i == 0 else 0.5 * largest
        check.on_episode(Episode(-size, 5, not truncated, 0, {}))
    for value, temperature in zip(values, temperatures or [0.1] * len(values), strict=True):
        numbers = {"q_mean": value, "ent_coef": temperature, "entropy": entropy}
        metrics = {f"train/{name}": torch.tensor(x) for name, x in numbers.items()}
        for _ in range(EVERY):
            check.on_update(metrics)
    return check


def test_growing_values_beyond_all_returns_are_told_of_with_their_cause():
    reason = (
        r"q_mean is 40 in size .* exceeds 1\. .* 100% .* as truncated.*bootstrap_truncated=False"
    )
    with pytest.warns(RunawayValuesWarning, match=reason) as seen:
        check = checked([20.0, 30.0, 40.0, 50.0, 60.0, 70.0])
    assert check.warned
    assert len(seen) == 1


@pytest.mark.parametrize("how", [{"truncated": False}, {"bootstraps": False}])
def test_without_a_bootstrap_at_truncation_the_cause_is_another_one(how):
    with pytest.warns(RunawayValuesWarning, match="the entropy bonus outweighs the rewards"):
        checked([-20.0, -30.0, -40.0], **how)


@pytest.mark.parametrize(
    "how",
    [
        {"values": [20.0, 30.0]},  # not long enough
        {"values": [3.0, 6.0, 9.0, 9.5, 9.9]},  # a discounted future may be worth that
        {"values": [20.0, 30.0, 25.0, 30.0, 28.0, 27.0]},  # they do not run away
        {"values": [20.0, 30.0, 40.0], "largest": 0.0},  # nobody knows the scale
        {"values": [20.0, 30.0, 40.0], "episodes": EPISODES - 1},
        # the bonus of a falling temperature, at most 3, 2.5 and 2 · 2 · 10, and 10 beyond it
        {"values": [12.0, 20.0, 40.0, 49.0], "temperatures": [4.0, 3.0, 2.5, 2.0]},
        {
            "values": [-12.0, -20.0, -40.0, -49.0],
            "temperatures": [4.0, 3.0, 2.5, 2.0],
            "entropy": -2.0,
        },
    ],
)
def test_what_may_be_right_is_not_told_of(how):
    assert not checked(**how).warned


@pytest.mark.parametrize(
    ("values", "temperatures"),
    [
        ([12.0, 20.0, 40.0], [1.0, 1.1, 1.2]),  # the temperature grows with them
        ([12.0, 20.0, 40.0], [1.0, 1.0, 1.0]),  # it is fixed
        ([34.0, 35.0, 36.0, 37.0], [1.1, 1.05, 1.0, 0.95]),  # it falls, and is not worth so much
    ],
)
def test_a_temperature_accounts_for_its_bonus_while_it_falls(values, temperatures):
    with pytest.warns(RunawayValuesWarning):
        checked(values, temperatures=temperatures)


@pytest.mark.parametrize(
    "how",
    [
        {"horizon": 0.0},  # no entropy in targets
        {"horizon": 1000.0, "truncated": False},  # but no episode has more than 5 steps
        {"horizon": 1000.0, "bootstraps": False},
    ],
)
def test_a_bonus_counts_for_the_steps_that_can_come(how):
    values, temperatures = [31.0, 32.0, 33.0, 34.0], [1.1, 1.05, 1.0, 0.95]
    with pytest.warns(RunawayValuesWarning):
        checked(values, temperatures=temperatures, **how)


def test_targets_without_entropy_hold_no_bonus():
    settings = AgentSettings(gamma=0.9)
    assert settings.entropy_horizon == pytest.approx(10)
    assert dataclasses.replace(settings, entropy_in_target=False).entropy_horizon == 0
    assert dataclasses.replace(settings, gamma=1.0).entropy_horizon == 1000


class Counter(gymnasium.Env):
    """The reward is 1 at each of five steps, and then the author says "truncated"."""

    observation_space = gymnasium.spaces.Box(0, 10, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.float32([0]), {}

    def step(self, action):
        self.time += 1
        return np.float32([self.time]), 1.0, False, self.time == 5, {}


@pytest.mark.parametrize("bootstraps", [True, False])
def test_a_bounded_task_that_ends_by_truncation_is_noticed(bootstraps, monkeypatch):
    monkeypatch.setattr(diagnostics, "EVERY", 25)  # everything goes forty times as fast here
    model = small(
        "memoryless", Counter(), learning_rate=1e-2, tau=0.2, learning_starts=60, ent_coef=0.01,
        bootstrap_truncated=bootstraps,
    )  # fmt: skip
    with pytest.warns(RunawayValuesWarning) if bootstraps else nullcontext() as seen:
        model.learn(360)  # other warnings are errors here
    if bootstraps:
        assert "bootstrap_truncated=False" in str(seen[0].message)
