"""Evaluations after the training leave files that say what the agent does."""

import numpy as np
import pytest

from kalmanac._files.episode_file import read_episode
from kalmanac._files.heatmap_file import read_heatmap
from kalmanac._lab.factory import make_model, training_environment
from kalmanac._lab.post_training import (
    AdversarialEpisode,
    ExampleEpisodes,
    GridOfBandits,
    run_post_training,
)
from kalmanac._lab.run import run
from tests.lab.tiny import TINY

TWO = TINY.changed({"encoder": "vssm+kf", "encoder_settings": {"d_state": 2}})


class Above:
    """Asks twice, and decides for "above" whatever it saw."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        state = np.zeros(len(observation), int) if state is None else state
        state = np.where(episode_start, 0, state)
        return np.where(state < 2, 0, 1), state + 1


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    run(TWO, folder, device="cpu", events=False)
    return folder


def test_every_bandit_of_the_grid_is_played_on_its_own(finished):
    GridOfBandits(points=5, episodes=3).play(Above(), TINY, finished)
    heatmap = read_heatmap(finished)
    assert heatmap.mu == [-0.5, -0.25, 0.0, 0.25, 0.5]
    assert heatmap.sigma == [0.0, 0.75, 1.5, 2.25, 3.0]
    assert np.array_equal(heatmap.win_rate, np.repeat([[0.0], [0], [0], [1], [1]], 5, axis=1))
    assert np.array_equal(heatmap.length, np.full((5, 5), 3.0))
    assert (heatmap.episodes, heatmap.model) == (3, "last")


def test_the_grid_s_noise_is_the_column_s(finished):
    class SeesNoise(Above):
        """Decides at once where a sample is exactly the mean, else asks once."""

        def predict(self, observation, state=None, episode_start=None, deterministic=False):
            plain = np.isin(observation[:, 0], np.float32([-0.5, 0.0, 0.5]))
            return np.where(plain | ~episode_start, 1, 0), None

    GridOfBandits(points=3, episodes=2).play(SeesNoise(), TINY, finished)
    assert np.array_equal(read_heatmap(finished).length, [[1, 2, 2]] * 3)


def test_files_are_left_once_and_nothing_is_trained(finished):
    due = (ExampleEpisodes(), AdversarialEpisode())
    model = (finished / "last.safetensors").read_bytes()
    assert not any(one.is_left(finished) for one in due)
    run_post_training(finished, due)
    assert all(one.is_left(finished) for one in due)
    files = sorted((finished / "evaluations").glob("*.npz"))
    assert [file.name for file in files] == [
        "adversarial.npz", "example-0.5-0.5.npz", "example-0.5-1.npz",
    ]  # fmt: skip
    played = [read_episode(file) for file in files]
    assert [(one.about.mu, one.about.sigma) for one in played[1:]] == [(0.5, 0.5), (0.5, 1.0)]
    assert played[0].about.title == "adversarial"
    assert played[0].latent_probability.shape == (121, 121, 3)
    times = [file.stat().st_mtime_ns for file in files]
    run_post_training(finished, due)
    assert [file.stat().st_mtime_ns for file in files] == times
    assert (finished / "last.safetensors").read_bytes() == model


def test_the_oracle_sees_what_it_was_trained_with(finished):
    experiment = TINY.changed({"encoder": "oracle"})
    model = make_model(experiment, training_environment(experiment), "cpu")
    GridOfBandits(points=2, episodes=1).play(model, experiment, finished)
    assert np.shape(read_heatmap(finished).length) == (2, 2)
