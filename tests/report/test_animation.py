"""The animation: one frame after the other uncovers the picture, in a small file."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("matplotlib")

from PIL import Image

from kalmanac._report.episodes import MOST_FRAMES, REST, animate_episode, frames
from tests.report.episodes import Swing, played

pytestmark = pytest.mark.usefixtures("compiled_only")


@given(steps=st.integers(1, 5000))
def test_frames_uncover_everything_and_are_not_too_many(steps):
    stops = frames(steps)
    assert stops[-1] == steps
    assert len(stops) <= MOST_FRAMES
    gaps = np.diff([0, *stops])
    assert gaps.min() > 0
    assert gaps.max() - gaps[:-1].min(initial=gaps.max()) == 0


def test_a_gif_shows_one_step_after_the_other(tmp_path):
    episode, progress = played("vssm+kf", f"{Swing.__module__}:Swing"), []
    path = animate_episode(episode, tmp_path / "new" / "a.gif", lambda *done: progress.append(done))
    assert progress == [(i, 12) for i in range(1, 13)]
    assert path.stat().st_size < 300_000
    with Image.open(path) as moving:
        assert moving.n_frames == 12
        ink, paper = [], []
        for i in range(12):
            moving.seek(i)
            frame = np.asarray(moving.convert("RGB")).astype(int)
            ink.append((frame[80:] < 250).any(-1).sum())  # below the heading
            paper.append(frame[0, 0].tolist())
        assert moving.info["duration"] == 1000 * REST
    assert ink[-1] == max(ink)
    assert ink[-1] > 2 * ink[0]
    assert (np.diff(ink[:-1]) > 0).all()
    assert paper == [[255, 255, 255]] * 12
