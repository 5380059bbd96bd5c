"""Environments × policy → steps: autoreset, the collection of transitions, evaluation episodes."""

from kalmanac.rollout.collector import Collected, Collector
from kalmanac.rollout.evaluation import (
    MOST_STEPS,
    EachStep,
    Evaluation,
    PredictingModel,
    evaluate_policy,
)
from kalmanac.rollout.failure import EnvironmentFailedError, close_failed, closed
from kalmanac.rollout.senses import Senses, Sight, Tells, tells
from kalmanac.rollout.vectors import Arrival, Episode, EpisodeStreams, as_vector, autoreset_mode

__all__ = [
    "MOST_STEPS",
    "Arrival",
    "Collected",
    "Collector",
    "EachStep",
    "EnvironmentFailedError",
    "Episode",
    "EpisodeStreams",
    "Evaluation",
    "PredictingModel",
    "Senses",
    "Sight",
    "Tells",
    "as_vector",
    "autoreset_mode",
    "close_failed",
    "closed",
    "evaluate_policy",
    "tells",
]
