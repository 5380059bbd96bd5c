"""What some of the paper's printed POPGym scores imply: perfect play, and a guess that got lucky.

    python benchmarks/printed_scores.py [--episodes 20000] [--out results/printed-scores.json]

MMER is the largest of an agent's evaluations, each the mean return of 16 episodes. A maximum is
above the mean that it is drawn from, so two players are put to the real tasks, and their returns
through as many evaluations as a run of the paper has:

- in CountRecallEasy, one who counts every card. Nobody does better, and yet some answers are out
  of reach: a color has 26 cards, and the largest answer is 25.
- in RepeatFirst, one who says the same suit all the time. It is right in one episode of four.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kalmanac._envs.popgym import POPGym
from record import on_record, save
from report import print_table

Floats = NDArray[np.float64]
Observation = NDArray[np.float32]
Player = Callable[[], Callable[[Observation], int]]  # makes one that plays an episode

EVALUATIONS, EPISODES_OF_ONE, SEEDS = 100, 16, 5
DRAWS = 4000


def counting() -> Callable[[Observation], int]:
    """Counts the colors that are dealt, and answers how often it saw the one that is asked for."""
    seen = [0, 0]

    def act(observation: Observation) -> int:
        dealt, asked = int(observation[1]), int(observation[3])
        seen[dealt] += 1
        return min(seen[asked], 25)

    return act


def saying_the_same() -> Callable[[Observation], int]:
    """The first suit, whatever it saw."""
    return lambda observation: 0


PLAYERS: dict[str, tuple[str, Player]] = {
    "CountRecallEasy": ("counts every card", counting),
    "RepeatFirstEasy": ("says one suit", saying_the_same),
    "RepeatFirstMedium": ("says one suit", saying_the_same),
}


def returns(task: str, player: Player, episodes: int) -> Iterator[float]:
    """Of whole episodes."""
    env = POPGym(task, truth=False)
    for seed in range(episodes):
        observation, _ = env.reset(seed=seed)
        act, total, done = player(), 0.0, False
        while not done:
            observation, reward, terminated, truncated, _ = env.step(act(observation))
            total += float(reward)
            done = terminated or truncated
        yield total


def luckiest(found: Floats, seed: int = 0) -> Floats:
    """(DRAWS,) MMER of runs whose player never learns: the largest of means over episodes."""
    rng = np.random.default_rng(seed)
    size = (EVALUATIONS, EPISODES_OF_ONE)
    return np.array([rng.choice(found, size).mean(1).max() for _ in range(DRAWS)])


def row(task: str, episodes: int) -> dict[str, Any]:
    """What one player gets, and what a run would print of it."""
    what, player = PLAYERS[task]
    found = np.array(list(returns(task, player, episodes)))
    best = luckiest(found)
    return {
        "task": task,
        "player": what,
        "episodes": episodes,
        "mean": round(float(found.mean()), 4),
        "standard_error": round(float(found.std(ddof=1) / episodes**0.5), 4),
        "mmer": round(float(best.mean()), 4),
        "mmer_standard_deviation": round(float(best.std()), 4),
        "mmer_standard_error_of_five": round(float(best.std() / SEEDS**0.5), 4),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Play, print the table, write JSON."""
    words = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--episodes", type=int, default=20_000, help="of each task")
    parser.add_argument("--out", type=Path, help="also write the numbers as JSON")
    options = parser.parse_args(words)
    if options.episodes < 2:
        parser.error(f"episodes: got {options.episodes}, expected at least 2")
    rows = [row(task, options.episodes) for task in PLAYERS]
    print_table(
        ["task", "player", "mean return", f"MMER of {EVALUATIONS}", "± of five seeds"],
        [
            [
                one["task"], one["player"], f"{one['mean']:.3f} ± {one['standard_error']:.3f}",
                f"{one['mmer']:.3f}", f"{one['mmer_standard_error_of_five']:.3f}",
            ]
            for one in rows
        ],
    )  # fmt: skip
    if options.out is not None:
        save({**on_record("benchmarks/printed_scores.py", words), "rows": rows}, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
