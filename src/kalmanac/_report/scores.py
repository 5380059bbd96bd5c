"""Groups of runs as numbers: last and best evaluations, curves, normalized scores."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kalmanac._report.groups import Group
from kalmanac._report.published import BEST, popgym_table
from kalmanac._report.runs import Run
from kalmanac._settings import ORACLE

Floats = NDArray[np.float64]
POINTS = 100  # of a training's curve
LEAST = 1.0  # of a return that others are divided by; control tasks pay up to 1000
LATE = 5  # evaluations at the end of a run
RETURN, NORMALIZED, LENGTH, WINS = "mean_reward", "normalized", "length", "win_rate"


class Curve(NamedTuple):
    """Values of all runs of a group at the same steps, (runs, points); NaN where a run has none."""

    steps: NDArray[np.int64]
    values: Floats

    def shared(self) -> "Curve":
        """Up to the last point that every run has reached, of the runs that have any."""
        known = np.isfinite(self.values)
        there = known.any(axis=1)
        if not there.any():
            return Curve(self.steps[:0], self.values[:, :0])
        reached = known[there].all(axis=0)
        end = int(np.flatnonzero(reached)[-1]) + 1 if reached.any() else 0
        return Curve(self.steps[:end], self.values[there, :end])


def last(group: Group, key: str = f"in/{RETURN}") -> Floats:
    """The last evaluation of every run."""
    return np.asarray([_known(run, key)[-1] for run in group.runs if _known(run, key).size])


def late(group: Group, key: str = f"in/{RETURN}") -> Floats:
    """The mean of every run's last five evaluations."""
    known = (_known(run, key) for run in group.runs)
    return np.asarray([values[-LATE:].mean() for values in known if values.size])


def best(group: Group, key: str = f"in/{RETURN}") -> Floats:
    """The largest evaluation of every run: MMER, where the key is the mean return."""
    return np.asarray([_known(run, key).max() for run in group.runs if _known(run, key).size])


def curve(group: Group, key: str = f"in/{RETURN}", *, best_so_far: bool = False) -> Curve:
    """All evaluations; the n-th stands at n · eval_every, however late a run reached it."""
    experiment = group.runs[0].experiment
    every, total = experiment["eval_every"], experiment["total_steps"]
    numbers = [_number(run, every, total) for run in group.runs]
    there = np.unique(np.concatenate(numbers))
    values = np.full((len(group.runs), len(there)), np.nan)
    for row, run, number in zip(values, group.runs, numbers, strict=True):
        if key in run.values:
            # of two with one number, the first: a run that was extended has one more, out of turn
            mine, first = np.unique(number, return_index=True)
            row[np.searchsorted(there, mine)] = run.values[key][first]
    if best_so_far:
        ended = np.isnan(values)
        values = np.fmax.accumulate(values, axis=1)
        values[ended] = np.nan
    return Curve(np.minimum(every * there, max(total, every)), values)


def training_curve(group: Group, key: str) -> Curve:
    """Means over a hundredth of the way so far; a point stands at the last step in its part."""
    width = max(*(int(run.training_steps[-1]) for run in group.runs), POINTS) / POINTS
    parts = [np.rint(run.training_steps / width).astype(np.int64) for run in group.runs]
    there = np.unique(np.concatenate(parts))
    steps = np.zeros(len(there), np.int64)
    values = np.full((len(group.runs), len(there)), np.nan)
    for row, run, part in zip(values, group.runs, parts, strict=True):
        at = np.searchsorted(there, part)
        np.maximum.at(steps, at, run.training_steps)
        known = np.isfinite(numbers := run.training.get(key, np.full(len(at), np.nan)))
        sums, counts = (
            np.bincount(at[known], weights, len(there)) for weights in (numbers[known], None)
        )
        np.divide(sums, counts, out=row, where=counts > 0)
    some = np.isfinite(values).any(axis=0)
    return Curve(steps[some], values[:, some])


def at_steps(whole: Curve, steps: NDArray[np.int64]) -> Floats:
    """What each run had last reached by each of `steps`, (runs, steps)."""
    index = np.searchsorted(whole.steps, steps, side="right") - 1
    return whole.values[:, np.maximum(index, 0)]


def places(groups: Iterable[Group]) -> list[str]:
    """Where the runs were evaluated, such as "in" and "out"."""
    keys = (key for group in groups for run in group.runs for key in run.values)
    return sorted({key.partition("/")[0] for key in keys})


def scale_is_one(group: Group) -> bool:
    """Whether normalized returns are the returns themselves."""
    return all(
        np.array_equal(run.values[f"in/{RETURN}"], run.values.get(f"in/{NORMALIZED}", []), True)
        for run in group.runs
        if f"in/{RETURN}" in run.values
    )


Scale = Callable[[Floats], Floats]


def oracle_scale(groups: Sequence[Group], of: Callable[[Group], Floats] = last) -> dict[str, Scale]:
    """Task → division by the mean over seeds of the Oracle's last return (DMC), or `of` its runs.

    A task in which Oracle has got next to nothing has no scale: quotients would be noise.
    """
    means: dict[str, list[float]] = {}
    for group in groups:
        if group.agent == ORACLE and group.main:
            means.setdefault(group.task, []).extend(of(group))
    scales = {task: float(np.mean(returns)) for task, returns in means.items() if returns}
    return {task: _divide(scale) for task, scale in scales.items() if scale >= LEAST}


def popgym_scale(*, shifted: bool = True) -> dict[str, Scale]:
    """Task → division by the best score of POPGym's authors.

    Shifted: both are first brought from [−1, 1] to [0, 1]. AutoencodeEasy's best score is negative,
    so that the plain quotient gives the largest score to the worst agent (a choice; the paper does
    not say how it divides).
    """
    scales: dict[str, Scale] = {}
    for task, row in popgym_table().scores.items():
        top = row[BEST].mean
        scales[task] = _shift_and_divide((top + 1) / 2) if shifted else _divide(top)
    return scales


class Aggregate(NamedTuple):
    """Which agents and tasks are summed up together, and what was left out, in words."""

    tasks: list[str]
    agents: dict[str, list[Group]]  # agent → one group for each task
    left_out: list[str]


def aggregate(groups: Sequence[Group], scales: Mapping[str, Scale]) -> Aggregate | None:
    """Agents that have every task; where fewer than two do, the tasks that all agents share."""
    table: dict[str, dict[str, Group]] = {}
    for group in groups:
        if group.task in scales and last(group).size:
            table.setdefault(group.agent, {})[group.task] = group
    tasks = list(dict.fromkeys(group.task for group in groups if group.task in scales))
    complete = [agent for agent, row in table.items() if len(row) == len(tasks)]
    left_out = []
    if len(complete) >= 2:
        for agent in table.keys() - set(complete):
            lacking = [task for task in tasks if task not in table[agent]]
            left_out.append(f"{agent} is left out: no runs in {', '.join(lacking)}")
        agents = complete
    else:
        agents = list(table)
        shared = [task for task in tasks if all(task in row for row in table.values())]
        if len(shared) < len(tasks):
            gone = ", ".join(task for task in tasks if task not in shared)
            left_out.append(f"without {gone}: not all agents have runs there")
        tasks = shared
    if not tasks:
        return None
    rows = {agent: [table[agent][task] for task in tasks] for agent in agents}
    return Aggregate(tasks, rows, sorted(left_out))


def scaled(
    groups: Sequence[Group], scales: Mapping[str, Scale], of: Callable[[Group], Floats]
) -> list[Floats]:
    """One array of normalized scores for each task."""
    return [scales[group.task](of(group)) for group in groups]


def scaled_curves(
    groups: Sequence[Group], scales: Mapping[str, Scale], *, best_so_far: bool = False
) -> tuple[NDArray[np.int64], list[Floats]]:
    """Common steps, and for each task (runs, steps) of normalized scores, as far as all came."""
    curves = [curve(group, best_so_far=best_so_far).shared() for group in groups]
    if not all(x.steps.size for x in curves):
        return np.zeros(0, np.int64), []
    end = min(int(x.steps[-1]) for x in curves)
    begin = max(int(x.steps[0]) for x in curves)
    steps = np.unique(np.concatenate([x.steps for x in curves]))
    steps = steps[(steps >= begin) & (steps <= end)]
    pairs = zip(groups, curves, strict=True)
    return steps, [scales[group.task](at_steps(x, steps)) for group, x in pairs]


def _known(run: Run, key: str) -> Floats:
    values = run.values.get(key, np.zeros(0))
    return values[np.isfinite(values)]


def _number(run: Run, every: int, total: int) -> NDArray[np.int64]:
    """Which evaluation each one is, counted from 1; the last is due at the end of the training."""
    number = np.where(run.steps >= total, -(-total // every), run.steps // every)
    return np.maximum(number, 1)


def _divide(by: float) -> Scale:
    return lambda x: np.asarray(x) / by


def _shift_and_divide(by: float) -> Scale:
    return lambda x: (np.asarray(x) + 1) / 2 / by
