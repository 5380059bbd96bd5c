"""Experiments: the one description of a run, and what happens when it is run."""

from kalmanac.experiment.building import (
    check_device,
    check_environment,
    check_workers,
    evaluation_environment,
    make_model,
    training_environment,
)
from kalmanac.experiment.description import AGENTS, Experiment
from kalmanac.experiment.estimate import Estimate, estimate
from kalmanac.experiment.evaluation import evaluate
from kalmanac.experiment.progress import Progress
from kalmanac.experiment.running import Outcome, run

__all__ = [
    "AGENTS",
    "Estimate",
    "Experiment",
    "Outcome",
    "Progress",
    "check_device",
    "check_environment",
    "check_workers",
    "estimate",
    "evaluate",
    "evaluation_environment",
    "make_model",
    "run",
    "training_environment",
]
