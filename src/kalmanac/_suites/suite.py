"""What a suite is: presets to start from, and the experiments of the paper that it stands for.

The quick form of any suite takes minutes instead of weeks, to see that all of it works. It says
nothing about agents: they hardly learn. Every run carries the label, and so does every figure and
table that is made of such runs.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

from kalmanac._lab.experiment import Experiment
from kalmanac._lab.post_training import GridOfBandits, PostTraining

TRANSFORMER_DROPOUT = 0.1  # PyTorch's default, which the paper keeps (Table 1's caption)

QUICK = "quick"
QUICK_SEEDS = 2  # of each setting
QUICK_SETTINGS: dict[str, Any] = {
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
# Best Arm's evaluations are cheap, and agents that only ask are not
QUICK_BANDITS: dict[str, Any] = {
    "env_settings": {"horizon": 50},
    "eval_episodes": 32,
}
QUICK_CONTROL: dict[str, Any] = {  # evaluations take 1000 steps of physics
    "total_steps": 800,
    "learning_starts": 200,
    "eval_every": 400,
    "eval_episodes": 2,
    "log_every": 400,
}
QUICK_CHANGES = {
    "best-arm": QUICK_BANDITS, "dmc": QUICK_CONTROL, "mujoco": QUICK_CONTROL
}  # fmt: skip


class Preset(NamedTuple):
    """A named starting point: the settings that an agent is trained with.

    Examples:
        >>> from kalmanac import Experiment, Preset
        >>> def short(agent):
        ...     return Experiment(env="track", total_steps=5_000).changed({"encoder": agent})
        >>> Preset("a short look", short).experiment("gru").encoder
        'gru'
    """

    summary: str
    experiment: Callable[[str], Experiment]  # agent's name → experiment


def nothing(experiment: Experiment) -> tuple[PostTraining, ...]:
    """What most runs leave after their training."""
    return ()


class Suite(NamedTuple):
    """One family of experiments.

    Examples:
        >>> from kalmanac import SUITES, Experiment, Suite
        >>> def runs():
        ...     for seed in range(3):
        ...         yield Experiment(env="track", seed=seed)
        >>> SUITES["track-seeds"] = Suite("a wandering target, three seeds", runs)
        >>> len(list(SUITES.pop("track-seeds").runs()))
        3
    """

    summary: str
    runs: Callable[[], Iterator[Experiment]]
    presets: Mapping[str, Preset] = MappingProxyType({})
    tasks: Mapping[str, Preset] = MappingProxyType({})  # environment → its preset in this family
    post_training: Callable[[Experiment], tuple[PostTraining, ...]] = nothing
    # evaluations of a finished run that leave files in its folder
    in_all: bool = True  # "all" stands for it, too


def quick(experiment: Experiment) -> Experiment:
    """The same agent in the same task, for a few updates."""
    family = experiment.env.partition("/")[0]
    changes = QUICK_CHANGES.get(family, {})
    return experiment.changed(QUICK_SETTINGS | changes)


def quick_evaluation(evaluation: PostTraining) -> PostTraining:
    """The same kind of file, from fewer episodes."""
    if isinstance(evaluation, GridOfBandits):
        return replace(evaluation, points=9, episodes=8)
    return evaluation
