"""What a suite is: presets to start from, and the experiments of the paper that it stands for."""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from kalmanac._lab.experiment import Experiment
from kalmanac._lab.post_training import PostTraining

TRANSFORMER_DROPOUT = 0.1  # PyTorch's default, which the paper keeps (Table 1's caption)


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
    afterwards: Callable[[Experiment], tuple[PostTraining, ...]] = nothing
    # evaluations of a finished run that leave files in its folder
