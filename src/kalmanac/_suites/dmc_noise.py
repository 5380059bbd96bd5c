"""The noise ablation (paper, section 5.3): six tasks under more and less noise."""

from collections.abc import Iterator

from kalmanac._envs.dmc import NOISE
from kalmanac._lab.experiment import Experiment
from kalmanac._settings import ORACLE
from kalmanac._suites.dmc import SEEDS, paper
from kalmanac._suites.suite import Suite

TASKS = (
    "finger-spin", "cheetah-run", "pendulum-swingup", "walker-run", "reacher-easy",
    "point_mass-easy",
)  # fmt: skip
STRENGTHS = (0.0, 0.5, 1.0, 2.0)  # of the task's own noise; 0 and 1 are the paper's
AGENTS = ("vssm", "vssm+kf", "transformer", "oracle")
MORE_SEEDS = {"pendulum-swingup": range(10)}


def runs() -> Iterator[Experiment]:
    """Oracle sees no noise: it runs once, and its runs are those of the benchmark."""
    for task in TASKS:
        for agent in AGENTS:
            for strength in STRENGTHS if agent != ORACLE else (1.0,):
                for seed in MORE_SEEDS.get(task, SEEDS):
                    noise = {"noise": strength * NOISE[task]}
                    yield paper(agent, task=task, seed=seed).changed(noise)


SUITE = Suite("noisy control under more and less noise: six tasks", runs)
