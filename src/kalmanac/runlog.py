"""The run folder: the only place where training and reporting meet. This room owns its format.

    experiment.json     what was run: every setting, enough to run it again
    experiment.hmac     who ran it: a signature over experiment.json's bytes (`kalmanac.disk`), or
                        two, of the old ones and the new, while these are replaced
    metrics.jsonl       rows {"step": …, key: number or null}; same seed, same bytes
    timing.jsonl        rows like these for what a clock or the machine decides
    summary.json        how far the run came, the best and the last evaluation
    provenance.json     when the run began, and with which versions, as plain words
    best.safetensors    the model at the best evaluation
    last.safetensors    the model at the last evaluation, or where the run ended
    events/             the same numbers for TensorBoard, unless switched off
    checkpoints/        step-000000012000.safetensors: all of the run after so many steps; the last
                        two of them, and the replay's segments; of a finished run the last
                        one, from which it can be extended, unless it was not to be kept
    failure.txt         what was raised, in full, where something outside stopped the run
    lock.json           which process writes here, while one does, and holds the system's lock on it
    evaluations/        what a trained agent did afterwards, for reports to draw:
      heatmap.json        Best Arm over a grid of bandits (`kalmanac.heatmap_file`; paper, figure 5)
      *.npz               episodes (`kalmanac.episode_file`), as `kalmanac watch RUN --out
                          RUN/evaluations` leaves them (paper, figures 3 and 6)

Reading needs neither torch nor TensorBoard.
"""

import importlib.metadata
import importlib.util
import json
import math
import os
import platform
import re
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal

from kalmanac._version import __version__
from kalmanac.disk import (
    FolderLock,
    cut,
    make_folder,
    open_rows,
    refuse_link,
    sign,
    signed,
    write_whole,
)
from kalmanac.json_file import (
    expect_numbers,
    expect_whole,
    lines_of,
    object_in,
    parse_row,
    read_bounded,
    read_object,
)
from kalmanac.older_runs import EARLIER

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

# what a run may write, and so remove: names of checkpoints, of evaluations, of unfinished files
_CHECKPOINT = re.compile(r"step-[0-9]{12,18}\.safetensors|replay-[0-9]{6,18}\.segment")
_PLAYED = re.compile(r"example-.*\.npz|adversarial\.npz|.*-seed[0-9]+\.npz")
_PARTIAL = re.compile(
    rf"\.({'|'.join(map(re.escape, (*WRITTEN, SIGNATURE, FAILURE, LOCK)))}|{_CHECKPOINT.pattern})"
    r"\.[0-9]+\.partial"
)

Row = dict[str, float | int | None]
Overwrite = bool | Literal["unfinished"]
LONGEST_ROW = 65_536  # bytes, of timing.jsonl


class FolderTakenError(ValueError):
    """The folder holds a run already, or files that a run would write over."""


class RunFolder:
    """Writes one run. Rows leave the process at once; whole files are replaced in one step.

    A folder that may not be written to is refused at once, but nothing on the disk changes before
    the `with` block begins.

    Args:
        path: the folder; made where it is missing. While it is written, it holds a lock.
        experiment: what is run, as plain data.
        overwrite: start over where the folder holds this very experiment; "unfinished": unless it
            is finished. Another one's folder is refused in any case, and so is one that is no run
            but holds files named as ours.
        events: also write TensorBoard events (imported with the first row).
        marks: go on with the run in this folder, cut back to where `marks` was called.
        lock: of the folder, taken already, so that what was read there is still so; it is
            released by `close`. None takes one where the `with` block begins.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        experiment: Mapping[str, Any],
        *,
        overwrite: Overwrite = False,
        events: bool = True,
        marks: Mapping[str, Any] | None = None,
        lock: FolderLock | None = None,
    ) -> None:
        self.path = Path(path).absolute()  # an environment may change the working directory
        self._experiment, self._overwrite, self._marks = experiment, overwrite, marks
        self._lock = FolderLock(self.path / LOCK) if lock is None else lock
        if marks is None:
            refuse_taken(self.path, experiment, overwrite=overwrite)
        if events and importlib.util.find_spec("tensorboard") is None:
            raise ModuleNotFoundError(
                "events: tensorboard is not installed; install it, or switch events off"
            )
        self._writer: Any = None
        self._events = events
        self._files: dict[str, IO[str]] = {}
        self._summary: dict[str, Any] = {}

    def log(self, step: int, values: Mapping[str, float | int]) -> None:
        """One row of metrics.jsonl: nothing in it may depend on a clock."""
        self._row(METRICS, step, values)

    def log_time(self, step: int, values: Mapping[str, float | int]) -> None:
        """One row of timing.jsonl."""
        self._row(TIMING, step, values)

    def summarize(self, **values: Any) -> None:
        """Change values of summary.json; the others stay."""
        self._summary.update(values)
        self._write_json(SUMMARY, self._summary)

    def marks(self, step: int) -> dict[str, Any]:
        """How much of the logs is on the disk for good, and the summary: what `marks` takes."""
        for file in self._files.values():
            os.fsync(file.fileno())  # rows are flushed as they are written
        lengths = {name: os.fstat(file.fileno()).st_size for name, file in self._files.items()}
        return {"step": step, "lengths": lengths, "summary": dict(self._summary)}

    def note_resumed(self, how: Mapping[str, Any]) -> None:
        """One start more in summary.json's list of them."""
        self.summarize(resumed=[*self._summary.get("resumed", []), dict(how)])

    def note_failure(self, text: str) -> None:
        """Keep what was raised, until the run goes on or starts over; in a folder of ours only."""
        if self._lock.mine:
            write_whole(self.path / FAILURE, text.encode(errors="replace"))

    def forget_checkpoints(self) -> None:
        """A run that starts over, or is not to be extended, needs none."""
        refuse_link(self.path / CHECKPOINTS)
        for file in (self.path / CHECKPOINTS).glob("*"):
            if _CHECKPOINT.fullmatch(file.name):
                file.unlink()
        if (self.path / CHECKPOINTS).is_dir() and not any((self.path / CHECKPOINTS).iterdir()):
            (self.path / CHECKPOINTS).rmdir()

    def close(self) -> None:
        """Close all files; writing on is an error."""
        with ExitStack() as each:  # on a full disk each of them may fail, and all are tried
            each.callback(self._lock.release)
            for file in self._files.values():
                each.callback(file.close)
            if self._writer is not None:
                each.callback(self._writer.close)

    def __enter__(self) -> "RunFolder":
        if self._marks is None:
            refuse_taken(self.path, self._experiment, overwrite=self._overwrite)  # time has passed
        make_folder(self.path)
        self._lock.take()
        try:
            refuse_links(self.path)
            if self._marks is None:  # nor may anybody have come and gone before the lock
                _refuse_other(self.path, self._experiment, overwrite=self._overwrite)
            self._sweep()
            self._begin() if self._marks is None else self._go_on(self._marks)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _sweep(self) -> None:
        """Remove what a process left that was killed while it wrote a file, or failed."""
        (self.path / FAILURE).unlink(missing_ok=True)
        for folder in (self.path, self.path / CHECKPOINTS):
            for file in folder.glob(".*.partial"):
                if _PARTIAL.fullmatch(file.name):
                    file.unlink()

    def _begin(self) -> None:
        self._clear()
        self._write_json(EXPERIMENT, self._experiment)  # first: it makes the folder a run's
        sign_experiment(self.path, _json_bytes(self._experiment))
        self._write_json(PROVENANCE, provenance())
        for name in LOGS:
            self._files[name] = open_rows(self.path / name)
        self.summarize(status="running", step=0)

    def _go_on(self, marks: Mapping[str, Any]) -> None:
        expect_marks(marks)
        for name in LOGS:
            cut(self.path / name, marks["lengths"][name])
            self._files[name] = open_rows(self.path / name)
        self._summary = dict(marks["summary"])
        self.summarize(status="running")
        if read_experiment(self.path).get("total_steps") != self._experiment.get("total_steps"):
            # after the summary: no folder says that it has finished what it has not
            self._forget_evaluations()
            self._change_experiment()

    def _change_experiment(self) -> None:
        """Replace experiment.json; whenever the process is killed, what was signed still is."""
        before, after = experiment_bytes(self.path), _json_bytes(self._experiment)
        if is_signed(self.path, before):
            sign_experiment(self.path, before, after)
        self._write_json(EXPERIMENT, self._experiment)
        sign_experiment(self.path, after)

    def _row(self, name: str, step: int, values: Mapping[str, float | int]) -> None:
        row = {"step": step} | {key: _finite(key, value) for key, value in values.items()}
        self._files[name].write(json.dumps(row, allow_nan=False) + "\n")
        self._files[name].flush()
        if self._events:
            if self._writer is None:
                from torch.utils.tensorboard import SummaryWriter

                # TensorBoard hides what an earlier start wrote from this step on
                again = None if self._marks is None else int(self._marks["step"]) + 1
                self._writer = SummaryWriter(log_dir=str(self.path / EVENTS), purge_step=again)
            for key, value in values.items():
                self._writer.add_scalar(key, value, step)

    def _write_json(self, name: str, content: Mapping[str, Any]) -> None:
        write_whole(self.path / name, _json_bytes(content))

    def _clear(self) -> None:
        """What an earlier start left; other files stay. Of the same experiment: `refuse_taken`."""
        for name in (METRICS, TIMING, SUMMARY, *MODELS.values()):
            (self.path / name).unlink(missing_ok=True)
        for file in (self.path / EVENTS).glob("events.out.tfevents.*"):
            file.unlink()
        self.forget_checkpoints()
        self._forget_evaluations()

    def _forget_evaluations(self) -> None:
        """Those of an agent that is no more, or is not the last one any more."""
        (self.path / HEATMAP).unlink(missing_ok=True)
        for file in (self.path / EVALUATIONS).glob("*.npz"):
            if _PLAYED.fullmatch(file.name):
                file.unlink()


def provenance() -> dict[str, str]:
    """When, and with which versions; nothing in it decides what a run computes."""
    libraries = {}
    for name in ("torch", "numpy", "gymnasium"):
        with suppress(importlib.metadata.PackageNotFoundError):
            libraries[name] = importlib.metadata.version(name)
    return {
        "kalmanac": __version__,
        "python": platform.python_version(),
        **libraries,
        "system": f"{platform.system()} {platform.machine()}",
        "began": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def refuse_taken(path: Path, experiment: Mapping[str, Any], *, overwrite: Overwrite) -> None:
    """Raise `FolderTakenError` unless a run of `experiment` may be written to `path`."""
    _refuse_other(path, experiment, overwrite=overwrite)
    refuse_in_use(path)


def _refuse_other(path: Path, experiment: Mapping[str, Any], *, overwrite: Overwrite) -> None:
    """The same, whoever writes there."""
    if path.exists() and not path.is_dir():
        raise FolderTakenError(f"folder: got {path}, which is a file, expected a folder")
    refuse_links(path)
    if not is_run(path):
        if ours := [name for name in WRITTEN if (path / name).exists()]:
            raise FolderTakenError(
                f"folder: got {path}, which is no run but holds {', '.join(ours)}, "
                "expected a new folder"
            )
        return
    if {**EARLIER, **read_experiment(path)} != json.loads(json.dumps({**EARLIER, **experiment})):
        raise FolderTakenError(
            f"folder: got {path}, which holds another experiment, expected a new folder"
        )
    found = read_summary(path)
    if not overwrite or (overwrite == "unfinished" and found.get("status") == "finished"):
        step = resumable(path)
        again = "" if step is None else f", `kalmanac resume` to go on from step {step:,}"
        raise FolderTakenError(
            f"folder: got {path}, which holds this experiment already "
            f"({found.get('status', 'unknown')}, step {found.get('step', 0):,}), "
            f"expected a new folder{again}, or overwrite to start over"
        )


def refuse_links(path: str | os.PathLike[str]) -> None:
    """LinkError where a name that a run writes or reads leads out of its folder.

    The folder itself may be a link: that is how its user calls it.
    """
    root = Path(path)
    for name in (*WRITTEN, SIGNATURE, FAILURE, LOCK, EVALUATIONS):
        refuse_link(root / name)
    for folder in (EVENTS, CHECKPOINTS, EVALUATIONS):
        for file in (root / folder).glob("*"):
            refuse_link(file)


def expect_marks(marks: Any) -> None:
    """ValueError unless `marks` is as `RunFolder.marks` gives it; no other file is ever cut."""
    lengths = marks.get("lengths") if isinstance(marks, Mapping) else None
    if not isinstance(lengths, Mapping) or set(lengths) != set(LOGS):
        raise ValueError(f"lengths: got {str(lengths)[:100]}, expected those of {', '.join(LOGS)}")
    for name, number in {**lengths, "step": marks.get("step")}.items():
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise ValueError(f"{name}: got {str(number)[:100]}, expected a number of at least 0")
    if not isinstance(marks.get("summary"), Mapping):
        raise ValueError("summary: got none, expected names with values")


def refuse_in_use(path: Path) -> None:
    """Raise `FolderInUseError` where a living process writes in the run folder `path`."""
    FolderLock(path / LOCK).refuse()


def is_run(path: str | os.PathLike[str]) -> bool:
    """Whether a folder holds a run."""
    return os.path.isfile(Path(path, EXPERIMENT))  # noqa: PTH113 (False where it is out of reach)


def parts_of_run(path: str | os.PathLike[str]) -> list[str]:
    """Which names of a run's own files are taken in a folder, by links and folders too."""
    folders = (EVENTS, CHECKPOINTS)
    return [name for name in WRITTEN if name not in folders and os.path.lexists(Path(path, name))]


def refuse_no_run(path: str | os.PathLike[str]) -> None:
    """FileNotFoundError in one line where `path` is no run folder."""
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


def sign_experiment(path: str | os.PathLike[str], *contents: bytes) -> None:
    """Leave this user's signature over the experiment's bytes, where there is a secret for it.

    It says that this user wants to run what they name. While other bytes replace them, there are
    two signatures, a line each.
    """
    signatures = [signature for content in contents if (signature := sign(content)) is not None]
    if signatures:
        write_whole(Path(path) / SIGNATURE, "".join(f"{x}\n" for x in signatures).encode())


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
    found = read_object(file) if file.is_file() else {}
    if not isinstance(status := found.get("status", ""), str):
        raise ValueError(f"{file}: status: got a {type(status).__name__}, expected a word")
    expect_whole(f"{file}: step", found.get("step", 0))
    for name in ("best", "last"):
        values = found.get(name) or {}
        if not isinstance(values, dict):
            told = type(values).__name__
            raise ValueError(f"{file}: {name}: got a {told}, expected an evaluation")
        expect_numbers(values, f"{file}: {name}: ")
    return found


def checkpoint_file(path: str | os.PathLike[str], step: int) -> Path:
    """Where a run's checkpoint after `step` steps lies."""
    return Path(path) / CHECKPOINTS / f"step-{step:012d}.safetensors"


def checkpoint_steps(path: str | os.PathLike[str]) -> list[int]:
    """The steps of a run's checkpoints, oldest first. Only names are looked at."""
    names = (file.name for file in (Path(path) / CHECKPOINTS).glob("step-*.safetensors"))
    return sorted(int(name[5:-12]) for name in names if _CHECKPOINT.fullmatch(name))


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


def read_evaluations(path: str | os.PathLike[str]) -> tuple[list[Row], bool]:
    """The rows of metrics.jsonl that hold an evaluation, and whether the file ends in mid-line.

    Lines without an evaluation are most of a file; they are passed over unread.
    """
    file = Path(path) / METRICS
    if not file.is_file():
        return [], False
    rows, rest = [], False
    for number, line in lines_of(file):
        rest = not line.endswith(b"\n")
        if not rest and b'"eval/' in line:
            rows.append(parse_row(file, number, line))
    return rows, rest


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
    found = [(row["step"], row[key]) for row in rows if key in row]
    steps = [int(step) for step, _ in found if step is not None]
    return steps, [_number(value) for _, value in found]


def duration(seconds: float) -> str:
    """A length of time in the largest unit that suits it."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    if seconds < 99.5 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 1e10 else f"{seconds / 3600:.0e} h"


def _json_bytes(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, indent=2) + "\n").encode()


def _read_rows(file: Path) -> list[Row]:
    """A last line without its end is what a killed run leaves: it is not read."""
    if not file.is_file():
        return []
    return [parse_row(file, n, line) for n, line in lines_of(file) if line.endswith(b"\n")]


def _number(value: float | None) -> float:
    return math.nan if value is None or not math.isfinite(value) else float(value)


def _finite(key: str, value: float | int) -> float | int | None:
    """JSON knows neither NaN nor infinity."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{key}: got {type(value).__name__}, expected a number")
    return value if math.isfinite(value) else None
