"""What runs of the reproduction say of a claim: agents side by side, an interval, a verdict.

An arm is one agent in one task with all settings but the seed. Two arms are compared over the seeds
that both have, several tasks by the mean over tasks. The claim names a range, and one rule decides:
agree where the whole 95 % interval lies in the range, differ where none of it does, else open.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, takewhile
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kalmanac._lab.experiment import Experiment
from kalmanac._report.figure_parts import SEED
from kalmanac._report.groups import Group, family_and_task
from kalmanac._report.runs import Run, read_runs
from kalmanac._report.scores import RETURN
from kalmanac._report.statistics import (
    Indices,
    Interval,
    difference_interval,
    improvement_probability,
    mean_interval,
    resamples,
)
from paper_cells import cells, in_a_word
from small_runs import DONE

Floats = NDArray[np.float64]
Score = Callable[[Group], Floats]  # one number for each run that has it
AGREE, DIFFER, OPEN = "agree", "differ", "open"
LEAST_SEEDS = 3  # of each agent in each task; fewer decide nothing
MARGIN = 0.1  # of a normalized score: less is no difference
NO_RUNS = "runs are missing"
LEFT_OUT = ": left out: "  # in notices of runs that cannot be read
NAMED_TASKS = 4  # of more, the number is told


@dataclass(frozen=True)
class Arm:
    """One agent in one task: its finished runs by seed, and in words what is not there."""

    name: str
    experiment: Experiment
    runs: Mapping[int, Run]
    lacking: str  # empty where every run of the queue is there

    def group(self, seeds: Iterable[int] | None = None) -> Group:
        """The runs of these seeds, or of all, as reports have them."""
        chosen = tuple(self.runs[seed] for seed in sorted(self.runs if seeds is None else seeds))
        family, task = family_and_task(self.experiment.to_data())
        return Group(family, task, (), "", self.experiment.agent, "", chosen)


class Book:
    """All runs that were taken in, by the queue's cells."""

    def __init__(self, runs: Iterable[Run], left_out: Iterable[str] = ()) -> None:
        self.runs: dict[str, Run] = {}
        self.left_out = list(left_out)  # a line for each run that cannot be read
        self._arms: dict[str, Arm] = {}
        for run in runs:
            try:
                key = Experiment.from_data(run.experiment).hash
            except (ValueError, TypeError) as error:
                self.left_out.append(f"{run.name}{LEFT_OUT}{error}")
                continue
            if key in cells():
                self.runs[key] = run

    @staticmethod
    def read(folder: Path) -> "Book":
        """From run folders."""
        runs, notices = read_runs(folder)
        return Book(runs, [line for line in notices if LEFT_OUT in line])

    @property
    def finished(self) -> int:
        """How many runs came to their end."""
        return sum(run.status in DONE for run in self.runs.values())

    def arm(self, experiment: Experiment) -> Arm:
        """What there is of all seeds that the queue has."""
        key = experiment.hash
        if key not in self._arms:
            self._arms[key] = self._look_up(experiment)
        return self._arms[key]

    def _look_up(self, experiment: Experiment) -> Arm:
        keys = (experiment.changed({"seed": seed}).hash for seed in count())
        queued = list(takewhile(cells().__contains__, keys))
        suite = cells()[queued[0]].suite if queued else experiment.env.partition("/")[0]
        done: dict[int, Run] = {}
        absent: list[str] = []
        for seed, key in enumerate(queued):
            run = self.runs.get(key)
            if run is not None and run.status in DONE and f"in/{RETURN}" in run.values:
                done[seed] = run
            else:
                absent.append(f"{seed}{_how_far(run)}")
        lacking = " ".join(absent) if queued else "not in the queue"
        return Arm(f"{suite}.{in_a_word(experiment)}", experiment, done, lacking)


def _how_far(run: Run | None) -> str:
    if run is None or not run.steps.size:
        return ""
    return f" ({run.status}, step {run.summary.get('step', 0):,})"


class Range(NamedTuple):
    """What a claim says of a number: that it is above `low` and below `high`.

    A claim that there is no significant difference falls with any interval that leaves 0 towards
    one of the bounds, however near; the bounds keep wide intervals from being called alike.
    """

    words: str
    low: float
    high: float
    no_significance: bool = False

    def verdict(self, interval: Interval) -> str:
        """By where the interval lies; one with unknown bounds decides nothing."""
        if self.no_significance and (
            (interval.low > 0 and self.high < np.inf) or (interval.high < 0 and self.low > -np.inf)
        ):
            return DIFFER
        if interval.low > self.low and interval.high < self.high:
            return AGREE
        if interval.high <= self.low or interval.low >= self.high:
            return DIFFER
        return OPEN


ABOVE = Range("above 0", 0.0, np.inf)
NO_LESS = Range(f"above −{MARGIN:g}", -MARGIN, np.inf)
NO_MORE = Range(f"below {MARGIN:g}", -np.inf, MARGIN)
ALIKE = Range(f"within ±{MARGIN:g}", -MARGIN, MARGIN)
NOT_BETTER = NO_MORE._replace(no_significance=True)  # significantly
NOT_APART = ALIKE._replace(no_significance=True)  # significantly
LIKELY = Range("above 0.5", 0.5, np.inf)


class Pair(NamedTuple):
    """Two arms of one task, and others that their scores are divided by."""

    task: str
    ours: Experiment
    theirs: Experiment
    scale: tuple[Experiment, ...] = ()


@dataclass(frozen=True)
class Part:
    """One number behind a claim, what it decides, and what holds it up."""

    what: str
    verdict: str
    value: str = ""
    interval: str = ""
    n: str = ""
    why: str = ""
    missing: Mapping[str, str] = field(default_factory=dict)  # arm → seeds


class Claim(NamedTuple):
    """Where the paper says it, what it says in our words, and how runs decide on it."""

    where: str
    says: str
    test: Callable[[Book], Iterable[Part]] | str  # why no run can decide on it


def verdict(parts: Sequence[Part]) -> str:
    """A claim holds where all of its parts do, and falls with one of them."""
    found = {part.verdict for part in parts}
    return DIFFER if DIFFER in found else AGREE if found == {AGREE} else OPEN


def any_of(what: str, parts: Sequence[Part]) -> Part:
    """Whether it holds somewhere: one part is enough for a yes, and all must fail for a no."""
    found = {part.verdict for part in parts}
    word = AGREE if AGREE in found else DIFFER if found == {DIFFER} else OPEN
    shown = [part for part in parts if part.verdict == word and part.value] or list(parts)[:1]
    best, missing = shown[0], {name: x for part in parts for name, x in part.missing.items()}
    name = f"{what}, in {best.what}" if best.value else what
    if word == AGREE:
        return replace(best, what=name)
    why = "in none" if word == DIFFER else "in none so far" if best.value else best.why
    return replace(best, what=name, verdict=word, why=why, missing=missing)


class Shared(NamedTuple):
    """Scores of two agents in the tasks that both have, over the seeds that both have."""

    tasks: list[str]
    ours: list[Floats]
    theirs: list[Floats]
    short: list[str]  # tasks with too few seeds, some of them in none of the lists above
    missing: dict[str, str]

    @property
    def cells(self) -> int:
        """How many runs each of the two has."""
        return sum(map(len, self.ours))

    @property
    def n(self) -> str:
        """Tasks and seeds in words."""
        return told(self.tasks, [min(map(len, pair)) for pair in zip(*self[1:3], strict=True)])


def shared(book: Book, pairs: Sequence[Pair], score: Score, optional: Sequence[str] = ()) -> Shared:
    """Collect them; an optional task counts only where it has seeds enough to decide."""
    found = Shared([], [], [], [], {})
    for pair in pairs:
        ours, theirs, *scale = map(book.arm, (pair.ours, pair.theirs, *pair.scale))
        seeds = ours.runs.keys() & theirs.runs.keys()
        x, y = score(ours.group(seeds)), score(theirs.group(seeds))
        few = min(len(x), len(y))
        if few < LEAST_SEEDS:
            if pair.task in optional:
                continue
            found.short.append(pair.task)
            for arm in (ours, theirs, *scale):
                if arm.lacking:
                    found.missing[arm.name] = arm.lacking
        if few:
            found.tasks.append(pair.task)
            found.ours.append(x)
            found.theirs.append(y)
    return found


def difference(
    book: Book, what: str, pairs: Sequence[Pair], score: Score, within: Range = ABOVE,
    optional: Sequence[str] = (), note: str = "",
) -> Part:  # fmt: skip
    """Ours minus theirs."""
    found = shared(book, pairs, score, optional)
    if not found.tasks:
        return _empty(what, found)
    interval = difference_interval(found.ours, found.theirs)
    return decided(what, interval, within, found.n + note, short=found.short, missing=found.missing)


def probability(
    book: Book, what: str, pairs: Sequence[Pair], score: Score, note: str = ""
) -> Part:  # fmt: skip
    """That a run of ours scores above one of theirs in the same task."""
    found = shared(book, pairs, score)
    if not found.tasks:
        return _empty(what, found)
    interval = improvement(found)
    return decided(what, interval, LIKELY, found.n + note, "P = {:.2f}", found.short, found.missing)


def improvement(found: Shared) -> Interval:
    """Probability of improvement; without bounds where a task has one run alone."""
    interval = improvement_probability(
        found.ours, found.theirs, draws(found.ours, 0), draws(found.theirs, 1)
    )
    return interval if all(len(x) > 1 for x in (*found.ours, *found.theirs)) else _bare(interval)


def draws(scores: Sequence[Floats], number: int) -> list[Indices]:
    """Resamples of one agent's runs; agents with different numbers are drawn independently."""
    return resamples([len(x) for x in scores], np.random.default_rng([SEED, number]))


def alone(book: Book, what: str, experiment: Experiment, score: Score, within: Range) -> Part:
    """One arm's mean, with Student's interval."""
    arm = book.arm(experiment)
    values = score(arm.group())
    short = [arm.name] if len(values) < LEAST_SEEDS else []
    missing = {arm.name: arm.lacking} if short and arm.lacking else {}
    if not len(values):
        return Part(what, OPEN, why=NO_RUNS, missing=missing)
    n = told([], [len(values)])
    return decided(what, mean_interval(values), within, n, short=short, missing=missing)


def decided(
    what: str, interval: Interval, within: Range, n: str, form: str = "{:+.3f}",
    short: Sequence[str] = (), missing: Mapping[str, str] | None = None,
) -> Part:  # fmt: skip
    """The part with its numbers as text; whatever is short of seeds is open."""
    digits = form.partition("{")[2].rstrip("}").removeprefix(":")
    known = bool(np.isfinite(interval.low))
    bounds = f"[{interval.low:{digits}}, {interval.high:{digits}}]" if known else "–"
    verdict, why = within.verdict(interval), ""
    if short:
        verdict, why = OPEN, f"fewer than {LEAST_SEEDS} seeds of both: {listed(short)}"
    elif verdict == DIFFER and within.no_significance:
        why = "0 is not in the interval"
    elif verdict == OPEN:
        why = f"only a part of the interval is {within.words}"
    elif verdict == DIFFER:
        why = f"no part of the interval is {within.words}"
    return Part(
        what, verdict, form.format(float(interval.point)), bounds, n, why, dict(missing or {})
    )


def told(tasks: Sequence[str], seeds: Sequence[int]) -> str:
    """How many tasks and seeds there are."""
    low, high = min(seeds), max(seeds)
    number = f"{high} seed{'s' * (high > 1)}" if low == high else f"{low}–{high} seeds"
    return f"{listed(tasks)}; {number}" if tasks else number


def listed(tasks: Sequence[str]) -> str:
    """Their names, or their number where they are many."""
    return ", ".join(tasks) if len(tasks) <= NAMED_TASKS else f"{len(tasks)} tasks"


def _empty(what: str, found: Shared) -> Part:
    return Part(what, OPEN, why=NO_RUNS, missing=found.missing)


def _bare(interval: Interval) -> Interval:
    return Interval(interval.point, np.asarray(np.nan), np.asarray(np.nan))
