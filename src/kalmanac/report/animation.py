"""An episode as an animation: the picture of `episode_figure`, uncovered step by step."""

import math
import os
from collections.abc import Callable
from pathlib import Path

from matplotlib.animation import PillowWriter

from kalmanac.episode_file import PlayedEpisode
from kalmanac.report.episode_figure import EpisodeFigure

MOST_FRAMES = 60  # longer episodes show several steps a frame
FPS = (2, 8)  # frames a second, at least and at most
WHOLE = 8.0  # seconds that an episode should last
REST = 2.0  # seconds that the end stays
DPI = 80


def animate_episode(
    episode: PlayedEpisode, path: str | os.PathLike[str],
    told: Callable[[int, int], None] | None = None,
) -> Path:  # fmt: skip
    """Write a GIF. `told` is called with the number of frames written, and of all frames."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    stops = frames(episode.steps)
    fps = min(max(round(len(stops) / WHOLE), FPS[0]), FPS[1])
    stops += [episode.steps] * math.ceil(REST * fps)
    picture = EpisodeFigure(episode)
    writer = PillowWriter(fps=fps)
    with writer.saving(picture.figure, str(target), DPI):
        for i, stop in enumerate(stops, 1):
            picture.show(stop)
            writer.grab_frame()
            if told is not None:
                told(i, len(stops))
    return target


def frames(steps: int) -> list[int]:
    """How many steps each frame has uncovered; the last one all of them."""
    stride = math.ceil(steps / MOST_FRAMES)
    return [*range(stride, steps, stride), steps]
