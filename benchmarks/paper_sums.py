"""Interquartile means, probabilities of improvement, POPGym's scores beside the printed ones."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from kalmanac._lab.experiment import Experiment
from kalmanac._report.groups import AGENT_NAMES, agent_name
from kalmanac._report.scores import best, late
from kalmanac._report.statistics import iqm_interval
from kalmanac._report.table import pair as mean_and_error_text
from kalmanac._suites.best_arm import COSTS
from kalmanac._suites.dmc import TASKS as CONTROL
from kalmanac._suites.popgym import TASKS as MEMORY
from paper_claims_best_arm import KF, in_distribution, out_of_distribution
from paper_claims_best_arm import arm as bandit
from paper_claims_control import arm as control
from paper_claims_control import by_oracle
from paper_claims_popgym import BUDGETS, CLOSE, SHORTER, Row, beside_printed, mmer
from paper_claims_popgym import arm as memory
from paper_evidence import Arm, Book, Floats, Pair, Score, draws, improvement, shared, told

COMPARED = ("vssm", "gru")
Missing = Mapping[str, str]  # arm → seeds
NONE = "–"


class Field(NamedTuple):
    """Tasks whose runs are summed up together."""

    name: str
    tasks: Sequence[str]
    arm: Callable[[str, str], Experiment]  # task, agent
    score: Score  # on one scale in all tasks
    raw: Score  # of a task, for who is above whom


def fields(book: Book) -> Iterator[Field]:
    """Best Arm at each cost, POPGym after each number of steps, noisy control."""
    places = {"in distribution": in_distribution, "out of distribution": out_of_distribution}
    for cost in COSTS:
        for place, score in places.items():
            name = f"Best Arm, cost {cost:g}, {place}"
            yield Field(name, ["Best Arm"], _at(cost), score, score)
    for budget in BUDGETS:
        yield Field(f"POPGym, {budget}", MEMORY, _after(budget), mmer, best)
    yield Field("noisy control, 200K of 1M steps", CONTROL, control, by_oracle(book), late)


def _at(cost: float) -> Callable[[str, str], Experiment]:
    return lambda task, agent: bandit(agent, cost)


def _after(budget: str) -> Callable[[str, str], Experiment]:
    return lambda task, agent: memory(task, agent, budget)


class Sum(NamedTuple):
    """Rows of a table, the fields without any, and runs that are not there."""

    rows: list[tuple[str, ...]]
    empty: list[str]
    missing: dict[str, str]


MEANS_HEAD = ("where", "agent", "n", "IQM", "95 % interval", "unfinished and missing runs")


def means(book: Book) -> Sum:
    """Each agent over all runs that it has; agents with other tasks cannot be compared."""
    found = Sum([], [], {})
    for field in fields(book):
        rows = [row for agent in AGENT_NAMES for row in _mean(book, field, agent, found.missing)]
        found.rows.extend(rows)
        if not rows:
            found.empty.append(field.name)
    return found


def _mean(
    book: Book, field: Field, agent: str, missing: dict[str, str]
) -> Iterator[tuple[str, ...]]:
    """One row, or none where the agent has no run."""
    arms = {task: book.arm(field.arm(task, agent)) for task in field.tasks}
    if not any(arm.runs for arm in arms.values()):
        return
    scores = {task: field.score(arm.group()) for task, arm in arms.items()}
    there = {task: values for task, values in scores.items() if len(values)}
    lacking = _lacking(arms.values(), missing)
    if there:
        n = told(list(there) if len(arms) > 1 else [], list(map(len, there.values())))
        yield (field.name, agent_name(agent), n, *iqm(list(there.values())), lacking)
    else:
        yield (field.name, agent_name(agent), "no scale of Oracle's", NONE, NONE, lacking)


PAIRS_HEAD = (
    "where", "over", "n of both", "IQM of vSSM+KF", "IQM of the other", "P(improvement)",
    "unfinished and missing runs",
)  # fmt: skip


def improvements(book: Book) -> Sum:
    """vSSM+KF over two others, over the (task, seed) cells that both have."""
    found = Sum([], [], {})
    for field in fields(book):
        for rival in COMPARED:
            pairs = [
                Pair(task, field.arm(task, KF), field.arm(task, rival)) for task in field.tasks
            ]
            both = shared(book, pairs, field.raw)
            if not both.tasks:
                found.empty.append(f"{field.name}, over {agent_name(rival)}")
                continue
            scaled = shared(book, pairs, field.score)
            point, low, high = improvement(both)
            chance = f"{point:.2f}" + (f" [{low:.2f}, {high:.2f}]" if np.isfinite(low) else "")
            arms = [book.arm(one) for pair in pairs for one in (pair.ours, pair.theirs)]
            ours, theirs = (
                " ".join(dict.fromkeys(iqm(side))).removesuffix(f" {NONE}")
                for side in (scaled.ours, scaled.theirs)
            )
            n = told(both.tasks if len(pairs) > 1 else [], list(map(len, both.ours)))
            if len(scaled.tasks) < len(both.tasks):
                n += f"; IQM of {len(scaled.tasks)} tasks, where Oracle gives a scale"
            lacking = _lacking(arms, found.missing)
            found.rows.append((field.name, agent_name(rival), n, ours, theirs, chance, lacking))
    return found


def iqm(scores: Sequence[Floats]) -> tuple[str, str]:
    """The interquartile mean and its interval, which one seed in a task does not have."""
    if not scores:
        return NONE, NONE
    point, low, high = iqm_interval(scores, draws(scores, 0))
    known = all(len(x) > 1 for x in scores)
    return f"{point:.3f}", f"[{low:.3f}, {high:.3f}]" if known else NONE


def _lacking(arms: Iterable[Arm], missing: dict[str, str]) -> str:
    """How many are not there, or which seeds where it is one arm; all go into `missing`."""
    here = {arm.name: arm.lacking for arm in arms if arm.lacking}
    missing |= here
    if len(here) > 2:
        return f"of {len(here)} arms, see below"
    return "; ".join(f"{name.partition('.')[2]}: {seeds}" for name, seeds in here.items())


PRINTED_HEAD = (
    "task", "the paper, 1M steps", "ours", "n", "difference", "in standard errors",
    f"within {CLOSE:g}",
)  # fmt: skip


class Beside(NamedTuple):
    """One agent's table beside the printed one."""

    title: str
    agent: str
    budget: str
    rows: list[tuple[str, ...]]
    close: int
    known: int


def beside(book: Book) -> Iterator[Beside]:
    """vSSM+KF first, with or without runs; then who has some."""
    for agent in sorted(AGENT_NAMES, key=lambda name: name != KF):
        for budget in reversed(BUDGETS):
            rows = beside_printed(book, agent, budget)
            first = agent == KF and budget == SHORTER
            if not first and not any(len(row.values) for row in rows):
                continue
            known = [row for row in rows if np.isfinite(row.apart) or np.isinf(row.apart)]
            close = sum(abs(row.apart) <= CLOSE for row in known)
            title, told = f"{agent_name(agent)}, {budget}", [_printed_row(row) for row in rows]
            yield Beside(title, agent, budget, told, close, len(known))


def _printed_row(row: Row) -> tuple[str, ...]:
    mean, error = row.printed
    paper = f"{mean:.3f} ± {error:.3f}"
    if not len(row.values):
        why = "not in the queue" if row.lacking == "not in the queue" else "no finished run"
        return (row.task, paper, why, "0", NONE, NONE, "open")
    ours = mean_and_error_text(row.values)
    n, gap = str(len(row.values)), f"{float(row.values.mean()) - mean:+.3f}"
    if np.isnan(row.apart):
        return (row.task, paper, ours, n, gap, NONE, "open")
    close = "yes" if abs(row.apart) <= CLOSE else "no"
    return (row.task, paper, ours, n, gap, f"{row.apart:+.1f}", close)
