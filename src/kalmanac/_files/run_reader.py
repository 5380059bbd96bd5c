"""Reading a run folder, the only place where training and reporting meet, and its format.

    experiment.json     what was run: every setting, enough to run it again
    experiment.hmac     who ran it: a signature over experiment.json's bytes (`kalmanac._files`), or
                        two, of the old ones and the new, while these are replaced
    metrics.jsonl       rows {"step": …, key: number or null}; same seed, same bytes
    timing.jsonl        rows like these for what a clock or the machine decides
    summary.json        how far the run came, the best and the last evaluation
    provenance.json     when the run began, with which versions and threads, as plain words
    best.safetensors    the model at the best evaluation
    last.safetensors    the model at the last evaluation, or where the run ended
    events/             the same numbers for TensorBoard, unless switched off
    checkpoints/        step-000000012000.safetensors: all of the run after so many steps; the last
                        two of them, and the replay's segments; of a finished run the last
                        one, from which it can be extended, unless it was not to be kept
    failure.txt         what was raised, in full, where something outside stopped the run
    lock.json           which process writes here, while one does, and holds the system's lock on it
    evaluations/        what a trained agent did afterwards, for reports to draw:
      heatmap.json        Best Arm over a grid of bandits (`heatmap_file`; paper, figure 5)
      *.npz               episodes (`kalmanac._files.episode_file`), as `kalmanac watch RUN` leaves
                          them (paper, figures 3 and 6), with their pictures (PNG, GIF)

Anybody may have written what is read here, with any version, and may be writing still: what is no
run's is one error in one line, and what a killed process left half-written is passed over. Nothing
here needs torch or TensorBoard. `kalmanac._files.run_folder` writes.
"""

import math
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from kalmanac._files.durable import refuse_link, signed
from kalmanac._files.json import (
    expect_numbers,
    expect_whole,
    lines_of,
    object_in,
    parse_row,
    read_bounded,
    read_object,
)
from kalmanac._messages import one_line

EXPERIMENT, SUMMARY, PROVENANCE = "experiment.json", "summary.json", "provenance.json"
SIGNATURE = "experiment.hmac"
METRICS, TIMING = LOGS = "metrics.jsonl", "timing.jsonl"
EVENTS, CHECKPOINTS, LOCK = "events", "checkpoints", "lock.json"
FAILURE = "failure.txt"
EVALUATIONS = "evaluations"
HEATMAP = f"{EVALUATIONS}/heatmap.json"
MODELS = {"best": "best.safetensors", "last": "last.safetensors"}
WRITTEN = (
    EXPERIMENT, METRICS, TIMING, SUMMARY, PROVENANCE, *MODELS.values(), EVENTS, CHECKPOINTS,
)  # fmt: skip
CHECKPOINT = re.compile(r"step-[0-9]{12,18}\.safetensors|replay-[0-9]{6,18}\.segment")

Row = dict[str, float | int | None]
LONGEST_ROW = 65_536  # bytes, of timing.jsonl


class RunRecord(NamedTuple):
    """What a run folder says of its run, as JSON has it."""

    experiment: dict[str, Any]
    summary: dict[str, Any]  # empty where it has not begun
    timing: Row  # the last row; empty where there is none


def read_record(path: str | os.PathLike[str]) -> RunRecord:
    """All of a run but its metrics; an error where the files are not a run's, or lead elsewhere."""
    refuse_links(path)
    return RunRecord(read_experiment(path), read_summary(path), read_last_timing(path) or {})


def find_run_folders(
    root: Path, *, leave_out: Path | None = None,
    unread: Callable[[OSError], None] | None = None, other: Callable[[Path], None] | None = None,
) -> Iterator[Path]:  # fmt: skip
    """Folders at or below `root` that hold any of a run's files; none inside a run, none hidden.

    Args:
        leave_out: a folder that is not looked into, such as a report's own.
        unread: called with the error for each folder that cannot be read.
        other: called with each file that belongs to no run.
    """
    for place, inside, files in os.walk(root, onerror=unread):
        path = Path(place)
        inside[:] = sorted(name for name in inside if not name.startswith("."))
        if leave_out is not None and path.resolve() == leave_out.resolve():
            inside.clear()
        elif parts_of_run(path):
            inside.clear()
            yield path
        elif other is not None:
            for name in files:
                other(path / name)


def why_unreadable(error: Exception, path: Path) -> str:
    """In one line, why the run in `path` cannot be read."""
    if isinstance(error, OSError | ValueError):
        return one_line(str(error).replace(f"{path}{os.sep}", ""))
    what = f"no {error}" if isinstance(error, KeyError) else f"{type(error).__name__}: {error}"
    return one_line(f"not the files of a run ({what})")


def is_run(path: str | os.PathLike[str]) -> bool:
    """Whether a folder holds a run."""
    return os.path.isfile(Path(path, EXPERIMENT))  # noqa: PTH113 (False where it is out of reach)


def parts_of_run(path: str | os.PathLike[str]) -> list[str]:
    """Which names of a run's own files are taken in a folder, by links and folders too."""
    folders = (EVENTS, CHECKPOINTS)
    return [name for name in WRITTEN if name not in folders and os.path.lexists(Path(path, name))]


def refuse_no_run(path: str | os.PathLike[str]) -> None:
    """Raise FileNotFoundError in one line where `path` is no run folder."""
    if not is_run(path):
        raise FileNotFoundError(f"folder: got {os.fspath(path)}, expected one with {EXPERIMENT}")


def read_experiment(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What was run. FileNotFoundError in one line where `path` is no run folder."""
    return parse_experiment(path, experiment_bytes(path))


def experiment_bytes(path: str | os.PathLike[str]) -> bytes:
    """What was run, as it stands in the file: what a signature is about."""
    refuse_no_run(path)
    return read_bounded(Path(path) / EXPERIMENT, "an experiment")


def parse_experiment(path: str | os.PathLike[str], content: bytes) -> dict[str, Any]:
    """The bytes of the run folder's experiment as data."""
    return object_in(Path(path) / EXPERIMENT, content, "an experiment")


def refuse_links(path: str | os.PathLike[str]) -> None:
    """Raise LinkError where a name that a run writes or reads leads out of its folder.

    The folder itself may be a link: that is how its user calls it.
    """
    root = Path(path)
    for name in (*WRITTEN, SIGNATURE, FAILURE, LOCK, EVALUATIONS):
        refuse_link(root / name)
    for folder in (EVENTS, CHECKPOINTS, EVALUATIONS):
        for file in (root / folder).glob("*"):
            refuse_link(file)


def is_signed(path: str | os.PathLike[str], content: bytes) -> bool:
    """Whether one of the folder's signatures, two at most, is this user's over these bytes."""
    file = Path(path) / SIGNATURE
    if not file.is_file():
        return False
    with file.open("rb") as opened:
        lines = opened.read(256).decode("ascii", "replace").splitlines()
    return any(signed(content, line.strip()) for line in lines[:2])


def read_summary(path: str | os.PathLike[str]) -> dict[str, Any]:
    """How far the run came; empty where it has not begun."""
    file = Path(path) / SUMMARY
    summary = read_object(file) if file.is_file() else {}
    if not isinstance(status := summary.get("status", ""), str):
        raise ValueError(f"{file}: status: got a {type(status).__name__}, expected a word")
    expect_whole(f"{file}: step", summary.get("step", 0))
    for name in ("best", "last"):
        values = summary.get(name) or {}
        if not isinstance(values, dict):
            kind = type(values).__name__
            raise ValueError(f"{file}: {name}: got a {kind}, expected an evaluation")
        expect_numbers(values, f"{file}: {name}: ")
    return summary


def checkpoint_file(path: str | os.PathLike[str], step: int) -> Path:
    """Where a run's checkpoint after `step` steps lies."""
    return Path(path) / CHECKPOINTS / f"step-{step:012d}.safetensors"


def checkpoint_steps(path: str | os.PathLike[str]) -> list[int]:
    """The steps of a run's checkpoints, oldest first. Only names are looked at."""
    names = (file.name for file in (Path(path) / CHECKPOINTS).glob("step-*.safetensors"))
    return sorted(int(name[5:-12]) for name in names if CHECKPOINT.fullmatch(name))


def resumable(path: str | os.PathLike[str]) -> int | None:
    """The step that `kalmanac resume` would go on from; None where there is nothing to go on with.

    Reads names and the summary only: whether the checkpoint is whole shows when it is read.
    """
    steps = checkpoint_steps(path) if is_run(path) else []
    return steps[-1] if steps and read_summary(path).get("status") != "finished" else None


def read_provenance(path: str | os.PathLike[str]) -> dict[str, Any]:
    """When and with what it was run; empty for a run that an older version left."""
    file = Path(path) / PROVENANCE
    return read_object(file) if file.is_file() else {}


def read_metrics(path: str | os.PathLike[str]) -> list[Row]:
    """All rows of metrics.jsonl, in order."""
    return _read_rows(Path(path) / METRICS)


def read_some_metrics(path: str | os.PathLike[str], most: int) -> tuple[list[Row], bool]:
    """Rows of metrics.jsonl in order, and whether the file ends in mid-line.

    All that hold an evaluation, and of the others, most of a file, every n-th alone where they are
    more than `most`; the rest is passed over unread.
    """
    file = Path(path) / METRICS
    if not file.is_file():
        return [], False
    evaluations: list[tuple[int, bytes]] = []
    others: list[tuple[int, bytes]] = []
    rest, seen, every = False, 0, 1
    for number, line in lines_of(file):
        if rest := not line.endswith(b"\n"):
            continue
        if b'"eval/' in line:
            evaluations.append((number, line))
            continue
        if seen % every == 0:
            others.append((number, line))
        seen += 1
        if len(others) > most:
            others, every = others[::2], 2 * every
    return [parse_row(file, *numbered) for numbered in sorted(evaluations + others)], rest


def read_timing(path: str | os.PathLike[str]) -> list[Row]:
    """All rows of timing.jsonl, in order."""
    return _read_rows(Path(path) / TIMING)


def read_last_timing(path: str | os.PathLike[str]) -> Row | None:
    """The last whole row of timing.jsonl, without the others; None where there is none."""
    file = Path(path) / TIMING
    if not file.is_file():
        return None
    with file.open("rb") as opened:
        opened.seek(max(0, file.stat().st_size - LONGEST_ROW))
        *lines, _ = opened.read(LONGEST_ROW).split(b"\n")
    return parse_row(file, None, lines[-1]) if lines else None


def series(rows: Iterable[Row], key: str) -> tuple[list[int], list[float]]:
    """Steps and values of one key; a null, which stands for a number that is not finite, is NaN."""
    points = [(row["step"], row[key]) for row in rows if key in row]
    steps = [int(step) for step, _ in points if step is not None]
    return steps, [_number(value) for _, value in points]


def _read_rows(file: Path) -> list[Row]:
    """A last line without its end is what a killed run leaves: it is not read."""
    if not file.is_file():
        return []
    return [parse_row(file, n, line) for n, line in lines_of(file) if line.endswith(b"\n")]


def _number(value: float | None) -> float:
    return math.nan if value is None or not math.isfinite(value) else float(value)
