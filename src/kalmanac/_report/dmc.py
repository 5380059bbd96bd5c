"""The paper's figures of noisy DeepMind Control (section 5.3, appendices E to H)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

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
from kalmanac._report.figures import LevelPanel, Panel, draw_curves, draw_levels
from kalmanac._report.groups import DMC, DMC_NOISE, Group, agent_name
from kalmanac._report.scores import LEAST, Scale, aggregate, last, oracle_scale
from kalmanac._report.statistics import mean_and_error
from kalmanac._report.style import LineStyle

NOISE_TASKS = tuple(DMC_NOISE)[:6]
LEVELS = ("noise", "action_noise")
SCORE = "return / Oracle's"
# Appendix E: what a Kalman layer may have in addition, and how each arm is drawn.
DESIGN = {
    (False, False): ("vSSM+KF", LineStyle("#0173B2")),
    (True, False): ("+ time-varying process noise", LineStyle("#DE8F05", "--", "s")),
    (False, True): ("+ covariance as output", LineStyle("#029E73", "-.", "^")),
    (True, True): ("+ both", LineStyle("#CC78BC", ":", "D")),
}


def control_groups(groups: Sequence[Group], *, action_noise: bool = False) -> list[Group]:
    """Groups of control tasks, variants too, with or without noise on the actions."""
    return [
        group
        for group in groups
        if group.family == DMC and (group.condition("action_noise") > 0) == action_noise
    ]


def benchmark(groups: Sequence[Group]) -> Iterator[CaptionedFigure]:
    """Interquartile mean and performance profile over the noisy tasks (figure 7)."""
    for setting in _main(groups):
        scales = oracle_scale(setting.groups)
        if chosen := aggregate(setting.groups, scales):
            title = setting.title("Noisy control, normalized by Oracle")
            figure, caption = draw_sum(chosen, scales, title=title, score=SCORE, mmer=False)
            caption += " A task's scale is the mean over seeds of Oracle's last return."
            caption += _without_scale(setting.groups, scales)
            yield CaptionedFigure(setting.name("dmc-aggregate"), figure, caption)


def noise_ablation(groups: Sequence[Group]) -> Iterator[CaptionedFigure]:
    """Last returns against the level of noise (figure 8)."""
    for setting in settings_of([g for g in control_groups(groups) if g.main], *LEVELS):
        scales = oracle_scale(setting.groups)
        setting = setting._replace(groups=_at_several_levels(setting.groups))
        panels = []
        for task in NOISE_TASKS:
            here = [g for g in setting.groups if g.task == task and task in scales]
            levels = sorted({noise_level(group) for group in here})
            if len(levels) < 2:
                continue
            points: dict[str, dict[float, tuple[float, float]]] = {}
            for group in here:
                row = points.setdefault(agent_name(group.agent), {})
                row[noise_level(group)] = mean_and_error(scales[task](last(group)))
            points = {agent: dict(sorted(row.items())) for agent, row in points.items()}
            panels.append(LevelPanel(task, points, levels, "noise × the benchmark's", SCORE))
        if panels:
            title = setting.title("Noisy control: final return against noise")
            figure = draw_levels(
                panels, agent_styles(setting.groups), columns=min(3, len(panels)), title=title,
                join=True,
            )  # fmt: skip
            caption = (
                f"Last evaluation by Oracle's, mean and standard error over "
                f"{seeds(setting.groups)}."
            )
            six = [group for group in setting.groups if group.task in NOISE_TASKS]
            caption += _without_scale(six, scales)
            yield CaptionedFigure(setting.name("dmc-noise-ablation"), figure, caption)


def curves(groups: Sequence[Group]) -> Iterator[CaptionedFigure]:
    """Returns over the training in every task of the benchmark."""
    for setting in _main(groups):
        title = setting.title("Noisy control: returns over the training")
        yield _curves(setting, "curves-dmc", title, columns=3)


def noise_curves(groups: Sequence[Group]) -> Iterator[CaptionedFigure]:
    """Returns over the training: a row for each task, a column for each level of noise."""
    for setting in settings_of([g for g in control_groups(groups) if g.main], *LEVELS):
        setting = setting._replace(groups=_at_several_levels(setting.groups))
        levels = sorted({noise_level(group) for group in setting.groups})
        if len(levels) < 2:
            continue
        panels = []
        for task in NOISE_TASKS:
            there = [group for group in setting.groups if group.task == task]
            for level in levels if len({noise_level(g) for g in there}) > 1 else ():
                here = [group for group in there if noise_level(group) == level]
                panels.append(Panel(f"{task}, noise × {level:g}", lines(here), "return"))
        title = setting.title("Noisy control: returns under increasing noise")
        figure = draw_curves(panels, agent_styles(setting.groups), columns=len(levels), title=title)
        caption = f"{BAND} {seeds(setting.groups)}."
        yield CaptionedFigure(setting.name("curves-dmc-noise"), figure, caption)


def design(groups: Sequence[Group]) -> Iterator[CaptionedFigure]:
    """Kalman layers with time-varying process noise, with the covariance as output, with both."""
    for setting in settings_of(_standard(control_groups(groups)), *LEVELS):
        scales = oracle_scale(setting.groups)
        arms = [
            (arm(group), group)
            for group in setting.groups
            if group.agent == "vssm+kf" and _only_design(group)
        ]
        if len({which for which, _ in arms}) < 2:
            continue
        names = {str(which): name for which, (name, _) in DESIGN.items()}
        styles = dict(DESIGN.values())
        named = [replace(group, agent=str(which), variant="") for which, group in arms]
        if chosen := aggregate(named, scales):
            title = setting.title("Design of the Kalman layer, normalized by Oracle")
            figure, caption = draw_sum(
                chosen, scales, title=title, score=SCORE, mmer=False, names=names, styles=styles
            )
            caption += _without_scale(named, scales)
            yield CaptionedFigure(setting.name("dmc-design"), figure, caption)
        panels = []
        for task in dict.fromkeys(group.task for _, group in arms):
            here = {DESIGN[which][0]: line(g) for which, g in arms if g.task == task}
            panels.append(Panel(task, here, "return"))
        title = setting.title("Design of the Kalman layer: returns over the training")
        figure = draw_curves(panels, styles, columns=3, title=title)
        caption = f"{BAND} {seeds(group for _, group in arms)}."
        yield CaptionedFigure(setting.name("curves-dmc-design"), figure, caption)


def action_noise(groups: Sequence[Group]) -> Iterator[CaptionedFigure]:
    """Returns under noise on observations and actions."""
    for setting in settings_of([g for g in control_groups(groups, action_noise=True) if g.main]):
        title = setting.title("Control with noisy observations and actions")
        captioned = _curves(setting, "dmc-action-noise", title, columns=4)
        yield captioned._replace(
            caption=f"{captioned.caption} Memoryless is SAC. The model-based rivals of the paper's "
            "figure have no printed numbers, and none are drawn."
        )


def noise_level(group: Group) -> float:
    """The group's noise, as a multiple of the benchmark's in that task."""
    return round(group.condition("noise") / DMC_NOISE[group.task], 6)


def arm(group: Group) -> tuple[bool, bool]:
    """Which additions of appendix E a Kalman encoder has."""
    settings = group.encoder_settings
    return bool(settings.get("input_process_noise")), bool(settings.get("variance_feature"))


def _only_design(group: Group) -> bool:
    """Whether it differs from the plain agent by nothing else."""
    names = ("input_process_noise", "variance_feature")
    return all(part.partition("=")[0] in ("", *names) for part in group.variant.split(", "))


def _at_several_levels(groups: Sequence[Group]) -> list[Group]:
    """Agents that were trained under one level of noise alone have no part in an ablation."""
    levels: dict[str, set[float]] = {}
    for group in groups:
        levels.setdefault(group.agent, set()).add(noise_level(group))
    return [group for group in groups if len(levels[group.agent]) > 1]


def _without_scale(groups: Sequence[Group], scales: Mapping[str, Scale]) -> str:
    """A sentence on the tasks that a normalized figure cannot show, or nothing."""
    lacking = [task for task in dict.fromkeys(g.task for g in groups) if task not in scales]
    if not lacking:
        return ""
    return f" Left out, as Oracle has got less than {LEAST:g} there: {', '.join(lacking)}."


def _standard(groups: Sequence[Group]) -> list[Group]:
    return [group for group in groups if noise_level(group) == 1]


def _main(groups: Sequence[Group]) -> list[Setting]:
    nine = tuple(DMC_NOISE)[:9]
    main = [
        group for group in _standard(control_groups(groups)) if group.main and group.task in nine
    ]
    return settings_of(main, *LEVELS)


def _curves(setting: Setting, name: str, title: str, *, columns: int) -> CaptionedFigure:
    tasks = list(dict.fromkeys(group.task for group in setting.groups))
    panels = [Panel(t, lines([g for g in setting.groups if g.task == t]), "return") for t in tasks]
    figure = draw_curves(
        panels, agent_styles(setting.groups), columns=min(columns, max(len(panels), 2)), title=title
    )
    return CaptionedFigure(setting.name(name), figure, f"{BAND} {seeds(setting.groups)}.")
