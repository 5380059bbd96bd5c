"""The design ablation (paper, appendix E): what a Kalman layer could have besides."""

from collections.abc import Iterator, Mapping
from typing import Any

from kalmanac._lab.experiment import Experiment
from kalmanac._settings import ORACLE
from kalmanac._suites.dmc import SEEDS, TASKS, paper
from kalmanac._suites.suite import Suite

DESIGNS: tuple[Mapping[str, Any], ...] = (
    {},  # the runs of the benchmark
    {"input_process_noise": True},
    {"variance_feature": True},
    {"input_process_noise": True, "variance_feature": True},
)


def runs() -> Iterator[Experiment]:
    """Four designs; reports divide by the benchmark's Oracle, whose runs are named here too."""
    for task in TASKS:
        for seed in SEEDS:
            for design in DESIGNS:
                yield paper("vssm+kf", task=task, seed=seed).changed({"encoder_settings": design})
            yield paper(ORACLE, task=task, seed=seed)


SUITE = Suite("noisy control with other designs of the Kalman layer: nine tasks", runs)
