"""Training curves: a grid of panels, one line for each agent with a band around it. Draws only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from kalmanac.report.drawing import Look, legend, logarithmic, outer_labels, panels, steps_axis

FLAT = 1e-6  # a difference that is none


@dataclass(frozen=True)
class Line:
    """One agent's curve: its middle, and the bounds of the band."""

    steps: ArrayLike
    middle: ArrayLike
    low: ArrayLike
    high: ArrayLike


@dataclass(frozen=True)
class Panel:
    """One task; `lines` by the agent's name in the legend, `level` a line across."""

    title: str
    lines: Mapping[str, Line]
    y_label: str = ""
    logarithmic: bool = False
    level: tuple[str, float] | None = None
    bounds: tuple[float, float] | None = None


def draw_curves(
    shown: Sequence[Panel], looks: Mapping[str, Look], *, columns: int, title: str = ""
) -> Figure:
    """All panels in rows of `columns`, with one legend."""
    rows = -(-len(shown) // columns)
    drawn = {name: look for name, look in looks.items() if _drawn(shown, name)}
    figure, axes = panels(
        rows, columns, title=title, width=2.3, height=1.5, names=list(drawn), gap=(0.6, 0.45)
    )
    for axis, panel in zip(axes.flat, shown, strict=False):
        draw_panel(axis, panel, looks)
    for axis in axes[:, 0]:  # below each other, whatever the width of the numbers
        axis.yaxis.set_label_coords(-0.23, 0.5)
    outer_labels(
        axes, len(shown), same_x=len({axis.get_xlim() for axis in axes.flat[: len(shown)]}) == 1
    )
    legend(figure, drawn)
    return figure


def draw_panel(axis: Any, panel: Panel, looks: Mapping[str, Look]) -> None:
    """Every line with its band."""
    most, heights = 0.0, [np.zeros(0)]
    for name, line in panel.lines.items():
        look, steps = looks[name], np.asarray(line.steps)
        if not steps.size:
            continue
        most = max(most, float(steps[-1]))
        heights += [np.asarray(line.low, float), np.asarray(line.high, float)]
        alone = look.marker if steps.size == 1 else ""  # one point is no line
        axis.plot(steps, line.middle, color=look.colour, ls=look.dash, marker=alone)
        axis.fill_between(steps, line.low, line.high, color=look.colour, alpha=0.18, lw=0)
    if panel.level is not None:
        axis.axhline(panel.level[1], color="black", ls=":", lw=1)
    axis.set_title(panel.title)
    axis.set_ylabel(panel.y_label)
    if panel.logarithmic:
        logarithmic(axis)
    seen = np.concatenate(heights)
    if panel.bounds is not None:
        axis.set_ylim(*panel.bounds)
    elif seen.size and np.ptp(seen) < FLAT and not panel.logarithmic:
        room = max(1.0, 0.1 * abs(seen[0]))
        axis.set_ylim(seen[0] - room, seen[0] + room)  # else a scale of nothing, with long numbers
    if most:
        steps_axis(axis, most)


def _drawn(shown: Sequence[Panel], name: str) -> bool:
    return any(name in panel.lines for panel in shown)
