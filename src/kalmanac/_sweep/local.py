"""A sweep in processes of this machine. They live as long as the sweep: torch takes seconds."""

import multiprocessing
import os
import signal
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from kalmanac._sweep.plan import Work
from kalmanac._sweep.work import Done, Executor, How, crashed
from kalmanac._sweep.worker import serve

GOODBYE = 5.0  # seconds for an idle worker to leave


class Worker:
    """One process and what it is doing."""

    def __init__(self, number: int, how: How, logs: Path) -> None:
        self.number, self.work = number, None  # type: int, Work | None
        context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
        self.pipe: Connection
        self.pipe, workers_end = context.Pipe()
        self.process: BaseProcess = context.Process(
            target=serve, args=(workers_end, how, logs / f"worker-{number}.txt"), daemon=True
        )
        self.process.start()
        workers_end.close()  # so that its end is seen here

    def end(self) -> str:
        """Say what became of a process that is gone."""
        self.process.join()
        code = self.process.exitcode or 0
        if code < 0:
            return f"the worker process was killed by {signal.Signals(-code).name}"
        return f"the worker process ended with status {code}"


class LocalProcesses(Executor):
    """`jobs` workers. One that crashes takes its own work with it, and is replaced."""

    def __init__(self, jobs: int, how: How, logs: Path) -> None:
        if jobs < 1:
            raise ValueError(f"jobs: got {jobs}, expected at least 1")
        self.jobs, self.how, self.logs = jobs, how, logs
        self._workers: list[Worker] = []

    @property
    def slots(self) -> int:
        """Return the number of workers: each takes one work."""
        return self.jobs

    def begin(self, work: Work) -> None:
        """Send a work to an idle worker; the first works start the workers."""
        idle = next((worker for worker in self._workers if worker.work is None), None)
        if idle is None:
            numbers = {worker.number for worker in self._workers}
            number = min(set(range(1, self.jobs + 1)) - numbers)
            idle = Worker(number, self.how, self.logs)
            self._workers.append(idle)
        idle.work = work
        idle.pipe.send(work)

    def wait(self, seconds: float) -> Iterator[Done]:
        """Yield works that have ended; the work of a worker that is gone has failed."""
        busy = {worker.pipe: worker for worker in self._workers if worker.work is not None}
        for pipe in wait(list(busy), seconds):
            worker = busy[pipe]  # type: ignore[index]
            work, worker.work = worker.work, None
            assert work is not None
            try:
                yield Done(work, worker.pipe.recv())
            except (EOFError, OSError):
                self._workers.remove(worker)
                yield crashed(work, f"{worker.end()}; see {self.logs.name}/{self._log(worker)}")

    def close(self) -> None:
        """Kill busy workers; idle ones leave by themselves."""
        for worker in self._workers:
            worker.pipe.close()
            if worker.work is not None:
                worker.process.kill()
        for worker in self._workers:
            worker.process.join(GOODBYE)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        self._workers = []

    @staticmethod
    def _log(worker: Worker) -> str:
        return f"worker-{worker.number}.txt"


def cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
