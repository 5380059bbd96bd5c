"""Best Arm over a grid of bandits: win rate and length for each agent (paper, figure 5)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from kalmanac.heatmap_file import Heatmap
from kalmanac.report.drawing import logarithmic, panels

TRAINED_UP_TO = 2.0  # the largest σ of the training


def draw_heatmaps(found: Mapping[str, Sequence[Heatmap]], *, title: str) -> Figure:
    """A column for each agent, the mean over its runs; win rate above, length below.

    The red line separates the noise of the training (left) from more than that.
    """
    figure, axes = panels(
        2, len(found), title=title, width=1.75, height=1.6, right=1.0, gap=(0.2, 0.2)
    )
    wide = figure.get_figwidth()
    longest = max(float(np.max(one.length)) for maps in found.values() for one in maps)
    rows = (
        ("win_rate", "win rate", {"vmin": 0.5, "vmax": 1.0, "cmap": "viridis"}),
        ("length", "length", {"norm": LogNorm(1, max(longest, 2)), "cmap": "magma"}),
    )
    for i, (name, said, colours) in enumerate(rows):
        row = axes[i]
        drawn: Any = None
        for axis, (agent, maps) in zip(row, found.items(), strict=True):
            mean = np.mean([getattr(one, name) for one in maps], axis=0)  # (μ, σ)
            drawn = axis.pcolormesh(maps[0].sigma, maps[0].mu, mean, rasterized=True, **colours)
            axis.axvline(TRAINED_UP_TO, color="red", lw=1.3)
            axis.grid(visible=False)
            axis.label_outer()
            axis.set_title(agent if i == 0 else "")
            axis.set_xlabel("σ" if i == 1 else "")
        row[0].set_ylabel("μ")
        box = row[-1].get_position()
        bar = figure.add_axes((1 - 0.8 / wide, box.y0, 0.12 / wide, box.height))
        chance = "min" if name == "win_rate" else "neither"  # below it all is one colour
        figure.colorbar(drawn, cax=bar, label=said, extend=chance)
        if name == "length":
            logarithmic(bar)
    return figure
