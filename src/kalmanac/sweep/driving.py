"""A sweep from its first work to its last: workers are kept busy, ends recorded, signals heard."""

import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path

from kalmanac.sweep.board import Board
from kalmanac.sweep.executor import Done, Executor
from kalmanac.sweep.plan import Work
from kalmanac.sweep.record import Failure, Record

WAIT = 0.5  # seconds between two looks at signals and at the runs' progress


def new_stop_file(record: Record) -> Path:
    """Of one sweep; no other one stops with it."""
    return record.folder / f"stop-{uuid.uuid4().hex[:12]}"


def drive(
    executor: Executor, works: Iterable[Work], record: Record, board: Board,
    stop: Callable[[], bool], stop_file: Path,
) -> Iterator[Done]:  # fmt: skip
    """Each work as it ends. Works are taken only when there is room for them.

    When `stop` says so, no more are taken, and those under way end with checkpoints. One run's
    failure is recorded and leaves the others alone.
    """
    waiting = iter(works)
    under_way: list[Work] = []
    try:
        with closing(executor):
            while True:
                while not stop() and len(under_way) < executor.slots:
                    work = next(waiting, None)
                    if work is None:
                        break
                    for planned in work:
                        record.forget(planned.experiment.hash)
                    executor.begin(work)
                    under_way.append(work)
                    board.began(work)
                if not under_way:
                    return
                if stop() and not stop_file.exists():
                    stop_file.touch()
                for done in executor.wait(WAIT):
                    under_way.remove(done.work)
                    for planned, ended in zip(done.work, done.ended, strict=True):
                        if ended.status == "failed":
                            failure = Failure(ended.error, ended.details)
                            record.fail(planned.experiment.hash, failure)
                    board.ended(done)
                    yield done
                board.look()
    finally:
        stop_file.unlink(missing_ok=True)
