"""Environments × policy → steps: autoreset, the collection of transitions, evaluation episodes."""

from kalmanac.rollout.collector import Collected, Collector
from kalmanac.rollout.evaluation import (
    MOST_STEPS,
    EachStep,
    Evaluation,
    PredictingModel,
    evaluate_policy,
)
from kalmanac.rollout.observations import InfoKeys, ObservationReader, info_keys
from kalmanac.rollout.streams import (
    Arrival,
    EnvironmentFailedError,
    Episode,
    EpisodeStreams,
    as_vector,
    autoreset_mode,
    close_failed,
    closed,
)

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
    "InfoKeys",
    "ObservationReader",
    "PredictingModel",
    "as_vector",
    "autoreset_mode",
    "close_failed",
    "closed",
    "evaluate_policy",
    "info_keys",
]
