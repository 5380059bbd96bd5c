"""The paper's printed numbers: the POPGym table of its appendix, as data with its source."""

import json
from functools import cache
from importlib import resources
from typing import NamedTuple

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


@cache
def popgym_table() -> Table:
    """12 tasks × 9 rows: MMER after 1M environment steps."""
    text = resources.files(__package__).joinpath("published_popgym.json").read_text("utf-8")
    data = json.loads(text)
    scores = {
        task: {agent: Published(*pair) for agent, pair in row.items()}
        for task, row in data["scores"].items()
    }
    return Table(data["source"], data["what"], scores)
