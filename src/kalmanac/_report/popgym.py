"""POPGym beside the paper: its figures, and its numbers in tables."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from kalmanac._report.figure_parts import (
    BAND,
    CaptionedFigure,
    Setting,
    agent_styles,
    draw_sum,
    line,
    lines,
    seeds,
    settings_of,
)
from kalmanac._report.figures import Bar, BarPanel, Panel, draw_bars, draw_curves
from kalmanac._report.groups import POPGYM, POPGYM_TASKS, Group, agent_name
from kalmanac._report.published import BEST, MAMBA, popgym_table
from kalmanac._report.scores import aggregate, best, last, popgym_scale
from kalmanac._report.statistics import mean_and_error, standard_errors_apart
from kalmanac._report.style import LineStyle
from kalmanac._report.table import Table, pair

SEQUENCE_MODELS = ("vssm+kf", "vssm+kf-u", "vssm", "mamba", "gru", "transformer")
HIGHEST = "★"


def popgym_matrix(setting: Setting) -> Table:
    """The paper's arrangement: in each cell our MMER, the paper's, and the difference."""
    printed = popgym_table()
    ours = {(group.task, group.agent): group for group in setting.groups}
    highest = {
        task: max((_mmer(ours, task, agent) for agent in SEQUENCE_MODELS), default=-np.inf)
        for task in POPGYM_TASKS
    }
    rows = []
    for agent in printed.scores[POPGYM_TASKS[0]]:
        cells = []
        for task in POPGYM_TASKS:
            row, group = printed.scores[task][agent], ours.get((task, agent))
            cell = f"paper {row.mean:.3f} ± {row.error:.3f}"
            if group is not None:
                difference = mean_and_error(best(group))[0] - row.mean
                top = agent in SEQUENCE_MODELS and _mmer(ours, task, agent) == highest[task]
                mark = f" {HIGHEST}" if top else ""
                cell = f"{pair(best(group))}{mark}\n{cell}\ndifference {difference:+.3f}"
            cells.append(cell)
        name = "Best POPGym" if agent == BEST else agent_name(agent)
        rows.append((name + (f" ({setting.label})" if setting.label else ""), *cells))
    notes = (
        MAMBA,
        f"The paper's numbers: {printed.what}. Source: {printed.source}.",
        f"{HIGHEST} the highest of our sequence models.",
    )
    title = setting.title("POPGym: MMER beside the paper's")
    return Table(setting.name("popgym-table"), title, ("", *POPGYM_TASKS), rows, notes)


def popgym_comparison(setting: Setting) -> Table:
    """MMER and last return beside the paper's MMER, one row for each task and agent."""
    printed = popgym_table()
    ours = {(group.task, group.agent): group for group in setting.groups}
    strangers = {agent for _, agent in ours} - set(printed.scores[POPGYM_TASKS[0]])
    rows = []
    for task in POPGYM_TASKS:
        for agent in [*(a for a in printed.scores[task] if a != BEST), *sorted(strangers)]:
            row = printed.scores[task].get(agent)
            group = ours.get((task, agent))
            if row is None and group is None:
                continue
            mmer = best(group) if group else np.zeros(0)
            mean, error = mean_and_error(mmer)
            rows.append(
                (
                    task,
                    agent_name(agent) + (f" ({setting.label})" if setting.label else ""),
                    pair(mmer),
                    pair(last(group)) if group else "",
                    str(len(mmer)) if group else "",
                    f"{row.mean:.3f} ± {row.error:.3f}" if row else "",
                    f"{mean - row.mean:+.3f}" if row and group else "",
                    _distance(mean, error, row.mean, row.error) if row and group else "",
                    f"{printed.scores[task][BEST].mean:.3f}",
                )
            )
    head = (
        "task", "agent", "MMER", "last return", "seeds", "paper's MMER", "difference",
        "in standard errors", "best POPGym",
    )  # fmt: skip
    notes = ("In standard errors: the difference by that of both numbers together.",)
    title = setting.title("POPGym beside the paper's numbers, row by row")
    return Table(setting.name("popgym-scores"), title, head, rows, notes)


def _mmer(groups: Mapping[tuple[str, str], Group], task: str, agent: str) -> float:
    """As it is printed; the lowest of all where there are no runs."""
    group = groups.get((task, agent))
    values = np.zeros(0) if group is None else best(group)
    return round(float(values.mean()), 3) if values.size else -np.inf


def _distance(mean: float, error: float, other: float, its: float) -> str:
    """How many standard errors of the difference lie between two means."""
    apart = standard_errors_apart(mean, error, other, its)
    return f"{apart:+.1f}" if np.hypot(error, its) > 0 else ""


SIZES = ("d_state", "layers", "norm")
LATENT, LAYERS = 128, 1  # where a run does not say
SHADES = {1: "#9BC4E2", 2: "#0173B2", 3: "#08306B"}  # by the number of layers
DASHES = (":", "-.", "--", "-")  # by the size of the latent state
RIVAL = "best of POPGym's authors"


def main_groups(groups: Sequence[Group]) -> list[Group]:
    """POPGym's groups under the agents' bare names."""
    return [group for group in groups if group.family == POPGYM and group.main]


def benchmark(groups: Sequence[Group]) -> Iterator[CaptionedFigure]:
    """Interquartile mean of MMER and performance profile (figure 9), in both normalizations."""
    kinds = (
        (True, "", "Scores are shifted from [−1, 1] to [0, 1], then divided"),
        (False, "-plain", "Scores are divided as they are"),
    )
    for setting in settings_of(main_groups(groups)):
        for shifted, suffix, division in kinds:
            scales = popgym_scale(shifted=shifted)
            if chosen := aggregate(setting.groups, scales):
                how = "shifted, by" if shifted else "by"
                title = setting.title(f"POPGym: MMER, {how} the best of POPGym's authors")
                figure, caption = draw_sum(
                    chosen, scales, title=title, score="normalized MMER", mmer=True
                )
                caption += (
                    f" {division} by the best published score; AutoencodeEasy's is negative, so "
                    "that the plain quotient turns that task around."
                )
                yield CaptionedFigure(setting.name(f"popgym-aggregate{suffix}"), figure, caption)


def final_scores(groups: Sequence[Group]) -> Iterator[CaptionedFigure]:
    """MMER of every task and agent, with the last return beside it."""
    for setting in settings_of(main_groups(groups)):
        panels = []
        for task in POPGYM_TASKS:
            here = [group for group in setting.groups if group.task == task]
            styles = agent_styles(setting.groups)
            bars = {}
            for group in here:
                name = agent_name(group.agent)
                mean, error = mean_and_error(best(group))
                ended, _ = mean_and_error(last(group))
                bars[name] = Bar(mean, error, styles[name].color, ended)
            if bars:
                rival = popgym_table().scores[task][BEST].mean
                bars = {name: bars[name] for name in styles if name in bars}
                panels.append(BarPanel(task, bars, rival))
        if panels:
            title = setting.title("POPGym: final MMER")
            figure = draw_bars(
                panels, columns=min(4, len(panels)), title=title, x_label="MMER", limits=(-1, 1.05),
                reference_name=RIVAL, tick_name="mean of the last evaluations",
            )  # fmt: skip
            caption = (
                f"Bars: MMER, mean and standard error over {seeds(setting.groups)}. Ticks: the "
                "last evaluation, which shows what the maximum hides."
            )
            yield CaptionedFigure(setting.name("popgym-final-mmer"), figure, caption)


def curves(groups: Sequence[Group]) -> Iterator[CaptionedFigure]:
    """MMER and, in a figure of its own, the return over the training."""
    kinds = (("mmer", True, "MMER"), ("returns", False, "return"))
    for setting in settings_of(main_groups(groups)):
        tasks = [t for t in POPGYM_TASKS if any(g.task == t for g in setting.groups)]
        for word, best_so_far, y_label in kinds:
            panels = []
            for task in tasks:
                here = [group for group in setting.groups if group.task == task]
                panels.append(Panel(task, lines(here, best_so_far=best_so_far), y_label))
            title = setting.title(f"POPGym: {y_label} over the training")
            columns = min(4, max(len(panels), 2))
            figure = draw_curves(panels, agent_styles(setting.groups), columns=columns, title=title)
            caption = f"{BAND} {seeds(setting.groups)}."
            yield CaptionedFigure(setting.name(f"curves-popgym-{word}"), figure, caption)


def size_ablation(groups: Sequence[Group]) -> Iterator[CaptionedFigure]:
    """MMER against latent size N and layers L, shifted to [0, 1] (figure 10)."""
    for setting in settings_of(_sized(groups)):
        panels = []
        for task in _tasks(setting.groups):
            bars = {}
            for group in sorted((g for g in setting.groups if g.task == task), key=size):
                mean, error = mean_and_error((best(group) + 1) / 2)
                wide, deep = size(group)
                color = SHADES.get(deep, "#555555")
                bars[f"N = {wide}, L = {deep}"] = Bar(mean, error, color)
            rival = (popgym_table().scores[task][BEST].mean + 1) / 2
            panels.append(BarPanel(task, bars, rival))
        title = setting.title("vSSM+KF: latent size N and layers L")
        figure = draw_bars(
            panels, columns=min(4, len(panels)), title=title, x_label="MMER, shifted to [0, 1]",
            limits=(0, 1.05), reference_name=RIVAL,
        )  # fmt: skip
        caption = (
            f"Mean and standard error over {seeds(setting.groups)}; with RMSNorm at the output."
        )
        yield CaptionedFigure(setting.name("popgym-size-ablation"), figure, caption)


def size_curves(groups: Sequence[Group]) -> Iterator[CaptionedFigure]:
    """MMER over the training for every N and L."""
    for setting in settings_of(_sized(groups)):
        wides = sorted({size(group)[0] for group in setting.groups})
        styles = {
            f"N = {wide}, L = {deep}": LineStyle(
                SHADES.get(deep, "#555555"), DASHES[wides.index(wide) % len(DASHES)], ""
            )
            for wide, deep in sorted(set(map(size, setting.groups)))
        }
        panels = []
        for task in _tasks(setting.groups):
            size_lines = {}
            for group in sorted((g for g in setting.groups if g.task == task), key=size):
                wide, deep = size(group)
                size_lines[f"N = {wide}, L = {deep}"] = line(group, best_so_far=True)
            panels.append(Panel(task, size_lines, "MMER"))
        title = setting.title("vSSM+KF: MMER for every latent size N and layers L")
        figure = draw_curves(panels, styles, columns=min(4, max(len(panels), 2)), title=title)
        caption = f"{BAND} {seeds(setting.groups)}."
        yield CaptionedFigure(setting.name("curves-popgym-size"), figure, caption)


def size(group: Group) -> tuple[int, int]:
    """Latent size and layers of an encoder."""
    settings = group.encoder_settings
    return int(settings.get("d_state", LATENT)), int(settings.get("layers", LAYERS))


def _sized(groups: Sequence[Group]) -> list[Group]:
    """Of the Kalman agent, the runs with RMSNorm, where they come in more than one size."""
    sized = [
        group
        for group in groups
        if group.family == POPGYM
        and group.agent == "vssm+kf"
        and group.encoder_settings.get("norm")
        and set(group.encoder_settings) <= set(SIZES)
        and all(part.partition("=")[0] in ("", *SIZES) for part in group.variant.split(", "))
    ]
    return sized if len(set(map(size, sized))) > 1 else []


def _tasks(groups: Sequence[Group]) -> list[str]:
    return [task for task in POPGYM_TASKS if any(group.task == task for group in groups)]
