"""The demo's Best Arm: the episode it shows, and its table."""

import numpy as np
import pytest

from kalmanac.demo import bandit
from kalmanac.envs import ABOVE, ASK, BELOW, BestArm, Ceiling, posterior


class Scripted:
    """In the place of a model: asks `asks` times, then takes `decision`."""

    def __init__(self, asks, decision):
        self.asks, self.decision = asks, decision

    def session(self):
        actions = iter([ASK] * self.asks + [self.decision] * 100)
        return type("Session", (), {"act": lambda _, observation: next(actions)})()


@pytest.mark.parametrize(("decision", "won"), [(ABOVE, True), (BELOW, False)])
def test_an_episode_shows_samples_posterior_and_decision(decision, won):
    played = bandit.play_once(Scripted(5, decision), BestArm(cost=0.1, horizon=50), seed=3)
    assert len(played.samples) == 6
    mean, std = posterior(np.cumsum(played.samples), np.arange(1, 7), bandit.BANDIT["sigma"])
    np.testing.assert_allclose(played.mean, mean, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(played.std, std, rtol=1e-5)
    assert (played.decision, played.won) == (decision, won)


def test_an_episode_without_a_decision_says_so():
    played = bandit.play_once(Scripted(99, ABOVE), BestArm(horizon=7), seed=3)
    assert (len(played.samples), played.decision, played.won) == (7, None, False)


@pytest.mark.parametrize(("asks", "tried"), [(1, bandit.TRIES), (bandit.LEAST_SAMPLES - 1, 1)])
def test_the_first_episode_that_is_long_enough_is_shown(asks, tried, monkeypatch):
    seeds = []
    real = bandit.play_once

    def watched(model, env, seed):
        seeds.append(seed)
        return real(model, env, seed)

    monkeypatch.setattr(bandit, "play_once", watched)
    played = bandit.play(Scripted(asks, ABOVE), {"horizon": 50})
    assert seeds == list(range(tried))
    assert len(played.samples) == asks + 1


def test_the_table_puts_numbers_under_their_names():
    new = {
        "in": {"normalized": 0.31, "win_rate": 0.71, "length": 8.26},
        "out": {"normalized": -0.07},
    }
    ceilings = {"in": Ceiling(1.0, 0.48, 9.8, 0.79), "out": Ceiling(1.0, 0.19, 20.0, 0.6)}
    text = bandit.as_table("A title", {"gru": bandit.Row(0.44, 0.41, new, 61.0)}, ceilings)
    title, _, head, rule, agent, known, *_ = text.splitlines()
    assert title == "A title"
    assert len({len(line) for line in (head, rule, agent, known)}) == 1
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in (head, agent, known)]
    row, threshold = (dict(zip(cells[0], values, strict=True)) for values in cells[1:])
    assert row == {
        "agent": "gru", "best evaluation": "0.44", "last evaluation": "0.41", "return": "0.31",
        "win rate": "0.71", "steps": "8.3", "return, noisier": "-0.07", "trained in": "61 s",
    }  # fmt: skip
    assert threshold["return"] == "0.48"
    assert threshold["return, noisier"] == "0.19"
    assert threshold["best evaluation"] == "–"
