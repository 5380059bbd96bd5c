"""The heat maps (paper, figure 5): how agents do in every bandit of a grid, where asking is free.

The runs are those of `best-arm` with cost 0. What is added is an evaluation after their training.
"""

from collections.abc import Iterator

from kalmanac._lab.experiment import Experiment
from kalmanac._lab.post_training import GridOfBandits, PostTraining
from kalmanac._suites.best_arm import AGENTS, SEEDS, paper
from kalmanac._suites.suite import Suite


def runs() -> Iterator[Experiment]:
    """Eight agents."""
    for agent in AGENTS:
        for seed in SEEDS:
            yield paper(agent, seed=seed)


def afterwards(experiment: Experiment) -> tuple[PostTraining, ...]:
    """25 × 25 bandits, 100 episodes each."""
    return (GridOfBandits(),)


SUITE = Suite("heat maps of win rate and length over 625 bandits", runs, afterwards=afterwards)
