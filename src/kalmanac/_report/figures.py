"""Figures that know no task: training curves, bars, scores against a level, sums over tasks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike

from kalmanac._report.statistics import Interval
from kalmanac._report.style import (
    LineStyle,
    error_bars,
    legend,
    logarithmic,
    outer_labels,
    panel_grid,
    steps_axis,
)

FLAT = 1e-6  # a difference that is none
MARKED = 6  # points of a curve


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
    panels: Sequence[Panel], styles: Mapping[str, LineStyle], *, columns: int, title: str = ""
) -> Figure:
    """Draw all panels in rows of `columns`, with one legend."""
    rows = -(-len(panels) // columns)
    legend_styles = {name: style for name, style in styles.items() if _has_line(panels, name)}
    figure, axes = panel_grid(
        rows, columns, title=title, width=2.3, height=1.5, gap=(0.6, 0.6),
        names=list(legend_styles),
    )  # fmt: skip
    for axis, panel in zip(axes.flat, panels, strict=False):
        draw_panel(axis, panel, styles)
    for axis in axes[:, 0]:  # below each other, whatever the width of the numbers
        axis.yaxis.set_label_coords(-0.23, 0.5)
    outer_labels(
        axes, len(panels), same_x=len({axis.get_xlim() for axis in axes.flat[: len(panels)]}) == 1
    )
    legend(figure, legend_styles)
    return figure


def draw_panel(axis: Any, panel: Panel, styles: Mapping[str, LineStyle]) -> None:
    """Draw every line of a panel with its band."""
    most, heights = 0.0, [np.zeros(0)]
    for name, line in panel.lines.items():
        style, steps = styles[name], np.asarray(line.steps)
        if not steps.size:
            continue
        most = max(most, float(steps[-1]))
        heights += [np.asarray(line.low, float), np.asarray(line.high, float)]
        # some points are marked as in the legend; where there is but one, it is no line
        axis.plot(
            steps, line.middle, color=style.color, ls=style.dash, marker=style.marker, ms=3.5,
            markevery=max(1, steps.size // MARKED),
        )  # fmt: skip
        axis.fill_between(steps, line.low, line.high, color=style.color, alpha=0.18, lw=0)
    if panel.level is not None:
        axis.axhline(panel.level[1], color="black", ls=":", lw=1)
    axis.set_title(panel.title)
    axis.set_ylabel(panel.y_label)
    if panel.logarithmic:
        logarithmic(axis)
    values = np.concatenate(heights)
    if panel.bounds is not None:
        axis.set_ylim(*panel.bounds)
    elif values.size and np.ptp(values) < FLAT and not panel.logarithmic:
        room = max(1.0, 0.1 * abs(values[0]))
        # else a scale of nothing, with long numbers
        axis.set_ylim(values[0] - room, values[0] + room)
    if most:
        steps_axis(axis, most)


def _has_line(panels: Sequence[Panel], name: str) -> bool:
    return any(name in panel.lines for panel in panels)


@dataclass(frozen=True)
class Bar:
    """A score with its standard error; `tick` is a second number on the same bar."""

    mean: float
    error: float
    color: str
    tick: float | None = None


@dataclass(frozen=True)
class BarPanel:
    """One task; `reference` is a line across all bars."""

    title: str
    bars: Mapping[str, Bar]
    reference: float | None = None


def draw_bars(
    panels: Sequence[BarPanel], *, columns: int, title: str, x_label: str, reference_name: str,
    tick_name: str = "", limits: tuple[float, float] | None = None,
) -> Figure:  # fmt: skip
    """Draw all panels in rows of `columns`; the first name is the topmost bar."""
    rows = -(-len(panels) // columns)
    names = list(dict.fromkeys(name for panel in panels for name in panel.bars))
    legend_names = [name for name in (reference_name, tick_name) if name]
    figure, axes = panel_grid(
        rows, columns, title=title, width=2.2, height=0.17 * len(names) + 0.2, names=legend_names,
        left=0.25 + 0.075 * max(map(len, names), default=0), gap=(0.25, 0.55),
    )  # fmt: skip
    y = {name: -i for i, name in enumerate(names)}
    base = 0.0 if limits is None else limits[0]
    for i, (axis, panel) in enumerate(zip(axes.flat, panels, strict=False)):
        at, bars = [y[name] for name in panel.bars], list(panel.bars.values())
        means = np.array([bar.mean for bar in bars])
        axis.barh(at, means - base, left=base, color=[bar.color for bar in bars], height=0.75)
        errors = np.nan_to_num([bar.error for bar in bars])
        axis.errorbar(means, at, xerr=errors, color="#333333", ls="", lw=1, capsize=1.5)
        ticks = [
            (bar.tick, place) for bar, place in zip(bars, at, strict=True) if bar.tick is not None
        ]
        for width, color in ((4, "white"), (1.4, "black")):
            axis.plot(*np.reshape(ticks, (-1, 2)).T, "|", color=color, mew=width, ms=9)
        if panel.reference is not None:
            axis.axvline(panel.reference, color="#B00020", lw=1.2, ls="--")
        axis.set_title(panel.title)
        axis.set_yticks(list(y.values()), list(y) if i % columns == 0 else [""] * len(y))
        axis.tick_params(axis="y", length=0)
        axis.grid(axis="y", visible=False)
        if limits is not None:
            axis.set_xlim(*limits)
        axis.xaxis.set_major_formatter(lambda x, _: f"{x:g}".replace("-", "−"))  # "−1", not "−1.0"
    outer_labels(axes, len(panels), x_label)
    extra = [Line2D([], [], color="#B00020", ls="--", lw=1.2, label=reference_name)]
    if tick_name:
        tick = Line2D([], [], color="black", marker="|", ls="", ms=9, mew=1.4, label=tick_name)
        extra.append(tick)
    legend(figure, {}, extra=extra)
    return figure


Points = Mapping[float, tuple[float, float]]  # level → mean and standard error


@dataclass(frozen=True)
class LevelPanel:
    """Points of every agent over the same levels; `reference` is a marker at each level."""

    title: str
    points: Mapping[str, Points]
    levels: Sequence[float]
    x_label: str
    y_label: str = ""
    logarithmic: bool = False
    reference: Mapping[float, float] = field(default_factory=dict)


def draw_levels(
    panels: Sequence[LevelPanel], styles: Mapping[str, LineStyle], *, columns: int, title: str = "",
    reference_name: str = "", join: bool = False,
) -> Figure:  # fmt: skip
    """Draw levels at equal distances and agents a little apart; `join` joins an agent's points."""
    rows = -(-len(panels) // columns)
    names = [name for name in styles if any(name in panel.points for panel in panels)]
    legend_names = [*names, *filter(None, [reference_name])]
    figure, axes = panel_grid(rows, columns, title=title, width=2.9, height=1.8, names=legend_names)
    spread = 0.0 if join else 0.7
    for axis, panel in zip(axes.flat, panels, strict=False):
        place = {level: i for i, level in enumerate(panel.levels)}
        for i, name in enumerate(names):
            points = panel.points.get(name, {})
            shift = spread * ((i + 0.5) / len(names) - 0.5)
            x = [place[level] + shift for level in points]
            mean, error = np.asarray(list(points.values())).reshape(-1, 2).T
            style = styles[name] if join else styles[name]._replace(dash="")
            error_bars(axis, x, mean, error, style)
        for level, value in panel.reference.items():
            axis.hlines(
                value, place[level] - 0.42, place[level] + 0.42, color="black", ls=":", lw=1
            )
        axis.set_title(panel.title)
        axis.set(xlabel=panel.x_label, ylabel=panel.y_label)
        axis.set_xticks(range(len(place)), [f"{level:g}" for level in place])
        axis.set_xlim(-0.5, len(place) - 0.5)
        if panel.logarithmic:
            logarithmic(axis)
    outer_labels(axes, len(panels))
    extra = [Line2D([], [], color="black", ls=":", lw=1, label=reference_name)]
    legend(figure, {n: styles[n] for n in names}, extra=extra if reference_name else ())
    return figure


def draw_aggregate(
    curves: Mapping[str, Line], profiles: Mapping[str, Interval], thresholds: ArrayLike,
    styles: Mapping[str, LineStyle], *, title: str, score: str,
) -> Figure:  # fmt: skip
    """Left: interquartile mean over the training. Right: runs with a score above each threshold."""
    legend_styles = {name: style for name, style in styles.items() if name in profiles}
    figure, axes = panel_grid(
        1, 2, title=title, width=3.4, height=2.3, gap=(0.75, 0.5), names=list(legend_styles)
    )
    draw_panel(axes[0, 0], Panel("", curves, y_label=f"IQM {score}"), styles)
    draw_profile(axes[0, 1], profiles, thresholds, styles, score)
    legend(figure, legend_styles)
    return figure


def draw_profile(
    axis: Any, profiles: Mapping[str, Interval], thresholds: ArrayLike,
    styles: Mapping[str, LineStyle], score: str,
) -> None:  # fmt: skip
    """One step line for each agent, with the band of its interval."""
    at = np.asarray(thresholds)
    for name, profile in profiles.items():
        style = styles[name]
        axis.plot(at, profile.point, color=style.color, ls=style.dash)
        axis.fill_between(at, profile.low, profile.high, color=style.color, alpha=0.18, lw=0)
    axis.set(xlabel=f"{score} (τ)", ylabel="share of runs with score > τ")
    axis.set_ylim(-0.02, 1.02)
    axis.set_xlim(at[0], at[-1])
