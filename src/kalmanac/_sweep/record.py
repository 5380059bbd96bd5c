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
    """Reads and writes it. Only the process that drives a sweep writes."""

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
            its = planned.experiment.hash
            files = tuple(file for one in planned.afterwards for file in one.files())
            before = entries.get(its, Entry(planned.folder, (), ()))
            entries[its] = Entry(
                planned.folder,
                tuple(dict.fromkeys((*before.suites, *planned.suites))),
                tuple(dict.fromkeys((*before.evaluations, *files))),
            )
        told = {
            its: {
                "folder": entry.folder.relative_to(self.root).as_posix(),
                "suites": entry.suites,
                "evaluations": entry.evaluations,
            }
            for its, entry in entries.items()
        }
        write_whole(self.folder / PLAN, (json.dumps(told, indent=1) + "\n").encode())

    def planned(self) -> dict[str, Entry]:
        """All runs that were planned, by hash; empty where no sweep has been here."""
        notices: list[str] = []
        found = self.read_plan(notices)
        if notices:
            raise ValueError(f"{self.folder / PLAN}: {notices[0]}, expected a plan of a sweep")
        return found

    def read_plan(self, notices: list[str]) -> dict[str, Entry]:
        """The same, for readers: entries that are none are left out and named in `notices`."""
        file = self.folder / PLAN
        found = {}
        told = read_object(file, "one of `kalmanac sweep`") if file.is_file() else {}
        for its, one in told.items():
            try:
                found[its] = self._entry(one)
            except (ValueError, TypeError, KeyError) as error:
                why = one_line(f"{type(error).__name__}: {error}")
                notices.append(f"planned run {one_line(its, 40)}: left out: {why}")
        return found

    def fail(self, its: str, failure: Failure) -> None:
        """Keep the reason, until the run goes on."""
        text = json.dumps(failure._asdict(), indent=1) + "\n"
        write_whole(self._file(its), text.encode())

    def forget(self, its: str) -> None:
        """The run goes on, or is done."""
        self._file(its).unlink(missing_ok=True)

    def failures(self) -> dict[str, Failure]:
        """By hash; what is no record of a failure counts as one without a reason."""
        found = {}
        for file in sorted((self.folder / FAILED).glob("*.json")):
            try:
                told = read_object(file)
                found[file.stem] = Failure(one_line(told["error"]), str(told["details"]))
            except (OSError, ValueError, KeyError) as error:
                found[file.stem] = Failure(
                    f"for a reason that cannot be read: {one_line(error)}", ""
                )
        return found

    def _entry(self, one: Any) -> Entry:
        """As the plan has it; its folder is one below the sweep's."""
        for name in ("suites", "evaluations"):
            if not all(isinstance(word, str) for word in one[name]):
                raise TypeError(f"{name}: got {one[name]}, expected words")
        return Entry(
            self.root / _inside(one["folder"]),
            tuple(one["suites"]),
            tuple(map(_inside, one["evaluations"])),
        )

    def _file(self, its: str) -> Path:
        return self.folder / FAILED / f"{its}.json"


def _inside(name: str) -> str:
    """A path that stays below the folder that it is added to."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"got {name}, expected a place below the sweep's folder")
    return name
