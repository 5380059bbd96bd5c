"""An episode as an animation: the picture of `episode_figure`, uncovered step by step."""

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from kalmanac.episode_file import PlayedEpisode
from kalmanac.report.episode_figure import EpisodeFigure

MOST_FRAMES = 60  # longer episodes show several steps a frame
FPS = (2, 8)  # frames a second, at least and at most
WHOLE = 8.0  # seconds that an episode should last
REST = 3.0  # seconds that the end stays
DPI = 80
COLOURS, ALMOST_WHITE = 64, 248


def animate_episode(
    episode: PlayedEpisode, path: str | os.PathLike[str],
    told: Callable[[int, int], None] | None = None,
) -> Path:  # fmt: skip
    """Write a GIF. `told` is called with the number of frames drawn, and of all frames.

    What does not move is drawn once. All frames share the palette of the last one, which shows
    everything: so the file holds only what changes, and is some five times smaller than what
    Matplotlib's own writer makes.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    picture = EpisodeFigure(episode)
    picture.figure.set_dpi(DPI)
    for artist in picture.moving:
        artist.set_animated(True)  # left out of the background
    canvas: Any = picture.figure.canvas
    canvas.draw()
    background = canvas.copy_from_bbox(picture.figure.bbox)

    def drawn(stop: int) -> Image.Image:
        picture.show(stop)
        canvas.restore_region(background)
        for artist in picture.moving:
            picture.figure.draw_artist(artist)
        return Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")

    stops = frames(episode.steps)
    palette = _palette(drawn(episode.steps))
    images = []
    for i, stop in enumerate(stops, 1):
        images.append(drawn(stop).quantize(palette=palette, dither=Image.Dither.NONE))
        if told is not None:
            told(i, len(stops))
    fps = min(max(round(len(stops) / WHOLE), FPS[0]), FPS[1])
    times = [round(1000 / fps)] * (len(stops) - 1) + [round(1000 * REST)]
    images[0].save(target, save_all=True, append_images=images[1:], duration=times, loop=0)
    return target


def frames(steps: int) -> list[int]:
    """How many steps each frame has uncovered; the last one all of them."""
    stride = math.ceil(steps / MOST_FRAMES)
    return [*range(stride, steps, stride), steps]


def _palette(image: Image.Image) -> Image.Image:
    """The colours of a picture; what is almost white is white, as the paper has to be."""
    found = image.quantize(COLOURS, dither=Image.Dither.NONE)
    colours = np.array(found.getpalette()).reshape(-1, 3)
    colours[colours.min(1) >= ALMOST_WHITE] = 255
    found.putpalette(colours.ravel().tolist())
    return found
