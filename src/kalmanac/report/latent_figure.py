"""Rollouts in a two-dimensional latent space over the policy's decision regions (paper, Fig. 6)."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from kalmanac.episode_file import PlayedEpisode
from kalmanac.report.episode_figure import DPI, STYLE, heading
from kalmanac.report.episode_panels import ACTION_COLOURS, LINES, draw_samples

REGION_COLOURS = (*ACTION_COLOURS, *LINES)


def draw_latent(episodes: Sequence[PlayedEpisode], path: str | os.PathLike[str]) -> Path:
    """One column for each episode: what the agent saw, and its way through the latent space."""
    figure = latent_figure(episodes)
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, metadata={"Software": None})
    return target


def latent_figure(episodes: Sequence[PlayedEpisode]) -> Figure:
    """The picture, to be saved or shown. ValueError for an episode without a latent space."""
    for episode in episodes:
        if episode.latent is None:
            raise ValueError("episodes: got one without a latent space, expected N = 2 channels")
    wide = len(episodes)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4.4 * wide, 6.6), dpi=DPI, layout="constrained")
        FigureCanvasAgg(figure)
        grid = figure.subplots(2, wide, squeeze=False, height_ratios=(1, 1.9))
        for (above, below), episode in zip(grid.T, episodes, strict=True):
            if episode.posterior_mean is not None:
                draw_samples(above, episode)
            else:
                above.plot(np.arange(1, episode.steps + 1), episode.observation)
            above.set(xlabel="step")
            above.xaxis.get_major_locator().set_params(integer=True)
            above.set_title(heading(episode).replace(", hidden", "\nhidden"), fontsize=9)
            draw_plane(below, episode)
        for row, place in ((0, "outside upper center"), (1, "outside lower center")):
            handles, labels = grid[row, 0].get_legend_handles_labels()
            if handles:
                figure.legend(handles, labels, loc=place, ncols=3 if wide == 1 else len(labels))
    return figure


def draw_plane(axes: Any, episode: PlayedEpisode) -> None:
    """The likeliest action at every point, paler where it is less certain, and the rollout."""
    assert episode.latent is not None
    assert episode.latent_grid is not None
    assert episode.latent_probability is not None
    (first, second), share = episode.latent_grid, episode.latent_probability
    colours = np.array([to_rgb(c) for c in REGION_COLOURS[: share.shape[-1]]])
    axes.imshow(
        (share @ colours).clip(0, 1), origin="lower", aspect="auto", interpolation="bilinear",
        extent=(first[0], first[-1], second[0], second[-1]), alpha=0.75,
    )  # fmt: skip
    for i, (name, colour) in enumerate(zip(episode.about.action_names, colours, strict=True)):
        axes.contour(first, second, share[..., i], [0.5], colors="black", linewidths=0.8)
        axes.plot([], [], "s", ms=9, color=colour, alpha=0.75, label=name)
    x, y = episode.latent.T
    axes.plot(x, y, ".-", color="black", lw=1.1, ms=5)
    axes.plot(x[0], y[0], "o", ms=9, mfc="white", mec="black", label="first step")
    axes.plot(x[-1], y[-1], "*", ms=15, mfc="#F0E442", mec="black", label="last step")
    axes.set(xlabel="latent state, channel 1", ylabel="latent state, channel 2")
    axes.set_title("the way there, and the policy for the last observation", fontsize=9)
