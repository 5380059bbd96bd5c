"""Run folders as data: what was run, its evaluations, and in one line each what is amiss."""

import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kalmanac.runlog import (
    EXPERIMENT,
    Row,
    is_run,
    read_evaluations,
    read_experiment,
    read_last_timing,
    read_provenance,
    read_summary,
    series,
)

Floats = NDArray[np.float64]
NEEDED = {
    "env": str, "env_settings": dict, "encoder": str, "encoder_settings": dict, "seed": int,
    "total_steps": int, "eval_every": int,
}  # fmt: skip
# Settings that change a run's task, each with the value that changes nothing.
NEUTRAL: Mapping[str, Any] = {
    "noise": 0.0,
    "action_noise": 0.0,
    "dropout": 0.0,
    "dropout_burst": None,
    "dropout_told": True,
    "delay": 0,
    "frame_repeat": 1,
}
EARLIER: Mapping[str, Any] = {  # what runs did before they could say it
    **NEUTRAL,
    "actor_objective": "value",
    "adam_betas": [0.9, 0.999],
    "entropy_in_target": True,
    "average_policy": False,
    "bootstrap_truncated": True,
    "overlap": False,
    "eval_on_device": False,
    "tf32": True,
    "bfloat16_heads": False,
    "graph": True,
}
SHOWN_AT_MOST = 5  # names of files that belong to no run
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Run:
    """One run with at least one evaluation. `values` has "PLACE/NAME" → one number each."""

    name: str  # the folder's, from where the report began
    folder: Path
    experiment: Mapping[str, Any]
    summary: Mapping[str, Any]
    provenance: Mapping[str, Any]
    steps: NDArray[np.int64]  # of its evaluations
    values: Mapping[str, Floats]
    seconds: float | None = None

    @property
    def seed(self) -> int:
        """Decides all randomness of the run."""
        return self.experiment["seed"]

    @property
    def version(self) -> str:
        """Of the package that trained it."""
        return str(self.provenance.get("kalmanac", UNKNOWN))

    @property
    def status(self) -> str:
        """As summary.json has it."""
        return str(self.summary.get("status", UNKNOWN))

    @property
    def finished(self) -> bool:
        """Whether it came to its planned end."""
        return self.status == "finished"


class Found(NamedTuple):
    """All runs below a folder, and one line for everything that a reader should know of them."""

    runs: list[Run]
    notices: list[str]


@dataclass
class _Walk:
    """What turns up on the way through the folders."""

    runs: list[Run] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)


def read_runs(folder: str | os.PathLike[str], leave_out: Path | None = None) -> Found:
    """Every run in `folder` and below. Nothing stops the reading; what is left out is named.

    Args:
        leave_out: a folder that is not looked into, such as the report's own.
    """
    root = Path(folder)
    if not root.is_dir():
        raise FileNotFoundError(f"folder: got {root}, expected a folder with runs")
    walk = _Walk()
    for place, inside, files in os.walk(root):
        path = Path(place)
        inside[:] = sorted(name for name in inside if not name.startswith("."))
        if leave_out is not None and path.resolve() == leave_out.resolve():
            inside.clear()
        elif is_run(path):
            inside.clear()
            _take(path, "." if path == root else path.relative_to(root).as_posix(), walk)
        else:
            walk.strangers += [(path / name).relative_to(root).as_posix() for name in files]
    if names := sorted(walk.strangers):
        more = f" and {len(names) - SHOWN_AT_MOST} more" if len(names) > SHOWN_AT_MOST else ""
        told = ", ".join(names[:SHOWN_AT_MOST])
        walk.notices.append(f"{told}{more}: not part of a run, not read")
    runs = _once_each(walk.runs, walk.notices)
    walk.notices += _versions(runs)
    return Found(_same_settings(runs, walk.notices), walk.notices)


def _take(path: Path, name: str, walk: _Walk) -> None:
    try:
        experiment = read_experiment(path)
        _expect_experiment(experiment)
        rows, cut = read_evaluations(path)
        summary, provenance = read_summary(path), read_provenance(path)
        clock = read_last_timing(path) or {}
    except (OSError, ValueError) as error:
        told = " ".join(str(error).split()).replace(f"{path}{os.sep}", "")
        walk.notices.append(f"{name}: left out: {told}")
        return
    run = Run(
        name, path, experiment, summary, provenance,
        np.asarray([row["step"] for row in rows], np.int64), evaluations(rows),
        seconds=clock.get("time/elapsed"),
    )  # fmt: skip
    at = f"{run.status}, step {summary.get('step', 0):,} of {experiment.get('total_steps', 0):,}"
    if cut:
        walk.notices.append(f"{name}: metrics.jsonl ends in the middle of a line ({at})")
    if not rows:
        walk.notices.append(f"{name}: no evaluation yet ({at}), left out")
        return
    if not run.finished and not cut:
        walk.notices.append(f"{name}: not finished ({at}); its last evaluation stands for its end")
    walk.runs.append(run)


def evaluations(rows: list[Row]) -> dict[str, Floats]:
    """ "PLACE/NAME" → values of all rows; NaN where a row lacks it, or had no finite number."""
    keys = dict.fromkeys(key for row in rows for key in row if key.startswith("eval/"))
    found = {}
    for key in keys:
        filled = ({"step": row["step"], key: row.get(key)} for row in rows)
        found[key.removeprefix("eval/")] = np.asarray(series(filled, key)[1], np.float64)
    return found


def _expect_experiment(data: Any) -> None:
    if not isinstance(data, dict):
        raise ValueError(f"{EXPERIMENT}: got a {type(data).__name__}, expected an experiment")
    for name, kind in NEEDED.items():
        if not isinstance(data.get(name), kind):
            raise ValueError(
                f"{EXPERIMENT}: got {name} {data.get(name)!r}, expected a {kind.__name__}: "
                "not an experiment of kalmanac"
            )


def _once_each(runs: list[Run], notices: list[str]) -> list[Run]:
    """Of two runs of the same experiment, seed included, the one that came further."""
    kept: dict[str, Run] = {}
    for run in runs:
        key = json.dumps(run.experiment, sort_keys=True)
        other = kept.get(key)
        if other is not None:
            run, other = sorted((run, other), key=lambda r: (-r.steps[-1], r.name))
            notices.append(f"{other.name}: the same experiment and seed as {run.name}, left out")
        kept[key] = run
    return sorted(kept.values(), key=lambda run: run.name)


def _versions(runs: list[Run]) -> list[str]:
    counts = Counter(run.version for run in runs)
    if len(counts) < 2:
        return []
    told = ", ".join(f"{version} ({n} runs)" for version, n in sorted(counts.items()))
    return [f"runs of {len(counts)} versions of kalmanac stand side by side: {told}"]


def _same_settings(runs: list[Run], notices: list[str]) -> list[Run]:
    """Say what older runs leave unsaid, where it is known; name what stays unsaid."""
    filled = [{**EARLIER, **run.experiment} for run in runs]
    for env in dict.fromkeys(data["env"] for data in filled):
        here = [data for data in filled if data["env"] == env]
        for name in dict.fromkeys(name for data in here for name in data):
            silent = sum(name not in data for data in here)
            if silent:
                notices.append(
                    f"{env}: {silent} of {len(here)} runs do not say {name} (another version "
                    "wrote them), and are kept apart from those that do"
                )
    return [
        Run(**{**vars(run), "experiment": data}) for run, data in zip(runs, filled, strict=True)
    ]
