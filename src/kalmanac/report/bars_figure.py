"""Horizontal bars of final scores, one panel for each task (POPGym). Draws only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from kalmanac.report.drawing import legend, outer_labels, panels


@dataclass(frozen=True)
class Bar:
    """A score with its standard error; `tick` is a second number on the same bar."""

    mean: float
    error: float
    colour: str
    tick: float | None = None


@dataclass(frozen=True)
class BarPanel:
    """One task; `reference` is a line across all bars."""

    title: str
    bars: Mapping[str, Bar]
    reference: float | None = None


def draw_bars(
    shown: Sequence[BarPanel], *, columns: int, title: str, x_label: str, reference_name: str,
    tick_name: str = "", limits: tuple[float, float] | None = None,
) -> Figure:  # fmt: skip
    """All panels in rows of `columns`; the first name is the topmost bar."""
    rows = -(-len(shown) // columns)
    names = list(dict.fromkeys(name for panel in shown for name in panel.bars))
    told = [name for name in (reference_name, tick_name) if name]
    figure, axes = panels(
        rows, columns, title=title, width=2.2, height=0.17 * len(names) + 0.2, names=told,
        left=0.25 + 0.075 * max(map(len, names), default=0), gap=(0.25, 0.55),
    )  # fmt: skip
    y = {name: -i for i, name in enumerate(names)}
    base = 0.0 if limits is None else limits[0]
    for i, (axis, panel) in enumerate(zip(axes.flat, shown, strict=False)):
        at, bars = [y[name] for name in panel.bars], list(panel.bars.values())
        means = np.array([bar.mean for bar in bars])
        axis.barh(at, means - base, left=base, color=[bar.colour for bar in bars], height=0.75)
        errors = np.nan_to_num([bar.error for bar in bars])
        axis.errorbar(means, at, xerr=errors, color="#333333", ls="", lw=1, capsize=1.5)
        ticks = [
            (bar.tick, place) for bar, place in zip(bars, at, strict=True) if bar.tick is not None
        ]
        for width, colour in ((4, "white"), (1.4, "black")):
            axis.plot(*np.reshape(ticks, (-1, 2)).T, "|", color=colour, mew=width, ms=9)
        if panel.reference is not None:
            axis.axvline(panel.reference, color="#B00020", lw=1.2, ls="--")
        axis.set_title(panel.title)
        axis.set_yticks(list(y.values()), list(y) if i % columns == 0 else [""] * len(y))
        axis.tick_params(axis="y", length=0)
        axis.grid(axis="y", visible=False)
        if limits is not None:
            axis.set_xlim(*limits)
        axis.xaxis.set_major_formatter(lambda x, _: f"{x:g}".replace("-", "−"))  # "−1", not "−1.0"
    outer_labels(axes, len(shown), x_label)
    extra = [Line2D([], [], color="#B00020", ls="--", lw=1.2, label=reference_name)]
    if tick_name:
        tick = Line2D([], [], color="black", marker="|", ls="", ms=9, mew=1.4, label=tick_name)
        extra.append(tick)
    legend(figure, {}, extra=extra)
    return figure
