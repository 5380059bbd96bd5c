"""POPGym beside the paper's numbers: in the paper's arrangement, and row by row."""

from collections.abc import Mapping

import numpy as np

from kalmanac.report.drawn import Setting
from kalmanac.report.groups import POPGYM_TASKS, Group, agent_name
from kalmanac.report.published import BEST, MAMBA, popgym_table
from kalmanac.report.scores import best, last
from kalmanac.report.statistics import mean_and_error
from kalmanac.report.table import Table, pair

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
    spread = float(np.hypot(error, its))
    return f"{(mean - other) / spread:+.1f}" if spread > 0 else ""
