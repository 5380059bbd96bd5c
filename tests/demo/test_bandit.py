"""The demo's Best Arm: the episode it shows, and its table."""

import pytest

from kalmanac._demo import bandit
from kalmanac._envs.bayes import Ceiling
from kalmanac._lab.factory import make_model, training_environment


@pytest.mark.parametrize(("steps", "tried"), [(2, bandit.TRIES), (bandit.LEAST_SAMPLES, 1)])
def test_the_first_episode_that_is_long_enough_is_shown(steps, tried, monkeypatch):
    seeds = []

    def play(model, experiment, *, seed, changes):
        assert changes == {"mu": (0.2, 0.2), "sigma": (1.0, 1.0)}
        seeds.append(seed)
        return type("Played", (), {"steps": steps})

    monkeypatch.setattr(bandit, "play", play)
    assert bandit.play_shown(None, None).steps == steps
    assert seeds == list(range(tried))


def test_the_episode_shown_is_of_the_bandit_that_is_named():
    experiment = bandit.shortened("vssm+kf", 0)
    model = make_model(experiment, training_environment(experiment), "cpu")
    played = bandit.play_shown(model, experiment)
    assert (played.about.mu, played.about.sigma) == pytest.approx((0.2, 1.0))
    assert played.steps == len(played.posterior_mean) >= 1


def test_the_table_puts_numbers_under_their_names():
    new = {
        "in": {"normalized": 0.31, "win_rate": 0.71, "length": 8.26},
        "out": {"normalized": -0.07},
    }
    ceilings = {"in": Ceiling(1.0, 0.48, 9.8, 0.79), "out": Ceiling(1.0, 0.19, 20.0, 0.6)}
    text = bandit.as_table("A title", {"gru": bandit.Row(0.44, 0.41, new, 61.0)}, ceilings)
    title, _, head, rule, agent, known, *_ = text.splitlines()
    assert title == "# A title"
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
