"""Figures of single episodes: examples, rollouts in the latent space, and animations."""

import math
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image

from kalmanac._files.episode_file import PlayedEpisode, read_episode
from kalmanac._files.run_reader import EVALUATIONS
from kalmanac._messages import one_line
from kalmanac._report.episode_figure import (
    ACTION_COLORS,
    DPI,
    LINES,
    STYLE,
    EpisodeFigure,
    draw_samples,
    heading,
)
from kalmanac._report.figure_parts import CaptionedFigure, file_name
from kalmanac._report.groups import BEST_ARM, Group
from kalmanac._report.style import panel_grid

REGION_COLORS = (*ACTION_COLORS, *LINES)


def draw_latent(episodes: Sequence[PlayedEpisode], path: str | os.PathLike[str]) -> Path:
    """Draw one column for each episode: its observations, and its path through the latent space."""
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
    colors = np.array([to_rgb(c) for c in REGION_COLORS[: share.shape[-1]]])
    axes.imshow(
        (share @ colors).clip(0, 1), origin="lower", aspect="auto", interpolation="bilinear",
        extent=(first[0], first[-1], second[0], second[-1]), alpha=0.75,
    )  # fmt: skip
    for i, (name, color) in enumerate(zip(episode.about.action_names, colors, strict=True)):
        axes.contour(first, second, share[..., i], [0.5], colors="black", linewidths=0.8)
        axes.plot([], [], "s", ms=9, color=color, alpha=0.75, label=name)
    x, y = episode.latent.T
    axes.plot(x, y, ".-", color="black", lw=1.1, ms=5)
    axes.plot(x[0], y[0], "o", ms=9, mfc="white", mec="black", label="first step")
    axes.plot(x[-1], y[-1], "*", ms=15, mfc="#F0E442", mec="black", label="last step")
    axes.set(xlabel="latent state, channel 1", ylabel="latent state, channel 2")
    axes.set_title("the way there, and the policy for the last observation", fontsize=9)


MOST_FRAMES = 60  # longer episodes show several steps a frame
FPS = (2, 8)  # frames a second, at least and at most
WHOLE = 8.0  # seconds that an episode should last
REST = 3.0  # seconds that the end stays
ANIMATION_DPI = 80
COLORS, ALMOST_WHITE = 64, 248


def animate_episode(
    episode: PlayedEpisode, path: str | os.PathLike[str],
    progress: Callable[[int, int], None] | None = None,
) -> Path:  # fmt: skip
    """Write a GIF. `progress` is called with the numbers of frames drawn and of all.

    What does not move is drawn once. All frames share the palette of the last one, which shows
    everything: so the file holds only what changes, and is some five times smaller than what
    Matplotlib's own writer makes.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    picture = EpisodeFigure(episode)
    picture.figure.set_dpi(ANIMATION_DPI)
    for artist in picture.moving:
        artist.set_animated(True)  # left out of the background
    canvas: Any = picture.figure.canvas
    canvas.draw()
    background = canvas.copy_from_bbox(picture.figure.bbox)

    def frame(stop: int) -> Image.Image:
        picture.show(stop)
        canvas.restore_region(background)
        for artist in picture.moving:
            picture.figure.draw_artist(artist)
        return Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")

    stops = frames(episode.steps)
    palette = _palette(frame(episode.steps))
    images = []
    for i, stop in enumerate(stops, 1):
        images.append(frame(stop).quantize(palette=palette, dither=Image.Dither.NONE))
        if progress is not None:
            progress(i, len(stops))
    fps = min(max(round(len(stops) / WHOLE), FPS[0]), FPS[1])
    times = [round(1000 / fps)] * (len(stops) - 1) + [round(1000 * REST)]
    images[0].save(target, save_all=True, append_images=images[1:], duration=times, loop=0)
    return target


def frames(steps: int) -> list[int]:
    """How many steps each frame has uncovered; the last one all of them."""
    stride = math.ceil(steps / MOST_FRAMES)
    return [*range(stride, steps, stride), steps]


def _palette(image: Image.Image) -> Image.Image:
    """The palette of a picture; what is almost white is white, as the paper has to be."""
    quantized = image.quantize(COLORS, dither=Image.Dither.NONE)
    colors = np.array(quantized.getpalette()).reshape(-1, 3)
    colors[colors.min(1) >= ALMOST_WHITE] = 255
    quantized.putpalette(colors.ravel().tolist())
    return quantized


PAPER_BANDITS = ((0.5, 0.5), (0.5, 1.0))  # μ and σ of the paper's two examples
ADVERSARIAL = "adversarial"  # the title of an episode that begins with misleading samples
MOST_COLUMNS = 3
FIRST = "vssm+kf"  # of several agents that played the same bandit


def examples(groups: Sequence[Group], notices: list[str]) -> Iterator[CaptionedFigure]:
    """Two episodes, those whose bandits are nearest to the paper's (figure 3)."""
    by_label: dict[str, list[PlayedEpisode]] = {}
    for episode in read_episodes(groups, notices):
        if episode.posterior_mean is not None and episode.about.title != ADVERSARIAL:
            by_label.setdefault(episode.about.label, []).append(episode)
    for label, played in sorted(by_label.items()):
        chosen: list[PlayedEpisode] = []
        for mu, sigma in PAPER_BANDITS:
            remaining = [one for one in played if all(one is not other for other in chosen)]
            if remaining:
                chosen.append(min(remaining, key=partial(_distance, mu=mu, sigma=sigma)))
        word = f" ({label})" if label else ""
        yield CaptionedFigure(
            file_name("best-arm-episodes", label),
            draw_examples(chosen, f"Best Arm: example episodes{word}"),
            "Red: the Bayes posterior of the hidden mean, with known noise, and 3 standard "
            "deviations around it. Of the episodes that the runs left, those nearest to the "
            f"paper's bandits, won or lost; {FIRST}'s, if it has one.",
        )


def latent_rollouts(groups: Sequence[Group], notices: list[str]) -> Iterator[CaptionedFigure]:
    """Ways through a latent space of two channels, over the policy's decisions (figure 6)."""
    by_label: dict[str, dict[str, PlayedEpisode]] = {}
    for episode in read_episodes(groups, notices):
        if episode.latent is not None:
            agents = by_label.setdefault(episode.about.label, {})
            if episode.about.title == ADVERSARIAL or episode.about.agent not in agents:
                agents[episode.about.agent] = episode
    for label, agents in sorted(by_label.items()):
        chosen = [agents[name] for name in sorted(agents)][:MOST_COLUMNS]
        yield CaptionedFigure(
            file_name("best-arm-latent", label),
            latent_figure(chosen),
            "Circle and star: the first and the last step. Regions: what the policy would do "
            "there, for the last observation. One episode for each agent, adversarial where a "
            f"run left such a one{f'; {label} runs' if label else ''}.",
        )


def draw_examples(episodes: Sequence[PlayedEpisode], title: str) -> Figure:
    """Samples and posterior of each episode, side by side."""
    names = ["hidden mean", "Bayes posterior, ± 3 σ", "samples: all that the agent sees"]
    figure, axes = panel_grid(
        1, len(episodes), title=title, width=4.2, height=2.4, names=names, gap=(0.6, 0.5)
    )
    for axis, episode in zip(axes.flat, episodes, strict=True):
        draw_samples(axis, episode)
        first_line, ending = heading(episode).split("\n")
        axis.set_title(f"{first_line.partition(', hidden')[0]}: μ = {episode.about.mu:.2g}, "
                       f"σ = {episode.about.sigma:.2g}\n{ending}")  # fmt: skip
        axis.set_xlabel("step")
        axis.xaxis.get_major_locator().set_params(integer=True)
    for axis in axes.flat[1:]:
        axis.set_ylabel("")
    figure.legend(
        *axes.flat[0].get_legend_handles_labels(), loc="lower center", ncols=3, borderaxespad=0.2
    )
    return figure


def read_episodes(groups: Sequence[Group], notices: list[str]) -> Iterator[PlayedEpisode]:
    """Read all episode files of Best Arm runs, variants too; name those that are none."""
    for group in groups:
        for run in group.runs if group.family == BEST_ARM else ():
            for file in sorted((run.folder / EVALUATIONS).glob("*.npz")):
                try:
                    yield read_episode(file)
                except (OSError, ValueError):
                    path = one_line(f"{EVALUATIONS}/{file.name}")
                    notices.append(f"{run.name}: {path} is no episode file")


def _distance(episode: PlayedEpisode, mu: float, sigma: float) -> tuple[float, bool]:
    """Between two bandits, then between agents; the sign of the mean does not matter."""
    about = episode.about
    apart = abs(abs(about.mu or 0.0) - mu) + abs((about.sigma or 0.0) - sigma)
    return apart, about.agent != FIRST
