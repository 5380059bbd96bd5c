"""The style of all figures: colors, sizes, legends, and the two files that each one becomes."""

import textwrap
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

# Every reader can tell them apart: Wong's and seaborn's color-blind palettes.
COLORS = {
    "vssm": "#DE8F05",
    "vssm+kf": "#0173B2",
    "vssm+kf-u": "#56B4E9",
    "mamba": "#029E73",
    "gru": "#D55E00",
    "transformer": "#CC78BC",
    "oracle": "#000000",
    "memoryless": "#949494",
}
SPARE = ("#7A4FBF", "#6B8E23", "#8C1C13", "#CA9161", "#17A2A2", "#E7298A")
DASHED = {"oracle": "--", "memoryless": "-."}
MARKERS = {
    "vssm": "s", "vssm+kf": "o", "vssm+kf-u": "^", "mamba": "D", "gru": "v", "transformer": "P",
    "oracle": "*", "memoryless": "X",
}  # fmt: skip
STYLE = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.5,
    "text.parse_math": False,  # a name with two dollars in it is a name
}
DOTS_PER_INCH = 110


class LineStyle(NamedTuple):
    """The color, dash and marker of one agent, the same in every figure."""

    color: str
    dash: str = "-"
    marker: str = "o"


def line_styles(agents: Iterable[str]) -> dict[str, LineStyle]:
    """The paper's agents have the same style in every report; others take spare colors in turn."""
    styles, spare = {}, 0
    for agent in agents:
        if agent in COLORS:
            styles[agent] = LineStyle(COLORS[agent], DASHED.get(agent, "-"), MARKERS[agent])
        else:
            styles[agent] = LineStyle(SPARE[spare % len(SPARE)], (":", "-")[spare < len(SPARE)])
            spare += 1
    return styles


@contextmanager
def styled() -> Iterator[None]:
    """Figures that are created and saved inside have our style."""
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph .* missing from font")  # a box stands there
        yield


def panel_grid(
    rows: int, columns: int, *, width: float = 2.7, height: float = 2.0, title: str = "",
    names: Sequence[str] = (), left: float = 0.7, right: float = 0.2,
    gap: tuple[float, float] = (0.5, 0.45),
) -> tuple[Figure, Any]:  # fmt: skip
    """A figure of equal panels, sizes in inches, with room for a legend of `names` below them.

    Margins are computed, not searched for: a layout engine takes longer than all the drawing.
    """
    wide = left + columns * width + (columns - 1) * gap[0] + right
    below = 0.5 + (0.1 + 0.2 * -(-len(names) // _legend_columns(names, wide)) if names else 0.0)
    title = textwrap.fill(title, max(20, int((wide - 0.2) / 0.088)))
    above = 0.3 + (0.15 + 0.17 * (1 + title.count("\n")) if title else 0.0)
    high = above + rows * height + (rows - 1) * gap[1] + below
    figure = Figure(figsize=(wide, high))
    axes = figure.subplots(
        rows, columns, squeeze=False,
        gridspec_kw={
            "left": left / wide, "right": 1 - right / wide,
            "bottom": below / high, "top": 1 - above / high,
            "wspace": gap[0] / width, "hspace": gap[1] / height,
        },
    )  # fmt: skip
    if title:
        figure.suptitle(title, y=1 - 0.08 / high, va="top", fontsize=10, fontweight="bold")
    return figure, axes


def legend_handles(entries: Mapping[str, LineStyle]) -> list[Any]:
    """The legend's entry of each agent."""
    return [
        Line2D([], [], color=style.color, ls=style.dash, marker=style.marker, ms=4, label=name)
        for name, style in entries.items()
    ]


def legend(figure: Figure, entries: Mapping[str, LineStyle], extra: Sequence[Any] = ()) -> None:
    """Draw one legend for all panels, in the room that `panel_grid` left for its names."""
    handles = [*legend_handles(entries), *extra]
    if handles:
        columns = _legend_columns([str(h.get_label()) for h in handles], figure.get_figwidth())
        figure.legend(
            handles=handles, loc="lower center", ncols=columns, bbox_to_anchor=(0.5, 0.0),
            columnspacing=1.2, handlelength=2.2, borderaxespad=0.2,
        )  # fmt: skip


def _legend_columns(names: Sequence[str], wide: float) -> int:
    """As many entries in a row as fit, and rows of about the same number."""
    if not names:
        return 1
    one = 0.65 + 0.07 * max(map(len, names))  # inches
    rows = -(-len(names) // max(1, int((wide - 0.2) / one)))
    return -(-len(names) // rows)


def outer_labels(axes: Any, used: int, x_label: str | None = None, *, same_x: bool = False) -> None:
    """Hide the panels that nothing was drawn in; label the left and the lowest panels alone.

    Where all have the same x axis, only the lowest have numbers at it.
    """
    columns = axes.shape[1]
    for i, axis in enumerate(axes.flat):
        axis.set_visible(i < used)
        if i % columns:
            axis.set_ylabel("")
        if i + columns < used:
            axis.set_xlabel("")
            axis.tick_params(labelbottom=not same_x)
        elif x_label is not None:
            axis.set_xlabel(x_label)


def steps_axis(axis: Any, most: float) -> None:
    """Label the x axis with environment steps in thousands or millions."""
    unit, name = (1e6, "million") if most >= 1e6 else (1e3, "thousand")
    axis.xaxis.set_major_formatter(lambda x, _: f"{x / unit:g}")
    axis.xaxis.set_major_locator(MaxNLocator(5))
    axis.set_xlabel(f"environment steps ({name})")
    axis.set_xlim(0, most)


def logarithmic(axis: Any) -> None:
    """Make the y axis logarithmic, with plain numbers at 1, 2, 5, 10 and so on."""
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
    axis.yaxis.set_minor_locator(NullLocator())


def error_bars(axis: Any, x: Any, mean: Any, error: Any, style: LineStyle, **options: Any) -> None:
    """Draw points with their standard errors, where these are known."""
    known = np.nan_to_num(np.asarray(error, float))
    axis.errorbar(
        x, mean, yerr=known, color=style.color, marker=style.marker, ls=style.dash, ms=4.5,
        capsize=2, lw=1.2, **options,
    )  # fmt: skip


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Save NAME.png and NAME.pdf, without a date in them."""
    files = [folder / f"{name}.png", folder / f"{name}.pdf"]
    figure.savefig(files[0], dpi=DOTS_PER_INCH, metadata={"Software": None})
    figure.savefig(files[1], metadata={"CreationDate": None})
    return files
