"""What a sweep knows beside its runs: which were planned, and which failed, with the reason.

    FOLDER/.sweep/plan.json         hash → folder below FOLDER, suites
    FOLDER/.sweep/failed/HASH.json  error in one line, and details
    FOLDER/.sweep/worker-N.txt      what worker N printed
    FOLDER/.sweep/stop-ID           there while sweep ID is being stopped

How far a run has come stands in its own folder only. The leading dot keeps all of this out of
reports and of `kalmanac runs`.
"""

import json
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from kalmanac._files.durable import make_folder, refuse_link, write_whole
from kalmanac._files.json import read_object
from kalmanac._messages import one_line
from kalmanac._sweep.plan import Planned

RECORD, PLAN, FAILED = ".sweep", "plan.json", "failed"


class Entry(NamedTuple):
    """A planned run."""

    folder: Path
    suites: tuple[str, ...]
    evaluations: tuple[str, ...]  # files that it has to leave


class Failure(NamedTuple):
    """Why a run stopped."""

    error: str
    details: str


class Record:
    """Reads and writes the folder .sweep. Only the process that drives a sweep writes."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.folder = self.root / RECORD

    def plan(self, plan: Iterable[Planned]) -> None:
        """Add runs to those that were planned before."""
        for folder in (self.folder, self.folder / FAILED):
            refuse_link(folder)
            make_folder(folder)
        entries = self.planned()
        for planned in plan:
            run_hash = planned.experiment.hash
            files = tuple(
                file for evaluation in planned.post_training for file in evaluation.files()
            )
            before = entries.get(run_hash, Entry(planned.folder, (), ()))
            entries[run_hash] = Entry(
                planned.folder,
                tuple(dict.fromkeys((*before.suites, *planned.suites))),
                tuple(dict.fromkeys((*before.evaluations, *files))),
            )
        document = {
            run_hash: {
                "folder": entry.folder.relative_to(self.root).as_posix(),
                "suites": entry.suites,
                "evaluations": entry.evaluations,
            }
            for run_hash, entry in entries.items()
        }
        write_whole(self.folder / PLAN, (json.dumps(document, indent=1) + "\n").encode())

    def planned(self) -> dict[str, Entry]:
        """Return all runs that were planned, by hash; empty where no sweep has been here."""
        notices: list[str] = []
        entries = self.read_plan(notices)
        if notices:
            raise ValueError(f"{self.folder / PLAN}: {notices[0]}, expected a plan of a sweep")
        return entries

    def read_plan(self, notices: list[str]) -> dict[str, Entry]:
        """Read the plan; entries that cannot be read are left out and named in `notices`."""
        file = self.folder / PLAN
        entries = {}
        document = read_object(file, "one of `kalmanac sweep`") if file.is_file() else {}
        for run_hash, data in document.items():
            try:
                entries[run_hash] = self._entry(data)
            except (ValueError, TypeError, KeyError) as error:
                why = one_line(f"{type(error).__name__}: {error}")
                notices.append(f"planned run {one_line(run_hash, 40)}: left out: {why}")
        return entries

    def fail(self, run_hash: str, failure: Failure) -> None:
        """Keep the reason of a failure, until the run goes on."""
        text = json.dumps(failure._asdict(), indent=1) + "\n"
        write_whole(self._file(run_hash), text.encode())

    def forget(self, run_hash: str) -> None:
        """Forget a failure: the run goes on, or is done."""
        self._file(run_hash).unlink(missing_ok=True)

    def failures(self) -> dict[str, Failure]:
        """Read the failures by hash; a file that cannot be read is a failure without a reason."""
        failures = {}
        for file in sorted((self.folder / FAILED).glob("*.json")):
            try:
                document = read_object(file)
                reason = one_line(document["error"])
                failures[file.stem] = Failure(reason, str(document["details"]))
            except (OSError, ValueError, KeyError) as error:
                failures[file.stem] = Failure(
                    f"for a reason that cannot be read: {one_line(error)}", ""
                )
        return failures

    def _entry(self, data: Any) -> Entry:
        """Check an entry of the plan; its folder lies below the sweep's."""
        for name in ("suites", "evaluations"):
            if not all(isinstance(word, str) for word in data[name]):
                raise TypeError(f"{name}: got {data[name]}, expected words")
        return Entry(
            self.root / _inside(data["folder"]),
            tuple(data["suites"]),
            tuple(map(_inside, data["evaluations"])),
        )

    def _file(self, run_hash: str) -> Path:
        return self.folder / FAILED / f"{run_hash}.json"


def _inside(name: str) -> str:
    """Refuse a path that leaves the folder that it is added to."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"got {name}, expected a place below the sweep's folder")
    return name
