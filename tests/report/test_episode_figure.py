"""The picture of an episode: every series is in it, and nothing that the agent does not have."""

import dataclasses

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from matplotlib.image import imread

from kalmanac._report.episode_figure import (
    DPI,
    WIDTH,
    EpisodeFigure,
    channels_of,
    draw_episode,
    episode_panels,
    heading,
)
from tests.report.episodes import Swing, played

pytestmark = pytest.mark.usefixtures("compiled_only")
SWING = f"{Swing.__module__}:Swing"


def titles(episode):
    return [panel.title for panel in episode_panels(episode)]


def axes_of(episode):
    return dict(zip(titles(episode), EpisodeFigure(episode).axes, strict=True))


def holds(axes, values):
    """Whether a line of these values over the steps 1 … T is drawn."""
    steps = np.arange(1, len(values) + 1)
    return any(
        len(line.get_xdata()) == len(steps)
        and np.array_equal(line.get_xdata(), steps)
        and np.allclose(line.get_ydata(), values)
        for line in axes.get_lines()
    )


def spans(axes):
    """Lower and upper edge of each band at the first step."""
    points = [band.get_paths()[0].vertices for band in axes.collections]
    first = [xy[xy[:, 0] == 1][:, 1] for xy in points]
    return [(ys.min(), ys.max()) for ys in first]


def test_best_arm_shows_samples_posterior_belief_gain_and_policy():
    episode = played("vssm+kf", seed=3)
    assert episode.steps > 1
    axes = axes_of(episode)
    assert list(axes) == ["what can be known", "the agent's belief", "gain", "the policy"]
    samples = axes["what can be known"]
    assert holds(samples, episode.observation[:, 0])
    assert holds(samples, episode.posterior_mean)
    ((low, high),) = spans(samples)
    assert high - low == pytest.approx(6 * episode.posterior_std[0], rel=1e-5)
    levels = [line.get_ydata()[0] for line in samples.get_lines() if len(line.get_xdata()) == 2]
    assert episode.about.mu in levels
    widths = [high - low for low, high in spans(axes["the agent's belief"])]
    for i, channel in enumerate(channels_of(episode)):
        assert holds(axes["the agent's belief"], episode.belief_mean[-1, :, channel])
        assert holds(axes["gain"], episode.gain[-1, :, channel])
        std = np.sqrt(episode.belief_variance[-1, 0, channel])
        assert widths[i] == pytest.approx(2 * std, rel=1e-5)
    assert holds(axes["gain"], episode.gain[-1].mean(-1))
    bars = axes["the policy"].containers
    assert [bar.get_label() for bar in bars] == ["ask", "above", "below"]
    for i, bar in enumerate(bars):
        heights = [patch.get_height() for patch in bar]
        np.testing.assert_allclose(heights, episode.probability[:, i], rtol=1e-5)


def test_the_channels_shown_are_those_with_the_largest_influence():
    episode = dataclasses.replace(
        played("vssm+kf", seed=3), influence=np.array([0.1, 3.0, 0.2, 1.0])
    )
    assert channels_of(episode) == [1, 3, 2]


@pytest.mark.parametrize("encoder", ["gru", "vssm", "memoryless"])
def test_an_agent_without_beliefs_has_no_empty_panels(encoder):
    assert titles(played(encoder)) == ["what can be known", "the policy"]


def test_a_continuous_task_shows_state_readings_actions_and_return():
    episode = played("vssm+kf", SWING)
    axes = axes_of(episode)
    assert list(axes) == [
        "observation 1 of 2", "observation 2 of 2", "the agent's belief", "gain", "action",
        "return so far",
    ]  # fmt: skip
    for i in range(2):
        reading = axes[f"observation {i + 1} of 2"]
        assert holds(reading, episode.observation[:, i])
        assert holds(reading, episode.truth[:, i])
        assert holds(axes["action"], episode.action[:, i])
    assert spans(axes["action"])[0] == pytest.approx(
        (episode.action_low[0, 0], episode.action_high[0, 0]), rel=1e-5
    )
    assert holds(axes["return so far"], np.cumsum(episode.reward))


def test_a_state_of_another_shape_and_symbols_have_panels_of_their_own():
    swing = played("gru", SWING)
    hidden = dataclasses.replace(swing, truth=np.ones((12, 3)))
    assert "true state" in titles(hidden)
    symbols = dataclasses.replace(swing, observation=np.eye(12)[:, ::-1], truth=None)
    axes = axes_of(symbols)["observation"]
    assert holds(axes, np.arange(12)[::-1])
    wide = dataclasses.replace(swing, observation=np.random.default_rng(0).normal(size=(12, 9)))
    assert sum("of 9" in title for title in titles(wide)) == 4
    for width, title in ((1, "observation"), (0, "action")):  # 0: nothing but an image is seen
        few = dataclasses.replace(swing, observation=np.zeros((12, width)), truth=None)
        assert titles(few)[0] == title


def test_many_actions_become_a_map():
    episode = played("gru", seed=3)
    share = np.random.default_rng(0).dirichlet(np.ones(7), episode.steps)
    about = dataclasses.replace(episode.about, action_names=tuple("abcdefg"), mu=None)
    many = dataclasses.replace(episode, probability=share, about=about)
    axes = axes_of(many)["the policy"]
    np.testing.assert_allclose(axes.get_images()[0].get_array(), share.T)
    assert holds(axes, episode.action)


def test_what_is_to_come_is_hidden_until_it_is_shown():
    episode = played("gru", seed=3)
    picture = EpisodeFigure(episode)
    for steps in (1, episode.steps):
        picture.show(steps)
        for curtain, reach in zip(picture.curtains, picture.reach, strict=True):
            assert curtain.get_x() == steps + reach
            assert curtain.get_visible() == (steps < episode.steps)
    assert picture.title.get_text() == heading(episode)


def test_the_heading_says_what_the_agent_does_and_how_it_ended():
    episode = played("gru", seed=3)
    asks = np.zeros(4, int)
    for last, won, words in (
        (1, True, "after 4 samples it decides “above”: right"),
        (2, False, "after 4 samples it decides “below”: wrong"),
        (0, False, "after 4 samples it has not decided: lost"),
    ):
        about = dataclasses.replace(episode.about, won=won, mu=0.25, sigma=1.0)
        one = dataclasses.replace(
            played("gru", seed=3), about=about, action=np.append(asks[:3], last),
            observation=np.zeros((4, 1)), reward=np.zeros(4), posterior_mean=np.zeros(4),
            posterior_std=np.zeros(4), probability=np.ones((4, 3)) / 3,
        )  # fmt: skip
        first, second = heading(one).split("\n")
        assert first == "gru in best-arm, hidden mean 0.25, noise 1, seed 3"
        assert second == words
        assert heading(one, 1).endswith("\n1 sample: it asks for another")
    assert heading(played("gru", SWING), 1).split("\n")[1].startswith("1 step, return ")


def test_a_png_of_the_right_size_is_written_and_the_same_again(tmp_path):
    episode = played("gru")
    files = [draw_episode(episode, tmp_path / "new" / name) for name in ("a.png", "b.png")]
    height, width, _ = imread(files[0]).shape
    assert width == round(WIDTH * DPI)
    assert height > 300
    assert files[0].read_bytes() == files[1].read_bytes()
    assert files[0].stat().st_size < 200_000
