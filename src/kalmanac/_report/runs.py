"""Run folders as data: what was run, what was logged, and in one line each what is amiss."""

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kalmanac._files.json import expect_whole
from kalmanac._files.run_reader import (
    EXPERIMENT,
    METRICS,
    Row,
    find_run_folders,
    read_provenance,
    read_record,
    read_some_metrics,
    series,
    why_unreadable,
)
from kalmanac._messages import LONGEST_PATH, one_line
from kalmanac._settings import as_it_was

Floats = NDArray[np.float64]
NEEDED = {"env": str, "env_settings": dict, "encoder": str, "encoder_settings": dict}
COUNTS = {"seed": 0, "total_steps": 1, "eval_every": 1}  # whole numbers, of at least so much
OPTIONAL = {"label": str, "privileged": bool}
MOST_NAMES = 5  # names of files that belong to no run, or of settings
MOST_SETTINGS, MOST_PLACES = 1000, 100  # of a run, and of its evaluations
LARGEST = 1e100  # evaluation; beyond it there is no arithmetic, nor a picture
MOST_ROWS, MOST_METRICS = 200, 60  # of a training between its evaluations, and numbers in a row
COUNTERS = ("rollout/episodes", "train/updates")  # no curves
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Run:
    """One run with at least one row of numbers.

    `values` has "PLACE/NAME" → one number for each evaluation; `training` has returns, losses and
    diagnostics, "rollout/NAME" and "train/NAME" → one number for each of `training_steps`.
    """

    name: str  # the folder's, from where the report began
    folder: Path
    experiment: Mapping[str, Any]
    summary: Mapping[str, Any]
    provenance: Mapping[str, Any]
    steps: NDArray[np.int64]  # of its evaluations
    values: Mapping[str, Floats]
    seconds: float | None = None
    training_steps: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    training: Mapping[str, Floats] = field(default_factory=dict)

    @property
    def seed(self) -> int:
        """The seed of all randomness of the run."""
        return self.experiment["seed"]

    @property
    def version(self) -> str:
        """The version of the package that trained the run."""
        return one_line(self.provenance.get("kalmanac", UNKNOWN), 40)

    @property
    def status(self) -> str:
        """The run's status in summary.json."""
        return one_line(self.summary.get("status", UNKNOWN), 40)

    @property
    def finished(self) -> bool:
        """Whether the run came to its planned end."""
        return self.status == "finished"


class RunsAndNotices(NamedTuple):
    """All runs below a folder, and one line for everything that a reader should know of them."""

    runs: list[Run]
    notices: list[str]


@dataclass
class _Walk:
    """What a walk through the folders collects."""

    runs: list[Run] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)


def read_runs(folder: str | os.PathLike[str], leave_out: Path | None = None) -> RunsAndNotices:
    """Every run in `folder` and below. Nothing stops the reading; what is left out is named.

    Args:
        leave_out: a folder that is not looked into, such as the report's own.
    """
    root = Path(folder)
    if not root.is_dir():
        raise FileNotFoundError(f"folder: got {root}, expected a folder with runs")
    walk = _Walk()

    def unread(error: OSError) -> None:
        walk.notices.append(f"{_name(Path(error.filename), root)}: not read: {error.strerror}")

    def stranger(file: Path) -> None:
        walk.strangers.append(_name(file, root))

    for path in find_run_folders(root, leave_out=leave_out, unread=unread, other=stranger):
        _take(path, _name(path, root), walk)
    if names := sorted(walk.strangers):
        walk.notices.append(f"{_some(names)}: not part of a run, not read")
    runs = _once_each(walk.runs, walk.notices)
    walk.notices += _versions(runs)
    return RunsAndNotices(_same_settings(runs, walk.notices), walk.notices)


def _name(path: Path, root: Path) -> str:
    return one_line("." if path == root else path.relative_to(root).as_posix(), LONGEST_PATH)


def _take(path: Path, name: str, walk: _Walk) -> None:
    """Add one run to `walk`, or one line that says why not."""
    try:
        run, cut = _read(path, name)
    except Exception as error:  # whatever it is, it is this run's alone
        walk.notices.append(f"{name}: left out: {why_unreadable(error, path)}")
        return
    at = f"{run.status}, step {run.summary.get('step', 0):,} of {run.experiment['total_steps']:,}"
    if cut:
        walk.notices.append(f"{name}: metrics.jsonl ends in the middle of a line ({at})")
    if not run.steps.size and not run.training:
        walk.notices.append(f"{name}: no evaluation yet ({at}), left out")
        return
    if not run.steps.size:
        walk.notices.append(f"{name}: no evaluation yet ({at}); its training is shown")
    elif not run.finished and not cut:
        walk.notices.append(f"{name}: not finished ({at}); its last evaluation stands for its end")
    walk.runs.append(run)


def _read(path: Path, name: str) -> tuple[Run, bool]:
    """A run, and whether its metrics end in mid-line; ValueError for what is none."""
    experiment, summary, timing = read_record(path)
    _expect_experiment(experiment)
    every, cut = read_some_metrics(path, MOST_ROWS)
    rows = [row for row in every if any(key.startswith("eval/") for key in row)]
    steps = np.asarray([row["step"] for row in rows], np.int64)
    if (np.diff(steps) < 0).any():
        raise ValueError(f"{METRICS}: got evaluations whose steps go back, expected rising ones")
    run = Run(
        name, path, experiment, summary, read_provenance(path), steps,
        {key.removeprefix("eval/"): x for key, x in _columns(rows, "eval/").items()},
        seconds=timing.get("time/elapsed"),
        training_steps=np.asarray([row["step"] for row in every], np.int64),
        training=_training(every),
    )  # fmt: skip
    if len(places := {key.partition("/")[0] for key in run.values}) > MOST_PLACES:
        raise ValueError(f"{METRICS}: got {len(places):,} places of evaluation, expected fewer")
    for key, values in run.values.items():
        if (far := values[np.abs(values) > LARGEST]).size:
            shortened = one_line(key, 60)
            raise ValueError(f"{METRICS}: got {shortened} {far[0]:g}, expected at most {LARGEST:g}")
    return run, cut


def _columns(rows: list[Row], *prefixes: str) -> dict[str, Floats]:
    """Key → values of all rows; NaN where a row lacks it, or had no finite number."""
    keys = dict.fromkeys(key for row in rows for key in row if key.startswith(prefixes))
    values = {}
    for key in keys:
        filled = ({"step": row["step"], key: row.get(key)} for row in rows)
        values[key] = np.asarray(series(filled, key)[1], np.float64)
    return values


def _training(rows: list[Row]) -> dict[str, Floats]:
    """Returns, losses and diagnostics; what is too large to be drawn is NaN."""
    columns = _columns(rows, "rollout/", "train/")
    chosen = [key for key in columns if key not in COUNTERS][:MOST_METRICS]
    return {key: np.where(np.abs(columns[key]) > LARGEST, np.nan, columns[key]) for key in chosen}


def _expect_experiment(data: Mapping[str, Any]) -> None:
    optional = {name: kind for name, kind in OPTIONAL.items() if name in data}
    for name, kind in {**NEEDED, **optional}.items():
        if not isinstance(data.get(name), kind):
            raise ValueError(
                f"{EXPERIMENT}: got {name} {one_line(repr(data.get(name)), 60)}, "
                f"expected a {kind.__name__}: not an experiment of kalmanac"
            )
    for name, least in COUNTS.items():
        expect_whole(f"{EXPERIMENT}: {name}", data.get(name), least)
    if len(data) > MOST_SETTINGS:
        raise ValueError(f"{EXPERIMENT}: got {len(data):,} settings, expected fewer")


def _once_each(runs: list[Run], notices: list[str]) -> list[Run]:
    """Keep, of two runs of the same experiment and seed, the one that came further."""
    kept: dict[str, Run] = {}
    for run in runs:
        key = json.dumps(run.experiment, sort_keys=True)
        other = kept.get(key)
        if other is not None:
            run, other = sorted((run, other), key=lambda r: (-r.training_steps[-1], r.name))
            notices.append(f"{other.name}: the same experiment and seed as {run.name}, left out")
        kept[key] = run
    return sorted(kept.values(), key=lambda run: run.name)


def _versions(runs: list[Run]) -> list[str]:
    counts = Counter(run.version for run in runs)
    if len(counts) < 2:
        return []
    versions = one_line(", ".join(f"{version} ({n} runs)" for version, n in sorted(counts.items())))
    return [f"runs of {len(counts)} versions of kalmanac stand side by side: {versions}"]


def _same_settings(runs: list[Run], notices: list[str]) -> list[Run]:
    """Say what older runs leave unsaid, where it is known; name what stays unsaid."""
    filled = [as_it_was(run.experiment) for run in runs]
    for env in dict.fromkeys(data["env"] for data in filled):
        here = [data for data in filled if data["env"] == env]
        unsaid: dict[int, list[str]] = {}
        for name in dict.fromkeys(name for data in here for name in data):
            if silent := sum(name not in data for data in here):
                unsaid.setdefault(silent, []).append(one_line(name, 40))
        for silent, names in unsaid.items():
            notices.append(
                f"{one_line(env, 60)}: {silent} of {len(here)} runs do not say {_some(names)} "
                "(another version wrote them), and are kept apart from those that do"
            )
    return [
        Run(**{**vars(run), "experiment": data}) for run, data in zip(runs, filled, strict=True)
    ]


def _some(names: Sequence[str]) -> str:
    """The first few, and how many more there are."""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"{', '.join(names[:MOST_NAMES])}{more}"
