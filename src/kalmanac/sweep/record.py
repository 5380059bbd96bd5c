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
from typing import NamedTuple

from kalmanac.disk import make_folder, refuse_link, write_whole
from kalmanac.sweep.plan import Planned

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
        file = self.folder / PLAN
        if not file.is_file():
            return {}
        try:
            told = json.loads(file.read_text(encoding="utf-8"))
            return {
                its: Entry(
                    self.root / _inside(one["folder"]),
                    tuple(one["suites"]),
                    tuple(map(_inside, one["evaluations"])),
                )
                for its, one in told.items()
            }
        except (ValueError, TypeError, KeyError, AttributeError):
            raise ValueError(f"{file}: got no plan of a sweep, expected one") from None

    def fail(self, its: str, failure: Failure) -> None:
        """Keep the reason, until the run goes on."""
        text = json.dumps(failure._asdict(), indent=1) + "\n"
        write_whole(self._file(its), text.encode())

    def forget(self, its: str) -> None:
        """The run goes on, or is done."""
        self._file(its).unlink(missing_ok=True)

    def failures(self) -> dict[str, Failure]:
        """By hash."""
        files = sorted((self.folder / FAILED).glob("*.json"))
        return {file.stem: Failure(**json.loads(file.read_text("utf-8"))) for file in files}

    def _file(self, its: str) -> Path:
        return self.folder / FAILED / f"{its}.json"


def _inside(name: str) -> str:
    """A path that stays below the folder that it is added to."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(name)
    return name
