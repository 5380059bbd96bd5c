"""The heat map file: how an agent does over a grid of Best Arm bandits, as a run leaves it."""

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kalmanac._files.durable import refuse_link, write_whole
from kalmanac._files.json import read_object
from kalmanac._files.run_reader import HEATMAP, read_experiment
from kalmanac._messages import one_line

LARGEST = 1e30  # number in one


@dataclass(frozen=True)
class Heatmap:
    """How an agent does in Best Arm bandits of mean mu[i] and standard deviation sigma[j].

    `win_rate[i][j]` and `length[i][j]` are means over `episodes` episodes of the run's `model`,
    "best" or "last", without exploration. The paper has 25 × 25 bandits, σ up to 3, 100 episodes.
    """

    mu: list[float]
    sigma: list[float]
    win_rate: list[list[float]]
    length: list[list[float]]
    episodes: int
    model: str = "last"

    def __post_init__(self) -> None:
        for name in ("mu", "sigma", "win_rate", "length"):
            for value in np.ravel(getattr(self, name)).tolist():
                if type(value) not in (int, float) or not abs(value) <= LARGEST:
                    raise ValueError(f"{name}: got {one_line(repr(value), 40)}, expected a number")
        for name in ("mu", "sigma"):
            if (np.diff(getattr(self, name)) <= 0).any():
                raise ValueError(f"{name}: got values that do not rise, expected rising ones")
        for name in ("win_rate", "length"):
            rows = getattr(self, name)
            wide = {len(row) for row in rows}
            if len(rows) != len(self.mu) or wide != {len(self.sigma)}:
                raise ValueError(
                    f"{name}: got {len(rows)} rows of {sorted(wide)} values, "
                    f"expected {len(self.mu)} of {len(self.sigma)}"
                )


def write_heatmap(path: str | os.PathLike[str], heatmap: Heatmap) -> None:
    """Leave it in the run folder `path`, in one step."""
    read_experiment(path)
    file = Path(path) / HEATMAP
    refuse_link(file.parent)
    file.parent.mkdir(exist_ok=True)
    write_whole(file, (json.dumps(dataclasses.asdict(heatmap)) + "\n").encode())


def read_heatmap(path: str | os.PathLike[str]) -> Heatmap | None:
    """The run's heat map; None where it has none, ValueError in one line where it is broken."""
    file = Path(path) / HEATMAP
    if not file.is_file():
        return None
    try:
        return Heatmap(**read_object(file))
    except (TypeError, ValueError) as error:
        cause = one_line(str(error).replace(f"{file}: ", ""))
        raise ValueError(f"{file}: got no heat map ({cause}), expected one") from None
