"""The demo's signal with gaps: what is played, the band, and the episode drawn."""

import numpy as np
import pytest

from kalmanac._demo import tracking
from kalmanac._demo.tracking import Episodes, first_with_gaps, fitted_factor, gaps_of, play_episodes
from kalmanac._envs.track import exact_filter
from kalmanac._lab.factory import evaluation_environment, make_model

pytestmark = pytest.mark.usefixtures("compiled_only")


@pytest.fixture(scope="module")
def episodes():
    experiment = tracking.tracking()
    model = make_model(experiment, evaluation_environment(experiment, "in", 2), "cpu")
    return play_episodes(model, experiment, 6, seed=3)


def test_whole_episodes_are_played_and_gaps_are_seen_as_gaps(episodes):
    for x in episodes:
        assert x.shape == (6, tracking.HORIZON)
    there = episodes.observed
    assert 0.1 < 1 - there.mean() < 0.8
    assert (episodes.reading[~there] == 0).all()
    noise = (episodes.reading - episodes.target)[there]
    assert noise.std() == pytest.approx(0.3, abs=0.05), "readings are of the target told"


def test_without_a_reading_both_filters_grow_less_sure_and_a_reading_makes_them_surer(episodes):
    begun = (
        episodes.observed.cumsum(1)[:, :-1] > 0
    )  # before, the exact filter knows nothing to lose
    there = episodes.observed[:, 1:]
    _, exact = exact_filter(episodes.reading, episodes.observed)
    for variance in (episodes.latent_variance, exact):
        grown = np.diff(variance, axis=1)
        assert (grown[begun & ~there] > 0).all()
        after_gap = there & ~episodes.observed[:, :-1]
        assert (grown[after_gap] < 0).all()


def test_the_factor_turns_the_filter_s_variance_into_the_error_s():
    ones = np.ones((2, 3))
    apart = Episodes(ones, ones > 0, target=0 * ones, estimate=3 * ones, latent_variance=0.5 * ones)
    assert fitted_factor(apart) == pytest.approx(18)


def test_gaps_are_where_readings_are_missing():
    there = np.array([0, 1, 1, 0, 0, 1, 0], bool)
    assert gaps_of(there) == [(0, 1), (3, 5), (6, 7)]
    assert gaps_of(np.ones(4, bool)) == []


def test_the_first_episode_with_enough_long_gaps_is_drawn():
    short, late, good = np.ones((3, 40), bool)
    short[[3, 7, 11, 15]] = False
    for start in (10, 20, 30):
        late[start : start + 5] = good[start : start + 5] = False
    late[0] = False
    assert first_with_gaps(np.stack([short, late, good])) == 2
    assert first_with_gaps(np.stack([short, late])) == 0
