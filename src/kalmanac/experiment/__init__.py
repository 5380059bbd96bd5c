"""Experiments: the one description of a run, and what happens when it is run."""

from kalmanac.experiment.building import (
    check_environment,
    check_workers,
    evaluation_environment,
    make_model,
    most_steps,
    training_environment,
)
from kalmanac.experiment.description import AGENTS, Experiment
from kalmanac.experiment.ending import ending, exit_status, tell
from kalmanac.experiment.estimate import Estimate, estimate
from kalmanac.experiment.evaluation import evaluate
from kalmanac.experiment.extending import way_on
from kalmanac.experiment.failure import RunFailedError
from kalmanac.experiment.room import NoRoomError, check_room
from kalmanac.experiment.running import resume, resume_together, run, run_together
from kalmanac.experiment.signals import StopSignals
from kalmanac.experiment.trust import Trust, UntrustedError, ask_on_terminal, read_trusted
from kalmanac.experiment.under_way import CHECKPOINT_EVERY, Outcome
from kalmanac.ops.device import check_device

__all__ = [
    "AGENTS",
    "CHECKPOINT_EVERY",
    "Estimate",
    "Experiment",
    "NoRoomError",
    "Outcome",
    "RunFailedError",
    "StopSignals",
    "Trust",
    "UntrustedError",
    "ask_on_terminal",
    "check_device",
    "check_environment",
    "check_room",
    "check_workers",
    "ending",
    "estimate",
    "evaluate",
    "evaluation_environment",
    "exit_status",
    "make_model",
    "most_steps",
    "read_trusted",
    "resume",
    "resume_together",
    "run",
    "run_together",
    "tell",
    "training_environment",
    "way_on",
]
