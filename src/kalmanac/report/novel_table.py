"""NoVel beside the numbers that RL Baselines3 Zoo has published."""

from collections.abc import Sequence

from kalmanac.report.groups import Group
from kalmanac.report.published import novel_scores
from kalmanac.report.scores import best, last
from kalmanac.report.table import Table, pair


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
