"""Tables of ours beside others' printed numbers: masked walkers, and all of POPGym."""

from collections.abc import Sequence

import numpy as np

from kalmanac._report.groups import OTHER, POPGYM, Group
from kalmanac._report.published import bullet_scores, popgym_own_scores
from kalmanac._report.scores import LATE, LEAST, best, last, late
from kalmanac._report.table import Table, pair
from kalmanac._settings import ORACLE

MASKED = ("mujoco/", "bullet/")


def masked_table(groups: Sequence[Group]) -> Table | None:
    """Walkers with positions or velocities alone: returns, and their share of the full agent's."""
    mine = [group for group in groups if group.family == OTHER and group.task.startswith(MASKED)]
    full = {
        (machine(group), group.conditions, group.label): float(np.mean(late(group)))
        for group in mine
        if group.agent == ORACLE and group.main and late(group).size
    }
    printed, rows = bullet_scores(), []
    for group in mine:
        whole = full.get((machine(group), group.conditions, group.label), 0.0)
        values, steps = late(group), [int(run.steps[-1]) for run in group.runs]
        theirs = printed.scores.get(group.task.removeprefix("bullet/"), {})
        rows.append(
            (
                group.task_title,
                group.agent_title,
                str(len(group.runs)),
                f"{min(steps):,}",
                pair(values),
                pair(best(group)),
                f"{values.mean() / whole:.0%}" if whole >= LEAST and values.size else "",
                *(
                    " ± ".join(f"{x:g}" for x in theirs.get(agent, ()))
                    for agent in printed_agents()
                ),
            )
        )
    head = (
        "task", "agent", "seeds", "steps", f"last {LATE} evaluations", "best return",
        "share of Oracle's", *printed_agents(),
    )  # fmt: skip
    notes = (
        "Mean ± standard error over seeds. Oracle sees positions and velocities: the full agent, "
        "one for both tasks of a machine.",
        f"Printed, for PyBullet's walkers alone: {printed.what}. Source: {printed.source}.",
        "MuJoCo's walkers are other machines with other rewards: their numbers do not compare.",
    )
    title = "Walkers with positions or velocities alone"
    return Table("masked-scores", title, head, rows, notes) if rows else None


def machine(group: Group) -> str:
    """What walks, whatever is hidden."""
    return group.task.rpartition("-")[0]


def printed_agents() -> tuple[str, ...]:
    """The agents that have printed numbers in PyBullet's walkers."""
    return tuple(next(iter(bullet_scores().scores.values())))


def popgym_own_table(groups: Sequence[Group]) -> Table | None:
    """Every task of POPGym that was run, beside what its authors report."""
    printed, rows = popgym_own_scores(), []
    for group in groups:
        task = group.task.removeprefix("popgym/")
        if group.family != POPGYM and task == group.task:
            continue
        theirs = printed.scores.get(task)
        gru = theirs.gru if theirs else None
        rows.append(
            (
                task,
                group.agent_title,
                str(len(group.runs)),
                f"{min(int(run.steps[-1]) for run in group.runs):,}",
                pair(best(group)),
                pair(last(group)),
                f"{gru.mean:.3f} ± {gru.error:.3f}" if gru else "",
                f"{theirs.best:.3f} ({theirs.model})" if theirs else "",
            )
        )
    head = ("task", "agent", "seeds", "steps", "MMER", "last return", "their GRU", "their best")
    notes = (
        f"Theirs: {printed.what}. Source: {printed.source}.",
        "Ours: mean ± standard error over seeds. Nothing stands where theirs could not be had.",
    )
    return (
        Table("popgym-own-scores", "POPGym beside its authors' table", head, rows, notes)
        if rows
        else None
    )
