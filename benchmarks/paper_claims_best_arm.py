"""What the paper says of Best Arm Identification (section 5.2), and how runs decide on it."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from kalmanac._files.heatmap_file import Heatmap, read_heatmap
from kalmanac._lab.experiment import Experiment
from kalmanac._report.groups import Group, agent_name
from kalmanac._report.scores import LENGTH, NORMALIZED, late
from kalmanac._settings import ORACLE
from kalmanac._suites.best_arm import COSTS, ROLLOUT_CHANNELS
from kalmanac._suites.best_arm import paper as best_arm
from paper_cells import PLAIN, on_a_gpu
from paper_evidence import (
    ABOVE,
    ALIKE,
    Book,
    Claim,
    Floats,
    Pair,
    Part,
    Range,
    Score,
    alone,
    difference,
)

KF, NO_INPUT = "vssm+kf", "vssm+kf-u"
MEMORIES = ("vssm", NO_INPUT, "mamba", "gru", "transformer")  # beside vssm+kf
STATEFUL = ("vssm", "mamba", "gru")  # without a filter
DECIDING = (0.0, 0.1)  # costs that the queue has first; the others count as soon as they are there
OPTIONAL = tuple(f"cost {cost:g}" for cost in COSTS if cost not in DECIDING)
BELOW = Range("below 0", -np.inf, 0.0)

in_distribution: Score = partial(late, key=f"in/{NORMALIZED}")
out_of_distribution: Score = partial(late, key=f"out/{NORMALIZED}")


@cache
def arm(agent: str, cost: float = 0.0) -> Experiment:
    """One agent at one cost."""
    return on_a_gpu(best_arm(agent, cost=cost))


def pairs(ours: str, theirs: str, costs: Sequence[float] = COSTS) -> list[Pair]:
    """A cost is a task."""
    return [Pair(f"cost {cost:g}", arm(ours, cost), arm(theirs, cost)) for cost in costs]


def log_length(group: Group) -> Floats:
    """Decimal logarithm of the length, as the paper draws it."""
    return np.log10(late(group, f"in/{LENGTH}"))


def over(
    book: Book, rivals: Sequence[str], score: Score, within: Range = ABOVE, what: str = "over"
) -> Iterator[Part]:
    """The Kalman agent minus each of these."""
    for rival in rivals:
        name = f"{what} {agent_name(rival)}"
        yield difference(book, name, pairs(KF, rival), score, within, OPTIONAL)


def both_places(book: Book, rivals: Sequence[str]) -> Iterator[Part]:
    """In and out of distribution."""
    yield from over(book, rivals, in_distribution, what="in distribution, over")
    yield from over(book, rivals, out_of_distribution, what="out of distribution, over")


def plain(book: Book) -> Part:
    """The paper's plain objective beside an agent without memory."""
    both = [Pair("cost 0", arm(KF).changed(PLAIN), arm("memoryless"))]
    return difference(
        book, "Best Arm, plain objective, over Memoryless", both, in_distribution, ABOVE
    )


def below_oracle(book: Book) -> Iterator[Part]:
    """Out of distribution."""
    both = pairs(ORACLE, KF)
    yield difference(book, "Oracle over vSSM+KF", both, out_of_distribution, ABOVE, OPTIONAL)


def few_channels(book: Book) -> Iterator[Part]:
    """N = 128 minus N = 2, of the two agents whose rollouts the paper draws."""
    for agent in (KF, "vssm"):
        small = arm(agent).changed({"encoder_settings": {"d_state": ROLLOUT_CHANNELS}})
        both = [Pair("cost 0", arm(agent), small)]
        yield difference(book, f"{agent_name(agent)}, N = 128 over 2", both, in_distribution)


def of_maps(number: Callable[[Heatmap], float]) -> Score:
    """A number of every run's heat map; runs that left none have none."""

    def score(group: Group) -> Floats:
        maps = [_map(run.folder) for run in group.runs]
        return np.asarray([number(one) for one in maps if one is not None], np.float64)

    return score


def _map(folder: Any) -> Heatmap | None:
    try:
        return read_heatmap(folder)
    except ValueError:
        return None


def grid_length(one: Heatmap) -> float:
    """Mean of the logarithm over all bandits."""
    return float(np.log10(np.maximum(one.length, 1)).mean())


def grid_wins(one: Heatmap) -> float:
    """Mean win rate over all bandits."""
    return float(np.mean(one.win_rate))


def with_noise(one: Heatmap) -> float:
    """Correlation of the logarithm of the length with σ."""
    return _correlation(one, np.broadcast_to(one.sigma, np.shape(one.length)))


def with_distance(one: Heatmap) -> float:
    """Correlation of the logarithm of the length with the distance of μ from 0."""
    return _correlation(one, np.abs(one.mu)[:, None] + np.zeros(np.shape(one.length)))


def _correlation(one: Heatmap, other: Any) -> float:
    lengths = np.log10(np.maximum(one.length, 1))
    if np.ptp(lengths) == 0 or np.ptp(other) == 0:
        return 0.0
    return float(np.corrcoef(lengths.ravel(), np.ravel(other))[0, 1])


def adaptation(book: Book) -> Iterator[Part]:
    """How lengths of the Kalman agent and of Oracle go with the bandit."""
    for agent in (KF, ORACLE):
        for number, within, word in ((with_noise, ABOVE, "σ"), (with_distance, BELOW, "distance")):
            name = f"{agent_name(agent)}, correlation of log length with {word}"
            yield alone(book, name, arm(agent), of_maps(number), within)


def less_adaptation(book: Book) -> Iterator[Part]:
    """Lengths and win rates over all bandits, beside three rivals."""
    for rival in ("vssm", NO_INPUT, "mamba"):
        both = [Pair("cost 0", arm(KF), arm(rival))]
        name = agent_name(rival)
        yield difference(book, f"log length over {name}", both, of_maps(grid_length))
        yield difference(book, f"win rate over {name}", both, of_maps(grid_wins))


CLAIMS = (
    Claim(
        "5.2, figure 4", "In distribution vSSM+KF has the highest return of all agents with memory",
        lambda book: over(book, MEMORIES, in_distribution),
    ),
    Claim(
        "5.2, figure 4",
        "Out of distribution, σ from 2 to 3, vSSM+KF has the highest return of all agents with "
        "memory",
        lambda book: over(book, MEMORIES, out_of_distribution),
    ),
    Claim(
        "5.2, figure 4", "In distribution vSSM+KF has the return of Oracle",
        lambda book: over(book, [ORACLE], in_distribution, ALIKE),
    ),
    Claim(
        "5.2, figures 4, 12",
        "vSSM+KF asks more often than the other agents with memory (log10 of the length)",
        lambda book: over(book, MEMORIES, log_length),
    ),
    Claim(
        "5.2, figure 5",
        "vSSM+KF adapts like Oracle: episodes are longer with more noise, and shorter where μ is "
        "further from 0",
        adaptation,
    ),
    Claim(
        "5.2, figure 5",
        "vSSM, vSSM+KF-u and Mamba adapt less: over all bandits of the grid they have shorter "
        "episodes and lower win rates than vSSM+KF",
        less_adaptation,
    ),
    Claim(
        "5.2, figure 5", "Out of distribution vSSM+KF stays below Oracle", below_oracle,
    ),
    Claim(
        "5.2", "The input signal helps: vSSM+KF has a higher return than vSSM+KF-u",
        lambda book: both_places(book, [NO_INPUT]),
    ),
    Claim(
        "5.2, figure 6",
        "In an episode whose first two samples mislead, vSSM decides wrongly after four samples; "
        "vSSM+KF asks on and decides rightly",
        "The paper picked the episode by hand, and one episode decides nothing. `kalmanac report` "
        "draws ours from the queue's latent rollouts.",
    ),
    Claim(
        "5.2, footnote", "With a latent state of 2 instead of 128 returns are a little lower",
        few_channels,
    ),
)  # fmt: skip
