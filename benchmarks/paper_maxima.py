"""What an MMER is made of: the level that an agent keeps, and its luckiest evaluation.

MMER is the largest of n evaluations. Where an agent keeps its level, and evaluations scatter about
it by a standard deviation s, the largest of n lies about c(n) s above the level, c(n) the mean of
the largest of n standard normal numbers. Whoever evaluates twice as often has a larger MMER with
the same agent. As the first evaluations of a training lie below its last ones, this is an upper
estimate; how far it is too high can be seen where it is made for our own evaluations.
"""

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import numpy as np

from kalmanac._report.published import popgym_table
from kalmanac._report.scores import RETURN
from kalmanac._report.table import pair as mean_and_error_text
from kalmanac._suites.popgym import TASKS as MEMORY
from paper_claims_popgym import arm
from paper_evidence import Book, Floats

LATEST = 20  # evaluations whose mean is a run's level
TWICE = 100  # evaluations of 1M steps, if the paper evaluates as often as we do
LEAST = 2  # seeds, below which there is no standard error
HEAD = (
    "task", "printed", "our MMER", "our level", "scatter", "largest of as many at this level",
    f"of {TWICE}", "rise of the level",
)  # fmt: skip


class Level(NamedTuple):
    """What the last evaluations of each seed say, (seeds,) each."""

    mean: Floats
    scatter: Floats  # standard deviation about the line through them
    rise: Floats  # by that line, in as many evaluations as the run has

    def largest(self, evaluations: int) -> Floats:
        """The MMER of so many evaluations at this level."""
        return self.mean + largest_of(evaluations) * self.scatter


def level(runs: list[Floats]) -> Level:
    """Of evaluations in order, a row for each seed."""
    found = []
    for values in runs:
        late = values[-LATEST:]
        at = np.arange(len(late)) - (len(late) - 1) / 2
        slope = float(at @ late / (at @ at))
        scatter = np.sqrt(((late - late.mean() - slope * at) ** 2).sum() / (len(late) - 2))
        found.append((late.mean(), scatter, slope * len(values)))
    return Level(*np.asarray(found).T)


@cache
def largest_of(n: int) -> float:
    """The mean of the largest of n standard normal numbers."""
    from scipy.special import ndtr

    x = np.linspace(-10, 10, 20_001)
    density = n * np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi) * ndtr(x) ** (n - 1)
    return float((x * density).sum() * (x[1] - x[0]))


def rows(book: Book, agent: str, budget: str) -> Iterator[tuple[str, ...]]:
    """A line for each task with two seeds or more."""
    for task in MEMORY:
        group = book.arm(arm(task, agent, budget)).group()
        runs = [run.values[f"in/{RETURN}"] for run in group.runs]
        known = [x for x in (values[np.isfinite(values)] for values in runs) if len(x) >= LATEST]
        if len(known) < LEAST:
            continue
        ours, printed = level(known), popgym_table().scores[task][agent]
        evaluations = min(map(len, known))
        told = (
            np.asarray([x.max() for x in known]), ours.mean, ours.scatter,
            ours.largest(evaluations), ours.largest(TWICE), ours.rise,
        )  # fmt: skip
        yield (task, f"{printed.mean:.3f} ± {printed.error:.3f}", *map(mean_and_error_text, told))
