"""A sweep from its first work to its last: workers are kept busy, ends recorded, signals heard."""

import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Literal

from kalmanac._lab.active_run import CHECKPOINT_EVERY
from kalmanac._ops.device import gpus, on_cpu, resolve
from kalmanac._sweep.board import Board
from kalmanac._sweep.local import LocalProcesses, cores
from kalmanac._sweep.plan import Work
from kalmanac._sweep.ray_cluster import OnRay
from kalmanac._sweep.record import Failure, Record
from kalmanac._sweep.work import Done, Executor, How

WAIT = 0.5  # seconds between two looks at signals and at the runs' progress


def make_executor(
    record: Record, *, on: Literal["local", "ray"] = "local", jobs: int | None = None,
    device: str = "auto", threads: int | None = None, ray_address: str | None = None,
    gpus_per_job: float = 0.25, checkpoint_every: int = CHECKPOINT_EVERY, tensorboard: bool = True,
) -> tuple[Executor, How]:  # fmt: skip
    """Make an executor whose jobs share the cores: each has as many threads as cores for it.

    Args:
        on: "local" are processes of this machine, "ray" a cluster whose machines share the folder.
        jobs: at a time; None is one for each core, on a GPU one in all.
        threads: of each job; None is the cores by the jobs.
        gpus_per_job: with Ray, the share of a GPU that a job takes.
    """
    chosen = resolve(device, gpu=on == "local" and bool(gpus()))
    at_once = jobs or (cores() if on_cpu(chosen) else 1)
    how = How(
        record.folder / f"stop-{uuid.uuid4().hex[:12]}",  # no other sweep stops with it
        device=chosen,
        threads=threads or (1 if on == "ray" else max(1, cores() // at_once)),
        events=tensorboard,
        checkpoint_every=checkpoint_every,
    )
    if on == "local":
        return LocalProcesses(at_once, how, record.folder), how
    executor = OnRay(how, device=device, address=ray_address, gpus=gpus_per_job, jobs=jobs)
    return executor, executor.how


def drive(
    executor: Executor, works: Iterable[Work], record: Record, board: Board,
    stop: Callable[[], bool], stop_file: Path,
) -> Iterator[Done]:  # fmt: skip
    """Yield each work as it ends. Works are taken only when there is room for them.

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
