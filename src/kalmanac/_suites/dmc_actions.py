"""The comparison with model-based agents (paper, appendix H): noise on actions too."""

from collections.abc import Iterator

from kalmanac._lab.experiment import Experiment
from kalmanac._suites.dmc import SEEDS, paper
from kalmanac._suites.suite import Suite

TASKS = ("cartpole-swingup", "walker-walk", "walker-run", "quadruped-walk")
AGENTS = ("vssm", "vssm+kf", "memoryless")
NOISE = 0.3


def runs() -> Iterator[Experiment]:
    """The rivals of the paper's figure have no printed numbers, and no runs here."""
    for task in TASKS:
        for agent in AGENTS:
            for seed in SEEDS:
                yield paper(agent, task=task, seed=seed).changed(
                    {"noise": NOISE, "action_noise": NOISE}
                )


SUITE = Suite("noisy control with noise on actions too: four tasks", runs)
