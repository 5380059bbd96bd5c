"""All tables: of every group, its settings, sums over tasks, and those beside published numbers."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, compress
from typing import Any, NamedTuple

import numpy as np

from kalmanac._messages import one_line
from kalmanac._report.dmc import LEVELS, noise_level
from kalmanac._report.figure_parts import SEED, settings_of
from kalmanac._report.groups import DMC, HARMLESS, POPGYM, WORDS, Group, agent_name, agent_order
from kalmanac._report.peer_tables import masked_table, popgym_own_table
from kalmanac._report.popgym import popgym_comparison, popgym_matrix
from kalmanac._report.published import novel_scores
from kalmanac._report.scores import (
    LENGTH,
    NORMALIZED,
    RETURN,
    WINS,
    Floats,
    Scale,
    aggregate,
    best,
    last,
    oracle_scale,
    popgym_scale,
    scale_is_one,
    scaled,
)
from kalmanac._report.statistics import (
    Indices,
    improvement_probability,
    iqm_interval,
    mean_interval,
    resamples,
)
from kalmanac._report.table import Table, pair


def novel_table(groups: Sequence[Group]) -> Table | None:
    """One row for each agent in each task; None where no run is one of these tasks."""
    printed = novel_scores()
    rows = []
    for group in (group for group in groups if group.task in printed.scores):
        theirs, steps = printed.scores[group.task], [int(run.steps[-1]) for run in group.runs]
        rows.append(
            (
                group.task_title,
                group.agent_title,
                str(len(group.runs)),
                f"{min(steps):,}",
                pair(last(group)),
                pair(best(group)),
                f"{theirs.mean:.1f} ± {theirs.deviation:.1f}",
                f"{theirs.steps:,}",
            )
        )
    head = (
        "task", "agent", "seeds", "steps", "last return", "best return", "ppo_lstm's return",
        "ppo_lstm's steps",
    )  # fmt: skip
    notes = (
        f"ppo_lstm: {printed.what}. Source: {printed.source}.",
        "Ours: mean ± standard error over seeds, so that the two ± are not the same thing. Steps: "
        "of the run that came least far; fewer than ppo_lstm's are no fair comparison.",
    )
    title = "Classic control without velocities beside RL Baselines3 Zoo's numbers"
    return Table("novel-scores", title, head, rows, notes) if rows else None


def make_tables(groups: Sequence[Group]) -> list[Table]:
    """Every table that the runs allow, the paper's POPGym table beside runs of POPGym."""
    tables = [score_table(groups)] if groups else []
    for name, title, chosen, scales, mmer in _sums(groups):
        if (together := aggregate(chosen, scales)) is None:
            continue
        scores = {
            agent: scaled(row, scales, best if mmer else last)
            for agent, row in sorted(together.agents.items(), key=lambda item: agent_order(item[0]))
        }
        notes = (f"Over {', '.join(together.tasks)}.", *together.left_out)
        tables.append(sum_table(name, title, scores, notes))
        if len(scores) > 1:
            tables.append(improvement_table(name, title, scores, notes))
    popgym = [group for group in groups if group.family == POPGYM and group.main]
    for setting in settings_of(popgym):
        tables += [popgym_matrix(setting), popgym_comparison(setting)]
    beside = (novel_table(groups), masked_table(groups), popgym_own_table(groups))
    return [*tables, *(table for table in beside if table is not None)]


def score_table(groups: Sequence[Group]) -> Table:
    """One row for each agent in each task: last and best evaluation, mean ± standard error."""
    head = (
        "task", "agent", "seeds", "unfinished", "steps", "last return", "95 % interval",
        "best return (MMER)", "last / scale", "out of distribution / scale", "length", "win rate",
    )  # fmt: skip
    rows: list[tuple[str, ...]] = []
    for group in groups:
        keys = (f"in/{NORMALIZED}", f"out/{NORMALIZED}", f"in/{LENGTH}", f"in/{WINS}")
        steps = [int(run.steps[-1]) for run in group.runs]
        least, most = f"{min(steps):,}", f"{max(steps):,}"
        rows.append(
            (
                group.task_title,
                group.agent_title,
                str(len(group.runs)),
                str(sum(not run.finished for run in group.runs) or ""),
                most if least == most else f"{least} – {most}",
                pair(last(group, f"in/{RETURN}")),
                _interval(last(group, f"in/{RETURN}")),
                pair(best(group, f"in/{RETURN}")),
                *(
                    pair(last(group, key))
                    if not (NORMALIZED in key and scale_is_one(group))
                    else ""
                    for key in keys
                ),
            )
        )
    notes = (
        "Mean ± standard error over seeds; interval: Student's, of the last return's mean. Last: "
        "the last evaluation; best: the largest one, which is above what the agent is worth, the "
        "more so the more often it was evaluated. Scale: the environment's own, 10 in Best Arm, if "
        "not 1.",
    )
    told = [any(cells) for cells in zip(*rows, strict=True)]
    kept = [tuple(compress(row, told)) for row in (head, *rows)]
    return Table("scores", "Scores of every agent in every task", kept[0], kept[1:], notes)


TITLES = ("env", "encoder", "privileged", "label", "seed", *HARMLESS)  # said, or of no account


def settings_table(groups: Sequence[Group]) -> Table | None:
    """Settings in which runs differ, but for the seed; a row for runs that differ by it alone."""
    flat = [_flat(group.runs[0].experiment) for group in groups]
    names = dict.fromkeys(name for settings in flat for name in settings)
    differing = [
        name
        for name in names
        if name not in TITLES and len({row.get(name, "–") for row in flat}) > 1
    ]
    rows = [
        (
            group.task_title, group.agent_title, ", ".join(str(run.seed) for run in group.runs),
            *(settings.get(name, "–") for name in differing), pair(last(group, f"in/{RETURN}")),
        )
        for group, settings in zip(groups, flat, strict=True)
    ]  # fmt: skip
    head = ("task", "agent", "seeds", *(one_line(name, WORDS) for name in differing), "last return")
    notes = ("All other settings are the same in all runs. –: not said, which is the default.",)
    title = "Settings that differ between runs"
    return Table("settings", title, head, rows, notes) if differing else None


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Settings as words, those within others by NAME.NAME."""
    words: dict[str, str] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            words |= _flat(value, f"{prefix}{name}.")
        else:
            text = value if isinstance(value, str) else json.dumps(value)
            words[f"{prefix}{name}"] = one_line(text, WORDS)
    return words


def _interval(values: Floats) -> str:
    if len(values) < 2:
        return ""
    _, low, high = mean_interval(values)
    return f"[{low:.4g}, {high:.4g}]"


def sum_table(
    name: str, title: str, scores: dict[str, list[Floats]], notes: tuple[str, ...]
) -> Table:
    """Interquartile mean with its interval, and the plain mean of all runs."""
    rows = []
    for agent, task_scores in scores.items():
        point, low, high = iqm_interval(task_scores, _resample_indices(task_scores))
        pooled = np.concatenate(task_scores)
        rows.append(
            (
                agent_name(agent), f"{point:.3f}", f"[{low:.3f}, {high:.3f}]",
                f"{pooled.mean():.3f}", str(len(pooled)),
            )
        )  # fmt: skip
    head = ("agent", "IQM", "95 % interval", "mean", "runs")
    method = "Intervals: stratified bootstrap over seeds (rliable's protocol)."
    return Table(name, f"{title}: interquartile means", head, rows, (*notes, method))


def improvement_table(
    name: str, title: str, scores: dict[str, list[Floats]], notes: tuple[str, ...]
) -> Table:
    """P(row scores above column), with its interval."""
    indices = {
        agent: _resample_indices(task_scores, i)
        for i, (agent, task_scores) in enumerate(scores.items())
    }
    cells: dict[tuple[str, str], str] = {}
    for mine, its in combinations(scores, 2):
        point, low, high = improvement_probability(
            scores[mine], scores[its], indices[mine], indices[its]
        )
        cells[mine, its] = f"{point:.2f} [{low:.2f}, {high:.2f}]"
        cells[its, mine] = f"{1 - point:.2f} [{1 - high:.2f}, {1 - low:.2f}]"
    rows = [(agent_name(a), *(cells.get((a, b), "–") for b in scores)) for a in scores]
    head = ("P(row > column)", *(agent_name(agent) for agent in scores))
    meaning = "Probability that a run of the row scores above one of the column in the same task."
    return Table(
        f"{name}-improvement", f"{title}: probability of improvement", head, rows, (*notes, meaning)
    )


class _Sum(NamedTuple):
    """What is summed up over tasks, and whether MMER counts or the last return."""

    name: str
    title: str
    groups: Sequence[Group]
    scales: Mapping[str, Scale]
    mmer: bool


def _sums(groups: Sequence[Group]) -> Iterator[_Sum]:
    main = [group for group in groups if group.main]
    control = [g for g in main if g.family == DMC and g.condition("action_noise") == 0]
    for setting in settings_of([g for g in control if noise_level(g) == 1], *LEVELS):
        title = setting.title("Noisy control, last return by Oracle's")
        scales = oracle_scale(setting.groups)
        yield _Sum(setting.name("dmc-sums"), title, setting.groups, scales, False)
    for setting in settings_of([g for g in main if g.family == POPGYM]):
        for shifted, suffix in ((True, ""), (False, "-plain")):
            how = "shifted to [0, 1] and divided" if shifted else "divided as it is"
            title = setting.title(f"POPGym, MMER {how} by the best published")
            scales = popgym_scale(shifted=shifted)
            name = setting.name(f"popgym-sums{suffix}")
            yield _Sum(name, title, setting.groups, scales, True)


def _resample_indices(scores: list[Floats], number: int = 0) -> list[Indices]:
    """Resamples of one agent's runs; agents with different numbers are drawn independently."""
    return resamples([len(x) for x in scores], np.random.default_rng([SEED, number]))
