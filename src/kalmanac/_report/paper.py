"""Every figure and table of the paper: what draws it, and which suite would bring its data."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from kalmanac._report import best_arm, dmc, episodes, popgym
from kalmanac._report.figure_parts import (
    BAND,
    CaptionedFigure,
    line,
    seeds,
    settings_of,
    sheets,
    title_styles,
)
from kalmanac._report.figures import Panel, draw_curves
from kalmanac._report.groups import BEST_ARM, DMC, OTHER, POPGYM, Group

Draw = Callable[[Sequence[Group], list[str]], Iterator[CaptionedFigure]]


class Item(NamedTuple):
    """A figure of the paper and what makes its data; without a number, one that is not in it."""

    number: str  # as in the paper
    title: str
    draw: Draw
    family: str  # of tasks, without which nobody misses it
    needs: str  # a suite, or an evaluation after training


def of_groups(draw: Callable[[Sequence[Group]], Iterator[CaptionedFigure]]) -> Draw:
    """Wrap a function that needs nothing but the groups."""
    return lambda groups, _: draw(groups)


def other_curves(groups: Sequence[Group]) -> Iterator[CaptionedFigure]:
    """Training curves in environments that are not the paper's."""
    for setting in settings_of([g for g in groups if g.family == OTHER]):
        tasks = list(dict.fromkeys(group.task for group in setting.groups))
        panels = [
            Panel(
                task, {g.agent_title: line(g) for g in setting.groups if g.task == task}, "return"
            )
            for task in tasks
        ]
        title = setting.title("Returns over the training")
        caption = f"{BAND} {seeds(setting.groups)}."
        for sheet in sheets(panels):
            columns = min(3, max(2, len(sheet)))
            figure = draw_curves(sheet, title_styles(setting.groups), columns=columns, title=title)
            yield CaptionedFigure(setting.name("curves-other"), figure, caption)


PLAYED = "or kalmanac watch RUN"
ITEMS = (
    Item(
        "Figure 3", "Best Arm: example episodes with the Bayes posterior", episodes.examples,
        BEST_ARM, f"suite best-arm, {PLAYED}",
    ),
    Item(
        "Figure 4", "Best Arm: return and length against cost",
        of_groups(best_arm.returns_and_lengths), BEST_ARM, "suite best-arm",
    ),
    Item(
        "Figure 5", "Best Arm: heat maps of win rate and length", best_arm.heatmaps,
        BEST_ARM, "suite best-arm-heatmap",
    ),
    Item(
        "Figure 6", "Best Arm: rollouts in a latent space of two channels",
        episodes.latent_rollouts, BEST_ARM,
        f"suite latent-rollouts, {PLAYED} --latent with an agent of two channels",
    ),
    Item(
        "Figure 7", "Noisy control: interquartile mean and profile",
        of_groups(dmc.benchmark), DMC, "suite dmc, with Oracle",
    ),
    Item(
        "Figure 8", "Noisy control: ablation of the noise",
        of_groups(dmc.noise_ablation), DMC, "suite dmc-noise, with Oracle",
    ),
    Item(
        "Figure 9", "POPGym: interquartile mean of MMER and profile",
        of_groups(popgym.benchmark), POPGYM, "suite popgym",
    ),
    Item(
        "Figure 10", "POPGym: ablation of latent size and layers",
        of_groups(popgym.size_ablation), POPGYM, "suite popgym-ablation",
    ),
    Item(
        "Figures 11 and 12", "Best Arm: training curves",
        of_groups(best_arm.curves), BEST_ARM, "suite best-arm",
    ),
    Item(
        "Figure 13", "Noisy control: design of the Kalman layer",
        of_groups(dmc.design), DMC, "suite dmc-design",
    ),
    Item(
        "Figure 14", "Noisy control: training curves", of_groups(dmc.curves), DMC, "suite dmc"
    ),
    Item(
        "Figure 15", "Noisy control: training curves under more and less noise",
        of_groups(dmc.noise_curves), DMC, "suite dmc-noise",
    ),
    Item(
        "Figure 16", "Control with noisy observations and actions",
        of_groups(dmc.action_noise), DMC, "suite dmc-actions",
    ),
    Item(
        "Figure 17", "POPGym: training curves", of_groups(popgym.curves), POPGYM, "suite popgym"
    ),
    Item(
        "Figure 18, table 2", "POPGym: final MMER of every task, beside the paper's",
        of_groups(popgym.final_scores), POPGYM, "suite popgym",
    ),
    Item(
        "Figure 19", "POPGym: training curves of the ablation",
        of_groups(popgym.size_curves), POPGYM, "suite popgym-ablation",
    ),
    Item("", "Other environments: training curves", of_groups(other_curves), OTHER, ""),
)  # fmt: skip


class Missing(NamedTuple):
    """What could not be drawn, and what would bring its data."""

    number: str
    title: str
    needs: str


def draw_item(
    which: int, groups: Sequence[Group], notices: list[str]
) -> Iterator[CaptionedFigure | Missing]:
    """The figures of one of ITEMS.

    Where there are none, though runs of its family, that it is missing.
    """
    item = ITEMS[which]
    figures = item.draw(groups, notices)
    first = next(figures, None)
    if first is not None:
        yield from chain([first], figures)
    elif item.number and any(group.family == item.family for group in groups):
        yield Missing(item.number, item.title, item.needs)
