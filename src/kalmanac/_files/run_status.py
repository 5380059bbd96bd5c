"""How runs stand: how far each has come, whether a process is at it, and what can go on.

Needs neither torch nor the experiments' own code: a thousand runs are read in a second or two.
"""

from dataclasses import dataclass
from pathlib import Path

from kalmanac._files.json import expect_whole
from kalmanac._files.lock import FolderLock
from kalmanac._files.run_reader import (
    EXPERIMENT,
    LOCK,
    METRICS,
    SUMMARY,
    TIMING,
    find_run_folders,
    read_record,
    resumable,
    why_unreadable,
)
from kalmanac._settings import agent_of

ORDER = ("running", "killed", "interrupted", "failed", "diverged", "finished", "not begun")
SILENCE = 600.0  # seconds: a run that has written nothing for longer than this,
ROWS = 10  # and for longer than so many rows take, is not running any more


@dataclass(frozen=True)
class RunStatus:
    """One run as it stands."""

    path: Path
    task: str
    agent: str
    seed: int
    status: str  # one of ORDER
    step: int
    total: int
    last: float | None  # normalized return of the last evaluation
    best: float | None
    speed: float | None  # environment steps a second
    resume: int | None  # the step that it could go on from

    @property
    def seconds_left(self) -> float | None:
        """At the present speed; None where nothing runs."""
        if self.status != "running" or not self.speed:
            return None
        return max(self.total - self.step, 0) / self.speed


def find_runs(folder: Path, *, now: float) -> tuple[list[RunStatus], list[tuple[Path, str]]]:
    """Every run at or below `folder`, those that run first, and those that cannot be read."""
    runs: list[RunStatus] = []
    broken: list[tuple[Path, str]] = []
    for path in find_run_folders(folder):
        try:
            runs.append(read_status(path, now=now))
        except Exception as error:  # whatever it is, it is this run's alone
            broken.append((path, why_unreadable(error, path)))
    runs.sort(key=lambda run: (ORDER.index(run.status), run.task, run.agent, run.seed, run.path))
    return runs, broken


def read_status(path: Path, *, now: float) -> RunStatus:
    """One run; an error where its files are not a run's."""
    experiment, summary, timing = read_record(path)
    for name in ("seed", "log_every", "total_steps"):
        expect_whole(f"{EXPERIMENT}: {name}", experiment[name])
    place = f"eval/{experiment['evaluations'][0]}/normalized"
    status = summary.get("status", "not begun")
    if status not in ORDER:
        raise ValueError(f"status: got {status!r}, expected one of {', '.join(ORDER)}")
    speed = timing.get("time/fps")
    row = experiment["log_every"] / speed if speed else 0.0  # seconds
    if status == "running" and not is_written(path, row, now=now):
        status = "killed"
    return RunStatus(
        path=path,
        task=str(experiment["env"]),
        agent=agent_of(str(experiment["encoder"]), bool(experiment["privileged"])),
        seed=experiment["seed"],
        status=status,
        step=max(summary.get("step", 0), int(timing.get("step") or 0)),
        total=experiment["total_steps"],
        last=(summary.get("last") or {}).get(place),
        best=(summary.get("best") or {}).get(place),
        speed=speed,
        resume=None if status in ("running", "finished") else resumable(path),
    )


def is_written(path: Path, row: float, *, now: float) -> bool:
    """Whether a process still works on the run.

    The lock says so where it was taken on this machine. Elsewhere, a run lives that has written
    something within `SILENCE`, or within the time of a few rows.
    """
    lock = FolderLock(path / LOCK)
    owner = lock.owner()
    if owner is not None and owner.here:
        return lock.held()
    return now - last_sign(path) <= max(SILENCE, ROWS * row)


def last_sign(path: Path) -> float:
    """When the run last wrote anything, in seconds since 1970."""
    files = (path / name for name in (METRICS, TIMING, SUMMARY, EXPERIMENT))
    return max(file.stat().st_mtime for file in files if file.is_file())
