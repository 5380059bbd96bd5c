"""The motor's picture: reference, true speed, readings, what is believed of it, and torque."""

from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from numpy.typing import NDArray

from kalmanac._envs.motor import SERVO

matplotlib.use("Agg")
import matplotlib.pyplot as plt

BLUE, RED, GREY, YELLOW, GREEN = "#0072B2", "#D55E00", "#777777", "#F0E442", "#009E73"
BAND = 2  # standard deviations
Floats = NDArray[np.float64]


class Drawn(NamedTuple):
    """One episode (T, …); belief and band are empty where the agent has none."""

    agent: str
    truth: Floats  # (T, 5)
    reading: Floats  # (T, 3 or 4)
    observed: NDArray[np.bool_]
    belief: Floats  # rad/s
    band: Floats
    engineer: Floats  # the speed that PI behind the exact filter reaches, rad/s


def draw(episode: Drawn, path: Path) -> None:
    """Speed above, torque below."""
    time = np.arange(len(episode.truth)) * SERVO.period * 1000
    speed, reference = SERVO.speed * episode.truth[:, 1], SERVO.speed * episode.truth[:, 3]
    style = {"axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False}
    with plt.rc_context(style):
        size = (10, 6.4)
        figure, (above, below) = plt.subplots(
            2, 1, figsize=size, sharex=True, height_ratios=(2.4, 1), layout="constrained"
        )
        for axes in (above, below):
            _gaps(axes, time, episode.observed)
        if len(episode.belief):
            low, high = (episode.belief + side * BAND * episode.band for side in (-1, 1))
            label = f"{episode.agent}: belief ± {BAND}σ, read from its memory"
            above.fill_between(time, low, high, color=BLUE, alpha=0.18, lw=0, label=label)
            above.plot(time, episode.belief, color=BLUE, lw=1, ls=":")
        above.plot(time, reference, color="black", lw=1.4, ls="--", label="reference")
        above.plot(time, speed, color=BLUE, lw=1.8, label=f"true speed under {episode.agent}")
        above.plot(
            time, episode.engineer, color=GREY, lw=1.2, label="under PI behind the exact filter"
        )
        there = episode.observed
        above.plot(
            time[there], SERVO.speed * episode.reading[there, 1], "x", color=RED, ms=4, mew=1,
            label="readings: noisy, one step late",
        )  # fmt: skip
        error = np.mean(np.abs(speed[1:] - reference[:-1]))
        other = np.mean(np.abs(episode.engineer[1:] - reference[:-1]))
        above.set_title(
            f"Speed of a motor, half of the readings missing: mean error of this episode "
            f"{error:.1f} rad/s, PI behind the exact filter {other:.1f}",
            loc="left", fontsize=10, fontweight="bold",
        )  # fmt: skip
        above.set_ylabel("speed (rad/s)")
        above.legend(fontsize=8, ncols=2)
        torque = SERVO.flux * SERVO.current * episode.truth[:, 0]
        below.plot(time, torque, color=GREEN, lw=1.4, label="motor's torque")
        below.plot(time, episode.truth[:, 2], color="black", lw=1, label="load's torque: hidden")
        below.set(xlabel="time (ms)", ylabel="torque (N m)", xlim=(time[0], time[-1]))
        below.legend(fontsize=8, ncols=2)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=110, metadata={"Software": None})
        plt.close(figure)


def _gaps(axes: Any, time: NDArray[Any], observed: NDArray[np.bool_]) -> None:
    edges = np.flatnonzero(np.diff(np.concatenate([[True], observed, [True]])))
    step = time[1] - time[0]
    for i, (start, end) in enumerate(edges.reshape(-1, 2)):
        label = "readings missing" if i == 0 else None
        left, right = time[start] - step / 2, time[end - 1] + step / 2
        axes.axvspan(left, right, color=YELLOW, alpha=0.3, lw=0, zorder=0, label=label)
