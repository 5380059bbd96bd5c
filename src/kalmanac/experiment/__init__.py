"""Experiments: the one description of a run, and what happens when it is run."""

from kalmanac.experiment.building import (
    check_device,
    check_environment,
    evaluation_environment,
    make_model,
    training_environment,
)
from kalmanac.experiment.description import AGENTS, Experiment
from kalmanac.experiment.ending import ending, exit_status
from kalmanac.experiment.estimate import Estimate, estimate
from kalmanac.experiment.evaluation import evaluate
from kalmanac.experiment.failure import RunFailedError
from kalmanac.experiment.progress import Progress
from kalmanac.experiment.running import CHECKPOINT_EVERY, Outcome, resume, run
from kalmanac.experiment.signals import StopSignals

__all__ = [
    "AGENTS",
    "CHECKPOINT_EVERY",
    "Estimate",
    "Experiment",
    "Outcome",
    "Progress",
    "RunFailedError",
    "StopSignals",
    "check_device",
    "check_environment",
    "ending",
    "estimate",
    "evaluate",
    "evaluation_environment",
    "exit_status",
    "make_model",
    "resume",
    "run",
    "training_environment",
]
