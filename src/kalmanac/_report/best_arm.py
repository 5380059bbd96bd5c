"""The paper's figures of Best Arm Identification, heat maps over a grid of bandits among them."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import Any

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from kalmanac._envs.bayes import Ceiling, bayes_threshold
from kalmanac._envs.best_arm_rules import Rules
from kalmanac._envs.registry import ENVS
from kalmanac._files.heatmap_file import Heatmap, read_heatmap
from kalmanac._messages import one_line
from kalmanac._report.figure_parts import (
    BAND,
    CaptionedFigure,
    Setting,
    agent_styles,
    lines,
    seeds,
    settings_of,
    sheets,
)
from kalmanac._report.figures import LevelPanel, Line, Panel, draw_curves, draw_levels
from kalmanac._report.groups import BEST_ARM, Group, agent_name
from kalmanac._report.scores import LENGTH, NORMALIZED, last
from kalmanac._report.statistics import mean_and_error
from kalmanac._report.style import logarithmic, panel_grid

TRAINED_UP_TO = 2.0  # the largest σ of the training


def draw_heatmaps(maps_by_agent: Mapping[str, Sequence[Heatmap]], *, title: str) -> Figure:
    """A column for each agent, the mean over its runs; win rate above, length below.

    The red line separates the noise of the training (left) from more than that.
    """
    figure, axes = panel_grid(
        2, len(maps_by_agent), title=title, width=1.75, height=1.6, right=1.0, gap=(0.2, 0.2)
    )
    wide = figure.get_figwidth()
    longest = max(float(np.max(one.length)) for maps in maps_by_agent.values() for one in maps)
    rows = (
        ("win_rate", "win rate", {"vmin": 0.5, "vmax": 1.0, "cmap": "viridis"}),
        ("length", "length", {"norm": LogNorm(1, max(longest, 2)), "cmap": "magma"}),
    )
    for i, (name, label, options) in enumerate(rows):
        row = axes[i]
        mesh: Any = None
        for axis, (agent, maps) in zip(row, maps_by_agent.items(), strict=True):
            mean = np.mean([getattr(one, name) for one in maps], axis=0)  # (μ, σ)
            mesh = axis.pcolormesh(maps[0].sigma, maps[0].mu, mean, rasterized=True, **options)
            axis.axvline(TRAINED_UP_TO, color="red", lw=1.3)
            axis.grid(visible=False)
            axis.label_outer()
            axis.set_title(agent if i == 0 else "")
            axis.set_xlabel("σ" if i == 1 else "")
        row[0].set_ylabel("μ")
        box = row[-1].get_position()
        bar = figure.add_axes((1 - 0.8 / wide, box.y0, 0.12 / wide, box.height))
        chance = "min" if name == "win_rate" else "neither"  # below it all is one color
        figure.colorbar(mesh, cax=bar, label=label, extend=chance)
        if name == "length":
            logarithmic(bar)
    return figure


PLACES = {"in": "in distribution", "out": "out of distribution"}
REFERENCE_EPISODES = 4_000  # that a threshold is tried on; a standard error of about 0.01
LONGEST = 10_000  # steps of an episode that a threshold is simulated in: seconds
REFERENCE = "Bayes threshold, σ known"
FRAME = (-1.2, 1.05)  # of returns / 10, where the first ones are far below a wrong decision's −1


def main_groups(groups: Sequence[Group]) -> list[Group]:
    """The groups of Best Arm that figures show under the agents' bare names."""
    return [group for group in groups if group.family == BEST_ARM and group.main]


def returns_and_lengths(groups: Sequence[Group]) -> Iterator[CaptionedFigure]:
    """Last evaluations against the cost of asking, in and out of distribution (figure 4)."""
    for setting in settings_of(main_groups(groups), "cost"):
        costs = sorted({group.condition("cost") for group in setting.groups})
        panels = []
        for name, y_label in ((NORMALIZED, "return / 10"), (LENGTH, "length")):
            for place, where in PLACES.items():
                points = _last_points(setting.groups, f"{place}/{name}")
                if points:
                    panels.append(
                        LevelPanel(
                            where,
                            points,
                            costs,
                            "cost of asking",
                            y_label,
                            name == LENGTH,
                            _references(setting, costs, place, name),
                        )
                    )
        if not panels:
            continue
        figure = draw_levels(
            panels, agent_styles(setting.groups), columns=len({panel.title for panel in panels}),
            title=setting.title("Best Arm: return and length against cost"),
            reference_name=REFERENCE,
        )  # fmt: skip
        caption = (
            f"Last evaluation, mean and standard error over {seeds(setting.groups)}. Dotted: the "
            "best fixed threshold on |mean| / std of the Bayes posterior, simulated; it is told "
            "the noise, and it is not the best of all policies."
        )
        yield CaptionedFigure(setting.name("best-arm-returns-lengths"), figure, caption)


def curves(groups: Sequence[Group]) -> Iterator[CaptionedFigure]:
    """Return and length over the training, for every cost, in and out of distribution."""
    kinds = ((NORMALIZED, "return / 10", "returns"), (LENGTH, "length", "lengths"))
    for setting in settings_of(main_groups(groups), "cost"):
        costs = sorted({group.condition("cost") for group in setting.groups})
        for name, y_label, word in kinds:
            panels = []
            for place, where in PLACES.items():
                for cost in costs:
                    here = [
                        group
                        for group in setting.groups
                        if group.condition("cost") == cost
                        and any(f"{place}/{name}" in run.values for run in group.runs)
                    ]
                    if here:
                        agent_lines = lines(here, f"{place}/{name}")
                        panels.append(
                            Panel(
                                f"{where}, cost {cost:g}", agent_lines, y_label, name == LENGTH,
                                bounds=FRAME if _leaves_frame(agent_lines, name) else None,
                            )
                        )  # fmt: skip
            for sheet in sheets(panels):
                title = setting.title(f"Best Arm: {word} over the training")
                wide = min(len(costs), 4) if len(costs) > 1 else 2
                figure = draw_curves(sheet, agent_styles(setting.groups), columns=wide, title=title)
                caption = f"{BAND} {seeds(setting.groups)}."
                if any(panel.bounds for panel in sheet):
                    caption += (
                        f" Below {FRAME[0]:g} nothing is drawn: so much costs to ask until the end."
                    )
                yield CaptionedFigure(setting.name(f"curves-best-arm-{word}"), figure, caption)


def _leaves_frame(agent_lines: Mapping[str, Line], name: str) -> bool:
    """Whether returns go so far down that nothing else would be seen."""
    lowest = [np.min(line.low) for line in agent_lines.values() if np.size(line.low)]
    return name == NORMALIZED and bool(lowest) and min(lowest) < FRAME[0]


def heatmaps(groups: Sequence[Group], notices: list[str]) -> Iterator[CaptionedFigure]:
    """Win rate and length over a grid of bandits at cost 0 (figure 5)."""
    for setting in settings_of(main_groups(groups)):
        by_run: dict[str, dict[str, Heatmap]] = {}
        for group in setting.groups:
            for run in group.runs:
                try:
                    heatmap = read_heatmap(run.folder)
                except (OSError, ValueError) as error:
                    reason = one_line(str(error).replace(f"{run.folder}/", ""))
                    notices.append(f"{run.name}: {reason}")
                    continue
                if heatmap is not None:
                    by_run.setdefault(agent_name(group.agent), {})[run.name] = heatmap
        maps_by_agent = {agent: _same_grid(maps, notices) for agent, maps in by_run.items()}
        if maps_by_agent:
            plain = Setting(setting.label, _unless_free(setting.conditions), setting.groups)
            title = plain.title("Best Arm: every bandit of a grid")
            counts = ", ".join(f"{agent} {len(maps)}" for agent, maps in maps_by_agent.items())
            episodes = next(iter(maps_by_agent.values()))[0].episodes
            caption = (
                f"Means over {episodes} episodes of each bandit and over runs ({counts}). Left of "
                "the red line: noise as in the training."
            )
            yield CaptionedFigure(
                plain.name("best-arm-heatmaps"), draw_heatmaps(maps_by_agent, title=title), caption
            )


def _last_points(groups: Sequence[Group], key: str) -> dict[str, dict[float, tuple[float, float]]]:
    points: dict[str, dict[float, tuple[float, float]]] = {}
    for group in groups:
        values = last(group, key)
        if values.size:
            row = points.setdefault(agent_name(group.agent), {})
            row[group.condition("cost")] = mean_and_error(values)
    return points


def _references(
    setting: Setting, costs: Sequence[float], place: str, name: str
) -> dict[float, float]:
    """What the best threshold reaches in this very task; nothing where samples are corrupted."""
    changes: dict[str, Any] = {**dict(setting.conditions), **ENVS[BEST_ARM].evaluations[place]}
    if not changes.keys() <= {entry.name for entry in fields(Rules)}:
        return {}
    if changes.get("horizon", 0) > LONGEST:
        return {}
    thresholds = {cost: _threshold(cost, tuple(sorted(changes.items()))) for cost in costs}
    return {
        cost: best.normalized_return if name == NORMALIZED else best.length
        for cost, best in thresholds.items()
    }


@cache
def _threshold(cost: float, changes: tuple[tuple[str, Any], ...]) -> Ceiling:
    return bayes_threshold(cost, **dict(changes), episodes=REFERENCE_EPISODES)


def _same_grid(maps: Mapping[str, Heatmap], notices: list[str]) -> list[Heatmap]:
    """Those on the grid that most runs have: others cannot be averaged with them."""
    grids = Counter((tuple(one.mu), tuple(one.sigma)) for one in maps.values())
    usual = grids.most_common(1)[0][0]
    same = {name for name, one in maps.items() if (tuple(one.mu), tuple(one.sigma)) == usual}
    others = (name for name in maps if name not in same)
    notices += [f"{name}: its heat map has another grid, left out" for name in others]
    return [one for name, one in maps.items() if name in same]


def _unless_free(conditions: tuple[tuple[str, Any], ...]) -> tuple[tuple[str, Any], ...]:
    return tuple(pair for pair in conditions if pair != ("cost", 0.0))
