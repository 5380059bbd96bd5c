"""What an MMER is made of: the level that an agent keeps, and its luckiest evaluation.

MMER is the largest of n evaluations. Where an agent keeps its level, and evaluations scatter about
it by a standard deviation s, the largest of n lies about c(n) s above the level, c(n) the mean of
the largest of n standard normal numbers. Whoever evaluates twice as often has a larger MMER with
the same agent.
"""

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import numpy as np

from kalmanac._report.published import popgym_table
from kalmanac._report.scores import RETURN
from kalmanac._report.statistics import mean_and_error, standard_errors_apart
from kalmanac._report.table import pair as mean_and_error_text
from kalmanac._suites.popgym import TASKS as MEMORY
from paper_claims_popgym import CLOSE, arm
from paper_evidence import Book, Floats

LATEST = 20  # evaluations whose mean is a run's level
THEIRS = 100  # evaluations in the paper's training; see docs/choices.md
LEAST = 2  # seeds, below which there is no standard error
HEAD = (
    "task", "printed", "our MMER", "our level", "scatter", f"largest of {THEIRS} at this level",
    "from the printed one, in standard errors", f"within {CLOSE:g}", "rise of the level",
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
        expected = ours.largest(THEIRS)
        apart = standard_errors_apart(*mean_and_error(expected), printed.mean, printed.error)
        yield (
            task, f"{printed.mean:.3f} ± {printed.error:.3f}",
            mean_and_error_text(np.asarray([x.max() for x in known])),
            mean_and_error_text(ours.mean), f"{ours.scatter.mean():.3f}",
            mean_and_error_text(expected), f"{apart:+.1f}", "yes" if abs(apart) <= CLOSE else "no",
            mean_and_error_text(ours.rise),
        )  # fmt: skip
