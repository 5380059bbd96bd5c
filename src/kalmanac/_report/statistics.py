"""Means, interquartile means, performance profiles and their intervals (Agarwal et al., 2021).

Scores come as one array for each task, runs first: (runs,) or (runs, points in time). The
interquartile mean is rliable's own. Its bootstrap draws from NumPy's global generator and calls
Python for every resample, so the resampling is written here, with the draws passed in and all
resamples at once: the same stratified percentile bootstrap, equal to rliable's for the same draws;
tasks may have different numbers of runs.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Scores = Sequence[Floats]  # one array for each task, runs first

RESAMPLES = 2000
CONFIDENCE = 0.95
_CHUNK = 2_000_000  # numbers that are sorted at once


class Interval(NamedTuple):
    """A point estimate and the bounds of its interval; arrays where the scores have points."""

    point: Floats
    low: Floats
    high: Floats


def mean_and_error(values: ArrayLike) -> tuple[float, float]:
    """Mean and standard error s / √n, with n − 1 in s; the error of one value is not known: NaN."""
    array = np.asarray(values, np.float64)
    if array.size == 0:
        return float("nan"), float("nan")
    error = array.std(ddof=1) / np.sqrt(array.size) if array.size > 1 else np.nan
    return float(array.mean()), float(error)


def mean_interval(values: ArrayLike) -> Interval:
    """Mean and Student's 95 % interval, which holds for the few seeds that runs have; one: NaN."""
    from scipy.special import stdtrit

    mean, error = mean_and_error(values)
    tail = stdtrit(max(np.size(values) - 1, 1), (1 + CONFIDENCE) / 2)
    return Interval(*map(np.asarray, (mean, mean - tail * error, mean + tail * error)))


def difference_interval(ours: Scores, theirs: Scores) -> Interval:
    """Ours minus theirs, the mean over tasks of the differences of means, with Welch's interval.

    Each task's runs have a variance of their own, and the degrees of freedom are Satterthwaite's:
    it holds for few seeds, where a bootstrap is too narrow. NaN bounds where a task has one run.
    """
    from scipy.special import stdtrit

    tasks = len(ours)
    point = sum(float(np.mean(x) - np.mean(y)) for x, y in zip(ours, theirs, strict=True)) / tasks
    sides = [np.asarray(x, np.float64) for x in (*ours, *theirs)]
    if any(x.size < 2 for x in sides):
        return Interval(*map(np.asarray, (point, np.nan, np.nan)))
    parts = [float(x.var(ddof=1)) / x.size / tasks**2 for x in sides]
    variance = sum(parts)
    if variance == 0:
        return Interval(*map(np.asarray, (point, point, point)))
    freedom = variance**2 / sum(v**2 / (x.size - 1) for v, x in zip(parts, sides, strict=True))
    reach = stdtrit(freedom, (1 + CONFIDENCE) / 2) * np.sqrt(variance)
    return Interval(*map(np.asarray, (point, point - reach, point + reach)))


def standard_errors_apart(mean: float, error: float, other: float, its: float) -> float:
    """How many standard errors of the difference lie between two means; NaN for an unknown one."""
    difference, spread = mean - other, float(np.hypot(error, its))
    if spread == 0:
        return float(np.sign(difference) * np.inf) if difference else 0.0
    return difference / spread


def interquartile_mean(scores: Scores) -> Floats:
    """The mean of the middle half of all scores, whatever task they come from."""
    from rliable import metrics  # a second of imports that most processes of a report do without

    pooled = np.concatenate([np.asarray(x, np.float64) for x in scores])
    columns = pooled.reshape(len(pooled), -1).T
    return np.asarray([metrics.aggregate_iqm(column) for column in columns]).reshape(
        pooled.shape[1:]
    )


def resamples(
    sizes: Sequence[int], rng: np.random.Generator, draws: int = RESAMPLES
) -> list[Indices]:
    """For each task, (draws, runs) indices of its runs, with replacement: strata are tasks."""
    return [rng.integers(n, size=(draws, n)) for n in sizes]


def iqm_interval(scores: Scores, indices: Sequence[Indices]) -> Interval:
    """The interquartile mean with its percentile interval over the drawn resamples.

    A resample takes whole runs, so that all points of a curve come from the same runs.
    """
    pools = [np.asarray(x, np.float64).reshape(len(x), -1) for x in scores]
    draws, total = len(indices[0]), sum(map(len, pools))
    cut = int(0.25 * total)
    points = pools[0].shape[1]
    estimates = np.empty((draws, points))
    step = max(1, _CHUNK // (draws * total))
    for start in range(0, points, step):
        part = slice(start, start + step)
        pooled = np.concatenate(
            [pool[index, part] for pool, index in zip(pools, indices, strict=True)], axis=1
        )
        pooled.sort(axis=1)
        estimates[:, part] = pooled[:, cut : total - cut].mean(axis=1)
    shape = np.shape(scores[0])[1:]
    low, high = _bounds(estimates)
    return Interval(interquartile_mean(scores), low.reshape(shape), high.reshape(shape))


def performance_profile(
    scores: Scores, thresholds: ArrayLike, indices: Sequence[Indices]
) -> Interval:
    """The share of all runs whose score is above each threshold (score distribution)."""
    above = [
        np.asarray(x, np.float64)[:, None] > np.asarray(thresholds, np.float64) for x in scores
    ]
    total = sum(map(len, above))
    counts = sum(
        np.einsum("drt->dt", mask[index], dtype=np.float64)
        for mask, index in zip(above, indices, strict=True)
    )
    low, high = _bounds(np.asarray(counts) / total)
    return Interval(np.concatenate(above).mean(axis=0), low, high)


def improvement_probability(
    ours: Scores, theirs: Scores, indices: Sequence[Indices], their_indices: Sequence[Indices]
) -> Interval:
    """P(a run of ours scores above one of theirs in the same task), the mean over tasks; ties ½.

    Both sides are resampled, each with its own draws.
    """
    estimates, point = np.zeros(len(indices[0])), 0.0
    for x, y, mine, its in zip(ours, theirs, indices, their_indices, strict=True):
        won = np.greater.outer(x, y) + 0.5 * np.equal.outer(x, y)  # (ours, theirs)
        estimates += ((_shares(mine) @ won) * _shares(its)).sum(axis=1)
        point += float(won.mean())  # Mann and Whitney's U, divided by the number of pairs
    low, high = _bounds(estimates / len(ours))
    return Interval(np.asarray(point / len(ours)), low, high)


def _shares(index: Indices) -> Floats:
    """How large a part of each resample every run is, (draws, runs)."""
    return (index[:, :, None] == np.arange(index.shape[1])).mean(axis=1)


def _bounds(estimates: Floats) -> tuple[Floats, Floats]:
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(estimates, [tail, 100 - tail], axis=0)
    return low, high
