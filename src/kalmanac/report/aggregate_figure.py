"""Scores summed up over tasks (paper, DMC and POPGym): a curve and a performance profile."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from kalmanac.report.curves_figure import Line, Panel, draw_panel
from kalmanac.report.drawing import Look, legend, panels
from kalmanac.report.statistics import Interval


def draw_aggregate(
    curves: Mapping[str, Line], profiles: Mapping[str, Interval], thresholds: ArrayLike,
    looks: Mapping[str, Look], *, title: str, score: str,
) -> Figure:  # fmt: skip
    """Left: interquartile mean over the training. Right: runs with a score above each threshold."""
    drawn = {name: look for name, look in looks.items() if name in profiles}
    figure, axes = panels(
        1, 2, title=title, width=3.4, height=2.3, gap=(0.75, 0.5), names=list(drawn)
    )
    draw_panel(axes[0, 0], Panel("", curves, y_label=f"IQM {score}"), looks)
    draw_profile(axes[0, 1], profiles, thresholds, looks, score)
    legend(figure, drawn)
    return figure


def draw_profile(
    axis: Any, profiles: Mapping[str, Interval], thresholds: ArrayLike,
    looks: Mapping[str, Look], score: str,
) -> None:  # fmt: skip
    """One step line for each agent, with the band of its interval."""
    at = np.asarray(thresholds)
    for name, profile in profiles.items():
        look = looks[name]
        axis.plot(at, profile.point, color=look.colour, ls=look.dash)
        axis.fill_between(at, profile.low, profile.high, color=look.colour, alpha=0.18, lw=0)
    axis.set(xlabel=f"{score} (τ)", ylabel="share of runs with score > τ")
    axis.set_ylim(-0.02, 1.02)
    axis.set_xlim(at[0], at[-1])
