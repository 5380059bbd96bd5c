"""How far Best Arm's discount decides when to stop asking, and what that means out of distribution.

    python benchmarks/best_arm_ceiling.py [--episodes 4000] [--out results/best-arm-ceiling.json]

The player does not know σ: it weighs every σ of the training's U(0, 2) by Bayes' rule, and stops as
soon as its probability to be right reaches a threshold that falls with every question. Whoever
maximizes the discounted return in distribution can hardly tell many such thresholds apart. They ask
differently often, though, and so win differently often where readings are noisier than ever.
"""

import argparse
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from kalmanac._envs.registry import environment
from record import on_record, save
from report import print_table

Floats = NDArray[np.float64]
GAMMA = 0.99
QUESTIONS = 400  # no threshold of those below asks so often
SIGMAS = np.linspace(0.05, 2, 30)  # what σ may be, to the player
PRIOR = 1 / 12  # variance of μ ~ U(-0.5, 0.5), as a Gaussian
STARTS, FALLS = np.linspace(0.7, 0.99, 30), (0.0, 0.0005, 0.001, 0.002, 0.004, 0.008)
CLOSE = 0.005  # discounted returns that are as good as the best
WHERE = ("in", "out")


class Episodes(NamedTuple):
    """After each question, (episodes, QUESTIONS)."""

    confidence: Floats  # the probability that the side which the player would choose is right
    right: NDArray[np.bool_]  # whether it is


def play(where: str, episodes: int, seed: int = 0) -> Episodes:
    """Ask to the end, and note what the player thinks on the way."""
    rng = np.random.default_rng(seed)
    low, high = environment("best-arm").evaluations[where].get("sigma", (0.0, 2.0))
    mu, sigma = rng.uniform(-0.5, 0.5, episodes), rng.uniform(low, high, episodes)
    readings = mu[:, None] + sigma[:, None] * rng.standard_normal((episodes, QUESTIONS))
    sums, squares = readings.cumsum(1), np.square(readings).cumsum(1)
    positive = np.empty_like(readings)
    for t in range(QUESTIONS):
        variance = 1 / (1 / PRIOR + (t + 1) / SIGMAS**2)
        mean = variance * sums[:, t, None] / SIGMAS**2
        likelihood = 0.5 * (
            np.log(variance) + mean**2 / variance - squares[:, t, None] / SIGMAS**2
        ) - (t + 1) * np.log(SIGMAS)
        weight = np.exp(likelihood - likelihood.max(1, keepdims=True))
        above = torch.special.ndtr(torch.from_numpy(mean / np.sqrt(variance))).numpy()
        positive[:, t] = (weight * above).sum(1) / weight.sum(1)
    right = (positive > 0.5) == (mu > 0)[:, None]
    return Episodes(np.maximum(positive, 1 - positive), right)


def judged(episodes: Episodes, start: float, fall: float) -> dict[str, float]:
    """The return, discounted and not, in units of a win, and the questions of one threshold."""
    threshold = np.maximum(0.5, start - fall * np.arange(QUESTIONS))
    stops = episodes.confidence >= threshold
    stops[:, -1] = True
    asked = stops.argmax(1)
    won = np.where(np.take_along_axis(episodes.right, asked[:, None], 1)[:, 0], 1.0, -1.0)
    return {
        "discounted": float((won * GAMMA**asked).mean()), "return": float(won.mean()),
        "questions": float(asked.mean() + 1),
    }  # fmt: skip


def close_to_the_best(episodes: int) -> list[dict[str, Any]]:
    """All thresholds whose discounted return in distribution is as good as the best, by return."""
    played = {where: play(where, episodes) for where in WHERE}
    rows: list[dict[str, Any]] = [
        {"start": round(float(start), 3), "fall": fall}
        | {where: judged(played[where], start, fall) for where in WHERE}
        for start, fall in product(STARTS, FALLS)
    ]
    best = max(row["in"]["discounted"] for row in rows)
    good = [row for row in rows if row["in"]["discounted"] >= best - CLOSE]
    return sorted(good, key=lambda row: row["out"]["return"])


def main(argv: Sequence[str] | None = None) -> int:
    """Play, print the least and the most that good thresholds win, write JSON."""
    words = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--episodes", type=int, default=4_000, help="of each distribution")
    parser.add_argument("--out", type=Path, help="also write the numbers as JSON")
    options = parser.parse_args(words)
    if options.episodes < 2:
        parser.error(f"episodes: got {options.episodes}, expected at least 2")
    rows = close_to_the_best(options.episodes)
    head = ["threshold", "fall"]
    head += [f"{where}: {x}" for where in WHERE for x in ("discounted", "return", "questions")]
    print_table(head, [
        [f"{row['start']:.2f}", f"{row['fall']:.4f}"]
        + [f"{x:.3f}" if x < 1 else f"{x:.0f}" for where in WHERE for x in row[where].values()]
        for row in (rows[0], rows[-1])
    ])  # fmt: skip
    if options.out is not None:
        record = on_record("benchmarks/best_arm_ceiling.py", words)
        save({**record, "as_good": CLOSE, "rows": rows}, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
