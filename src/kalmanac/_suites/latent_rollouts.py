"""Latent space rollouts (paper, figure 6): two channels, which can be drawn."""

from collections.abc import Iterator

from kalmanac._lab.experiment import Experiment
from kalmanac._lab.post_training import AdversarialEpisode, PostTraining
from kalmanac._suites.best_arm import SEEDS, paper
from kalmanac._suites.suite import Suite

AGENTS = ("vssm", "vssm+kf")
CHANNELS = 2  # N


def runs() -> Iterator[Experiment]:
    """Best Arm where asking is free (a choice: the paper does not name the cost)."""
    for agent in AGENTS:
        for seed in SEEDS:
            yield paper(agent, seed=seed).changed({"encoder_settings": {"d_state": CHANNELS}})


def afterwards(experiment: Experiment) -> tuple[PostTraining, ...]:
    """The episode whose first two samples mislead."""
    return (AdversarialEpisode(),)


SUITE = Suite("ways through a latent space of two channels", runs, afterwards=afterwards)
