"""Latent space rollouts: the regions are the policy's, and the way is the agent's."""

import dataclasses

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from matplotlib.colors import to_rgb
from matplotlib.image import imread

from kalmanac._report.episode_figure import ACTION_COLORS
from kalmanac._report.episodes import draw_latent, latent_figure
from tests.report.episodes import played

pytestmark = pytest.mark.usefixtures("compiled_only")


def test_regions_and_trajectories_are_drawn(tmp_path):
    episodes = [
        dataclasses.replace(one, latent_grid=one.latent_grid * [[1], [2]])  # unlike axes
        for one in (played("vssm+kf", channels=2, seed=3), played("vssm", channels=2, seed=3))
    ]
    figure = latent_figure(episodes)
    planes = figure.axes[2:]
    for axes, episode in zip(planes, episodes, strict=True):
        image = axes.get_images()[0]
        colors = np.array([to_rgb(color) for color in ACTION_COLORS[:3]])
        np.testing.assert_allclose(
            image.get_array(), (episode.latent_probability @ colors).clip(0, 1), atol=1e-6
        )
        (left, right, bottom, top), grid = image.get_extent(), episode.latent_grid
        np.testing.assert_allclose(
            (left, right, bottom, top), (*grid[0, [0, -1]], *grid[1, [0, -1]])
        )
        lines = [np.stack(line.get_data(), 1) for line in axes.get_lines()]
        assert any(np.array_equal(line, episode.latent) for line in lines)
        assert any(np.array_equal(line, episode.latent[-1:]) for line in lines)  # the star
    assert imread(draw_latent(episodes, tmp_path / "new" / "a.png")).shape[1] > 900
    assert len(latent_figure(episodes[:1]).axes) == 2


def test_an_episode_without_a_latent_space_is_refused():
    with pytest.raises(ValueError, match="without a latent space, expected N = 2 channels"):
        latent_figure([played("gru")])


def test_tasks_other_than_best_arm_show_their_observations():
    episode = played("vssm", channels=2, seed=3)
    about = dataclasses.replace(episode.about, mu=None)
    other = dataclasses.replace(episode, posterior_mean=None, about=about)
    above = latent_figure([other]).axes[0]
    np.testing.assert_array_equal(above.get_lines()[0].get_ydata(), episode.observation[:, 0])
