"""Final scores against a level: Best Arm against cost, control against noise. Draws only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from kalmanac.report.drawing import Look, error_bars, legend, logarithmic, outer_labels, panels

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
    shown: Sequence[LevelPanel], looks: Mapping[str, Look], *, columns: int, title: str = "",
    reference_name: str = "", join: bool = False,
) -> Figure:  # fmt: skip
    """Levels stand side by side at equal distances; agents a little apart, joined where told."""
    rows = -(-len(shown) // columns)
    names = [name for name in looks if any(name in panel.points for panel in shown)]
    told = [*names, *filter(None, [reference_name])]
    figure, axes = panels(rows, columns, title=title, width=2.9, height=1.8, names=told)
    spread = 0.0 if join else 0.7
    for axis, panel in zip(axes.flat, shown, strict=False):
        place = {level: i for i, level in enumerate(panel.levels)}
        for i, name in enumerate(names):
            points = panel.points.get(name, {})
            shift = spread * ((i + 0.5) / len(names) - 0.5)
            x = [place[level] + shift for level in points]
            mean, error = np.asarray(list(points.values())).reshape(-1, 2).T
            look = looks[name] if join else looks[name]._replace(dash="")
            error_bars(axis, x, mean, error, look)
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
    outer_labels(axes, len(shown))
    extra = [Line2D([], [], color="black", ls=":", lw=1, label=reference_name)]
    legend(figure, {n: looks[n] for n in names}, extra=extra if reference_name else ())
    return figure
