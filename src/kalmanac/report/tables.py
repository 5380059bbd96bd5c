"""All tables: of every group, summed up over tasks, and POPGym beside the paper's numbers."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from kalmanac.report.control_items import LEVELS, noise_level
from kalmanac.report.drawn import SEED, Setting, settings_of
from kalmanac.report.groups import (
    DMC,
    POPGYM,
    POPGYM_TASKS,
    Group,
    agent_name,
    agent_order,
)
from kalmanac.report.published import BEST, MAMBA, popgym_table
from kalmanac.report.scores import (
    LENGTH,
    NORMALIZED,
    RETURN,
    WINS,
    Floats,
    aggregate,
    best,
    last,
    oracle_scale,
    popgym_scale,
    scaled,
)
from kalmanac.report.statistics import (
    Indices,
    improvement_probability,
    iqm_interval,
    mean_and_error,
    resamples,
)


SEQUENCE_MODELS = ("vssm+kf", "vssm+kf-u", "vssm", "mamba", "gru", "transformer")
HIGHEST = "★"


@dataclass(frozen=True)
class Table:
    """Words and numbers in rows; `notes` belong to it wherever it is shown."""

    name: str
    title: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    notes: tuple[str, ...] = ()

    def csv(self) -> str:
        """For programs: without the notes."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.head, *self.rows])
        return text.getvalue()

    def markdown(self) -> str:
        """For readers of plain text."""
        body = [[text.replace("\n", "; ") for text in row] for row in (self.head, *self.rows)]
        wide = [max(map(len, column)) for column in zip(*body, strict=True)]
        lines = ["| " + " | ".join(map(str.ljust, row, wide)) + " |" for row in body]
        lines.insert(1, "|" + "|".join("-" * (n + 2) for n in wide) + "|")
        return "\n".join([f"# {self.title}", "", *lines, "", *self.notes, ""])


def make_tables(groups: Sequence[Group]) -> list[Table]:
    """Every table that the runs allow; the paper's POPGym table is always among them."""
    found = [score_table(groups)] if groups else []
    for name, title, chosen, scales, mmer in _sums(groups):
        if (together := aggregate(chosen, scales)) is None:
            continue
        scores = {
            agent: scaled(row, scales, best if mmer else last)
            for agent, row in sorted(together.agents.items(), key=lambda pair: agent_order(pair[0]))
        }
        notes = (f"Over {', '.join(together.tasks)}.", *together.left_out)
        found.append(sum_table(name, title, scores, notes))
        if len(scores) > 1:
            found.append(improvement_table(name, title, scores, notes))
    popgym = [group for group in groups if group.family == POPGYM and group.main]
    settings = settings_of(popgym) or [Setting("", (), [])]
    for setting in settings:
        found += [popgym_matrix(setting), popgym_comparison(setting)]
    return found


def score_table(groups: Sequence[Group]) -> Table:
    """One row for each agent in each task: last and best evaluation, mean ± standard error."""
    head = (
        "task", "agent", "seeds", "unfinished", "steps", "last return", "best return (MMER)",
        "last / scale", "out of distribution / scale", "length", "win rate",
    )  # fmt: skip
    rows = []
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
                _pair(last(group, f"in/{RETURN}")),
                _pair(best(group, f"in/{RETURN}")),
                *(_pair(last(group, key)) for key in keys),
            )
        )
    notes = (
        "Mean ± standard error over seeds. Last: the last evaluation; best: the largest one, which "
        "is above what the agent is worth, the more so the more often it was evaluated. Scale: the "
        "environment's own, 10 in Best Arm.",
    )
    return Table("scores", "Scores of every agent in every task", head, rows, notes)


def sum_table(
    name: str, title: str, scores: dict[str, list[Floats]], notes: tuple[str, ...]
) -> Table:
    """Interquartile mean with its interval, and the plain mean of all runs."""
    rows = []
    for agent, found in scores.items():
        point, low, high = iqm_interval(found, _drawn(found))
        pooled = np.concatenate(found)
        rows.append(
            (
                agent_name(agent), f"{point:.3f}", f"[{low:.3f}, {high:.3f}]",
                f"{pooled.mean():.3f}", str(len(pooled)),
            )
        )  # fmt: skip
    head = ("agent", "IQM", "95 % interval", "mean", "runs")
    told = "Intervals: stratified bootstrap over seeds (rliable's protocol)."
    return Table(name, f"{title}: interquartile means", head, rows, (*notes, told))


def improvement_table(
    name: str, title: str, scores: dict[str, list[Floats]], notes: tuple[str, ...]
) -> Table:
    """P(row scores above column), with its interval."""
    drawn = {agent: _drawn(found, i) for i, (agent, found) in enumerate(scores.items())}
    cells: dict[tuple[str, str], str] = {}
    for mine, its in combinations(scores, 2):
        point, low, high = improvement_probability(
            scores[mine], scores[its], drawn[mine], drawn[its]
        )
        cells[mine, its] = f"{point:.2f} [{low:.2f}, {high:.2f}]"
        cells[its, mine] = f"{1 - point:.2f} [{1 - high:.2f}, {1 - low:.2f}]"
    rows = [(agent_name(a), *(cells.get((a, b), "–") for b in scores)) for a in scores]
    head = ("P(row > column)", *(agent_name(agent) for agent in scores))
    told = "Probability that a run of the row scores above one of the column in the same task."
    return Table(
        f"{name}-improvement", f"{title}: probability of improvement", head, rows, (*notes, told)
    )


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
                difference = float(best(group).mean()) - row.mean
                top = agent in SEQUENCE_MODELS and _mmer(ours, task, agent) == highest[task]
                mark = f" {HIGHEST}" if top else ""
                cell = f"{_pair(best(group))}{mark}\n{cell}\ndifference {difference:+.3f}"
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
                    _pair(mmer),
                    _pair(last(group)) if group else "",
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


def _sums(groups: Sequence[Group]) -> Iterator[tuple]:  # type: ignore[type-arg]
    """Name, title, groups, scales and whether MMER counts, for all that is summed up over tasks."""
    main = [group for group in groups if group.main]
    control = [g for g in main if g.family == DMC and g.condition("action_noise") == 0]
    for setting in settings_of([g for g in control if noise_level(g) == 1], *LEVELS):
        title = setting.title("Noisy control, last return by Oracle's")
        yield setting.name("dmc-sums"), title, setting.groups, oracle_scale(setting.groups), False
    for setting in settings_of([g for g in main if g.family == POPGYM]):
        for shifted, suffix in ((True, ""), (False, "-plain")):
            how = "shifted to [0, 1] and divided" if shifted else "divided as it is"
            title = setting.title(f"POPGym, MMER {how} by the best published")
            scales = popgym_scale(shifted=shifted)
            yield setting.name(f"popgym-sums{suffix}"), title, setting.groups, scales, True


def _mmer(groups: Mapping[tuple[str, str], Group], task: str, agent: str) -> float:
    """As it is printed; the lowest of all where there are no runs."""
    group = groups.get((task, agent))
    return -np.inf if group is None else round(float(best(group).mean()), 3)


def _drawn(scores: list[Floats], number: int = 0) -> list[Indices]:
    """Resamples of one agent's runs; agents with different numbers are drawn independently."""
    return resamples([len(x) for x in scores], np.random.default_rng([SEED, number]))


def _pair(values: Floats) -> str:
    if not len(values):
        return ""
    mean, error = mean_and_error(values)
    digits = 3 if abs(mean) < 10 else 1
    told = f"{mean:.{digits}f}"
    return f"{told} ± {error:.{digits}f}" if np.isfinite(error) else told


def _distance(mean: float, error: float, other: float, its: float) -> str:
    """How many standard errors of the difference lie between two means."""
    spread = float(np.hypot(error, its))
    return f"{(mean - other) / spread:+.1f}" if spread > 0 else ""
