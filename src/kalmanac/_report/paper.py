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


class Part(NamedTuple):
    """One figure of an item, and what makes its data: a suite, or an evaluation after training."""

    draw: Draw
    family: str  # of tasks, without which nobody misses it
    needs: str
    what: str = ""  # where an item has several


class Item(NamedTuple):
    """A figure or table of the paper; without a number, one that is not the paper's."""

    number: int | None
    title: str
    parts: Sequence[Part]


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
        1,
        "Best Arm: example episodes with the Bayes posterior",
        [Part(episodes.examples, BEST_ARM, f"suite best-arm, {PLAYED}")],
    ),
    Item(
        2,
        "Best Arm: return and length against cost",
        [Part(of_groups(best_arm.returns_and_lengths), BEST_ARM, "suite best-arm")],
    ),
    Item(
        3,
        "Best Arm: heat maps of win rate and length",
        [Part(best_arm.heatmaps, BEST_ARM, "suite best-arm-heatmap")],
    ),
    Item(
        4,
        "Best Arm: rollouts in a latent space of two channels",
        [
            Part(
                episodes.latent_rollouts,
                BEST_ARM,
                f"suite latent-rollouts, {PLAYED} --latent with an agent of two channels",
            )
        ],
    ),
    Item(
        5,
        "Noisy control: interquartile mean and profile",
        [Part(of_groups(dmc.benchmark), DMC, "suite dmc, with Oracle")],
    ),
    Item(
        6,
        "Noisy control: ablation of the noise",
        [Part(of_groups(dmc.noise_ablation), DMC, "suite dmc-noise, with Oracle")],
    ),
    Item(
        7,
        "POPGym: interquartile mean of MMER and profile",
        [Part(of_groups(popgym.benchmark), POPGYM, "suite popgym")],
    ),
    Item(
        8,
        "POPGym: ablation of latent size and layers",
        [Part(of_groups(popgym.size_ablation), POPGYM, "suite popgym-ablation")],
    ),
    Item(
        9,
        "Training curves",
        [
            Part(of_groups(best_arm.curves), BEST_ARM, "suite best-arm", "Best Arm"),
            Part(of_groups(dmc.curves), DMC, "suite dmc", "noisy control"),
            Part(of_groups(dmc.noise_curves), DMC, "suite dmc-noise", "increasing noise"),
            Part(of_groups(popgym.curves), POPGYM, "suite popgym", "POPGym"),
            Part(of_groups(popgym.size_curves), POPGYM, "suite popgym-ablation", "size and layers"),
        ],
    ),
    Item(
        10,
        "Design of the Kalman layer",
        [Part(of_groups(dmc.design), DMC, "suite dmc-design")],
    ),
    Item(
        11,
        "Control with noisy observations and actions",
        [Part(of_groups(dmc.action_noise), DMC, "suite dmc-actions")],
    ),
    Item(
        12,
        "POPGym: final MMER of every task, and the table beside the paper's",
        [Part(of_groups(popgym.final_scores), POPGYM, "suite popgym")],
    ),
    Item(None, "Other environments: training curves", [Part(of_groups(other_curves), OTHER, "")]),
)


PARTS = tuple((item, part) for item in ITEMS for part in item.parts)


class Missing(NamedTuple):
    """What could not be drawn, and what would bring its data."""

    number: int
    title: str
    needs: str


def draw_part(
    which: int, groups: Sequence[Group], notices: list[str]
) -> Iterator[tuple[int | None, str, CaptionedFigure | Missing]]:
    """The figures of one of PARTS with the item's number and title.

    Where there are none, though runs of its family, that it is missing.
    """
    item, part = PARTS[which]
    figures = part.draw(groups, notices)
    first = next(figures, None)
    if first is not None:
        for one in chain([first], figures):
            yield item.number, item.title, one
    elif item.number is not None and any(group.family == part.family for group in groups):
        title = ", ".join(filter(None, [item.title, part.what]))
        yield item.number, item.title, Missing(item.number, title, part.needs)
