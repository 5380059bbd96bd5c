"""The quick form of any suite: minutes instead of weeks, to see that all of it works.

It says nothing about agents: they hardly learn. Every run carries the label, and so does every
figure and table that is made of such runs.
"""

from dataclasses import replace
from typing import Any

from kalmanac._lab.experiment import Experiment
from kalmanac._lab.post_training import GridOfBandits, PostTraining

QUICK = "quick"
SEEDS = 2  # of each setting
SHRUNK: dict[str, Any] = {
    "label": QUICK,
    "total_steps": 1_600,
    "num_envs": 8,
    "learning_starts": 400,
    "update_to_data": 0.05,
    "batch_size": 16,
    "context_length": 32,
    "eval_every": 800,
    "eval_episodes": 4,
    "log_every": 800,
}
BANDITS: dict[str, Any] = {  # Best Arm's evaluations are cheap, and agents that only ask are not
    "env_settings": {"horizon": 50},
    "eval_episodes": 32,
}
CONTROL: dict[str, Any] = {  # evaluations take 1000 steps of physics
    "total_steps": 800,
    "learning_starts": 200,
    "eval_every": 400,
    "eval_episodes": 2,
    "log_every": 400,
}


def quick(experiment: Experiment) -> Experiment:
    """The same agent in the same task, for a few updates."""
    family = experiment.env.partition("/")[0]
    return experiment.changed(SHRUNK | {"best-arm": BANDITS, "dmc": CONTROL}.get(family, {}))


def quick_evaluation(evaluation: PostTraining) -> PostTraining:
    """The same kind of file, from fewer episodes."""
    if isinstance(evaluation, GridOfBandits):
        return replace(evaluation, points=9, episodes=8)
    return evaluation
