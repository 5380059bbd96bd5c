"""Writing a run folder: it is taken, begun or gone on with, written to, and let go."""

import importlib.metadata
import json
import os
import platform
import re
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal

from kalmanac._files.durable import cut, make_folder, open_rows, refuse_link, sign, write_whole
from kalmanac._files.lock import FolderLock
from kalmanac._files.metric_writers import EventWriter, json_row
from kalmanac._files.run_reader import (
    CHECKPOINT,
    CHECKPOINTS,
    EVALUATIONS,
    EVENTS,
    EXPERIMENT,
    FAILURE,
    HEATMAP,
    LOCK,
    LOGS,
    METRICS,
    MODELS,
    PROVENANCE,
    SIGNATURE,
    SUMMARY,
    TIMING,
    WRITTEN,
    experiment_bytes,
    is_run,
    is_signed,
    read_experiment,
    read_summary,
    refuse_links,
    resumable,
)
from kalmanac._settings import EARLIER, without_gone
from kalmanac._version import __version__

# what a run may write, and so remove: names of evaluations, of unfinished files
_PLAYED = re.compile(r"example-.*\.npz|adversarial\.npz|.*-seed[0-9]+\.npz")
_PARTIAL = re.compile(
    rf"\.({'|'.join(map(re.escape, (*WRITTEN, SIGNATURE, FAILURE, LOCK)))}|{CHECKPOINT.pattern})"
    r"\.[0-9]+\.partial"
)

Overwrite = bool | Literal["unfinished"]


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
        self._events = EventWriter(self.path / EVENTS) if events else None
        self._files: dict[str, IO[str]] = {}
        self._summary: dict[str, Any] = {}
        self.threads = 1  # of PyTorch, for the record

    def log(self, step: int, values: Mapping[str, float | int]) -> None:
        """Write one row of metrics.jsonl: nothing in it may depend on a clock."""
        self._row(METRICS, step, values)

    def log_time(self, step: int, values: Mapping[str, float | int]) -> None:
        """Write one row of timing.jsonl."""
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
        kept = {"summary": dict(self._summary), "threads": self.threads}
        return {"step": step, "lengths": lengths, **kept}

    def note_resumed(self, how: Mapping[str, Any]) -> None:
        """Add a start to summary.json's list of them."""
        self.summarize(resumed=[*self._summary.get("resumed", []), dict(how)])

    def note_failure(self, text: str) -> None:
        """Keep what was raised, until the run goes on or starts over; in a folder of ours only."""
        if self._lock.mine:
            write_whole(self.path / FAILURE, text.encode(errors="replace"))

    def forget_checkpoints(self) -> None:
        """Remove all: a run that starts over, or is not to be extended, needs none."""
        refuse_link(self.path / CHECKPOINTS)
        for file in (self.path / CHECKPOINTS).glob("*"):
            if CHECKPOINT.fullmatch(file.name):
                file.unlink()
        if (self.path / CHECKPOINTS).is_dir() and not any((self.path / CHECKPOINTS).iterdir()):
            (self.path / CHECKPOINTS).rmdir()

    def close(self) -> None:
        """Close all files; writing on is an error."""
        with ExitStack() as each:  # on a full disk each of them may fail, and all are tried
            each.callback(self._lock.release)
            for file in self._files.values():
                each.callback(file.close)
            if self._events is not None:
                each.callback(self._events.close)

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
        self._write_json(PROVENANCE, {**provenance(), "threads": str(self.threads)})
        for name in LOGS:
            self._files[name] = open_rows(self.path / name)
        self.summarize(status="running", step=0)

    def _go_on(self, marks: Mapping[str, Any]) -> None:
        expect_marks(marks)
        if self._events is not None:
            self._events.purge_step = marks["step"] + 1
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
        self._files[name].write(json_row(step, values))
        self._files[name].flush()
        if self._events is not None:
            self._events.write(step, values)

    def _write_json(self, name: str, content: Mapping[str, Any]) -> None:
        write_whole(self.path / name, _json_bytes(content))

    def _clear(self) -> None:
        """Remove what an earlier start of this very experiment left; other files stay."""
        for name in (METRICS, TIMING, SUMMARY, *MODELS.values()):
            (self.path / name).unlink(missing_ok=True)
        for file in (self.path / EVENTS).glob("events.out.tfevents.*"):
            file.unlink()
        self.forget_checkpoints()
        self._forget_evaluations()

    def _forget_evaluations(self) -> None:
        """Remove files of an agent that is no more, or is not the last one any more."""
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
    """Raise it for what the folder holds, whoever writes there."""
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
    there = {**EARLIER, **without_gone(read_experiment(path))}
    if there != json.loads(json.dumps({**EARLIER, **experiment})):
        raise FolderTakenError(
            f"folder: got {path}, which holds another experiment, expected a new folder"
        )
    summary = read_summary(path)
    if not overwrite or (overwrite == "unfinished" and summary.get("status") == "finished"):
        step = resumable(path)
        again = "" if step is None else f", `kalmanac resume` to go on from step {step:,}"
        raise FolderTakenError(
            f"folder: got {path}, which holds this experiment already "
            f"({summary.get('status', 'unknown')}, step {summary.get('step', 0):,}), "
            f"expected a new folder{again}, or overwrite to start over"
        )


def expect_marks(marks: Any) -> None:
    """Raise ValueError unless `marks` came from `RunFolder.marks`; no other file is ever cut."""
    lengths = marks.get("lengths") if isinstance(marks, Mapping) else None
    if not isinstance(lengths, Mapping) or set(lengths) != set(LOGS):
        raise ValueError(f"lengths: got {str(lengths)[:100]}, expected those of {', '.join(LOGS)}")
    for name, number in {**lengths, "step": marks.get("step")}.items():
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise ValueError(f"{name}: got {str(number)[:100]}, expected a number of at least 0")
    if not isinstance(marks.get("summary"), Mapping):
        raise ValueError("summary: got none, expected names with values")
    threads = marks.get("threads", 1)
    if type(threads) is not int or not 1 <= threads <= 1024:
        raise ValueError(f"threads: got {str(threads)[:100]}, expected 1 to 1024")


def refuse_in_use(path: Path) -> None:
    """Raise `FolderInUseError` where a living process writes in the run folder `path`."""
    FolderLock(path / LOCK).refuse()


def sign_experiment(path: str | os.PathLike[str], *contents: bytes) -> None:
    """Leave this user's signature over the experiment's bytes, where there is a secret for it.

    It says that this user wants to run what they name. While other bytes replace them, there are
    two signatures, a line each.
    """
    signatures = [signature for content in contents if (signature := sign(content)) is not None]
    if signatures:
        write_whole(Path(path) / SIGNATURE, "".join(f"{x}\n" for x in signatures).encode())


def _json_bytes(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, indent=2) + "\n").encode()
