"""Printed numbers of others as data, with their source.

The paper's POPGym table, that of POPGym's own authors, RL Zoo's of NoVel, and six agents in
PyBullet's walkers with positions or velocities alone.
"""

import json
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

BEST = "best-popgym"  # the best MMER that POPGym's authors report, whatever the model

MAMBA = (
    "The paper says that Mamba's input selectivity is the best-suited mechanism for SSM agents to "
    "solve long-term memory problems, matching GRU and the Transformer. The final scores of its "
    "own table do not support the sentence: on RepeatFirstMedium Mamba has 0.575, vSSM+KF 0.726, "
    "GRU and the Transformer 1.000."
)


class Published(NamedTuple):
    """A printed score: mean and standard error over five seeds (best-popgym: deviation, three)."""

    mean: float
    error: float


class Table(NamedTuple):
    """Task → agent → score, and where it is printed."""

    source: str
    what: str
    scores: dict[str, dict[str, Published]]


class NoVelScore(NamedTuple):
    """One trained agent: mean and standard deviation over its episodes."""

    mean: float
    deviation: float
    steps: int  # of its training
    episodes: int


class NoVelScores(NamedTuple):
    """Environment → score, and where it is printed."""

    source: str
    what: str
    scores: dict[str, NoVelScore]


class OwnScore(NamedTuple):
    """What POPGym's authors report of a task."""

    gru: Published  # mean and standard deviation over three seeds
    best: float  # of all their models
    model: str  # which one


class OwnScores(NamedTuple):
    """Task → score, and where it is printed."""

    source: str
    what: str
    scores: dict[str, OwnScore]


class BulletScores(NamedTuple):
    """Task, such as "Hopper-P" → agent → mean and, where it is printed, what stands behind ±."""

    source: str
    what: str
    scores: dict[str, dict[str, tuple[float, ...]]]


@cache
def popgym_table() -> Table:
    """12 tasks × 9 rows: MMER after 1M environment steps."""
    data = _read("published_popgym.json")
    scores = {
        task: {agent: Published(*pair) for agent, pair in row.items()}
        for task, row in data["scores"].items()
    }
    return Table(data["source"], data["what"], scores)


@cache
def novel_scores() -> NoVelScores:
    """Three tasks: sb3-contrib's RecurrentPPO."""
    data = _read("published_novel.json")
    scores = {env: NoVelScore(**row) for env, row in data["scores"].items()}
    return NoVelScores(data["source"], data["what"], scores)


@cache
def popgym_own_scores() -> OwnScores:
    """24 tasks: MMER after 15M environment steps; the other 24 could not be had."""
    data = _read("published_popgym_own.json")
    scores = {
        task: OwnScore(Published(*row["gru"]), row["best"], row["model"])
        for task, row in data["scores"].items()
    }
    return OwnScores(data["source"], data["what"], scores)


@cache
def bullet_scores() -> BulletScores:
    """8 tasks × 6 agents: return after 1.5M environment steps."""
    data = _read("published_bullet.json")
    scores = {
        task: {agent: tuple(numbers) for agent, numbers in row.items()}
        for task, row in data["scores"].items()
    }
    return BulletScores(data["source"], data["what"], scores)


def _read(name: str) -> Any:
    return json.loads(resources.files(__package__).joinpath(name).read_text("utf-8"))
