"""A sweep on a Ray cluster. Its machines share a file system: run folders are the only results."""

import logging
import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from kalmanac._ops.device import kind, on_cpu, resolve
from kalmanac._sweep.plan import Work
from kalmanac._sweep.work import Done, Ended, Executor, How, crashed
from kalmanac._sweep.worker import THREADS

RETRIES = 3  # of a work whose worker or machine was lost
ANSWER = 10.0  # seconds that a cluster has to answer in
QUEUED = 2  # works waiting for each that runs: an autoscaler looks at what waits


class OnRay(Executor):
    """Ray picks the machines; a work whose machine is lost goes on elsewhere from its checkpoint.

    Args:
        address: of a cluster, or "auto"; None starts Ray on this machine, unless it runs already.
        device: "auto" takes GPUs where the cluster has some.
        gpus: share of a GPU that a work takes.
        jobs: the most works at a time; None is as many as there is room for.
    """

    def __init__(
        self, how: How, *, device: str = "auto", address: str | None = None, gpus: float = 0.25,
        jobs: int | None = None,
    ) -> None:  # fmt: skip
        try:
            import ray
        except ModuleNotFoundError:
            raise ModuleNotFoundError('ray is not installed: pip install "kalmanac[ray]"') from None
        if not 0 < gpus <= 1:
            raise ValueError(f"gpus_per_job: got {gpus}, expected more than 0, at most 1")
        self._ray, self.jobs = ray, jobs
        self._mine = not ray.is_initialized()
        if self._mine:
            refuse_silent(address)
            quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.WARNING}
            if address is None:
                quiet["include_dashboard"] = False
            ray.init(address=address, **quiet)
        there = ray.cluster_resources().get("GPU", 0) > 0
        self.how = replace(how, device=kind(resolve(device, gpu=there)))
        environment = {name: str(how.threads) for name in THREADS}
        if path := os.environ.get("PYTHONPATH"):
            environment["PYTHONPATH"] = path
        self._task = ray.remote(
            num_cpus=how.threads,
            num_gpus=0 if on_cpu(self.how.device) else gpus,
            max_retries=0,  # a retry has to know that it is one
            runtime_env={"env_vars": environment},
        )(remotely)
        self._lost = (
            ray.exceptions.WorkerCrashedError,
            ray.exceptions.NodeDiedError,
            ray.exceptions.LocalRayletDiedError,
            ray.exceptions.OutOfMemoryError,
            ray.exceptions.ObjectLostError,
        )
        self._works: dict[Any, tuple[Work, int]] = {}  # task → work, and attempts before this one

    @property
    def slots(self) -> int:
        """Return how many works the cluster has room for, and as many again for the queue."""
        if self.jobs is not None:
            return self.jobs
        room = self._ray.cluster_resources().get("CPU", 0) // self.how.threads
        return QUEUED * max(1, int(room))

    def begin(self, work: Work) -> None:
        """Put a work into Ray's queue."""
        self._begin(work, 0)

    def wait(self, seconds: float) -> Iterator[Done]:
        """Yield works that have ended; lost ones go back into the queue, a few times."""
        tasks = list(self._works)
        ready, _ = self._ray.wait(tasks, num_returns=1, timeout=seconds)
        for task in ready:
            work, before = self._works.pop(task)
            try:
                yield Done(work, self._ray.get(task))
            except self._lost as error:
                if before < RETRIES:
                    self._begin(work, before + 1)
                else:
                    reason = " ".join(str(error).split())[:200]
                    yield crashed(work, f"lost {before + 1} times, at last: {reason}")
            except self._ray.exceptions.RayError as error:
                yield crashed(work, " ".join(str(error).split())[:200])

    def close(self) -> None:
        """Cancel all works, and stop Ray where it was started here."""
        for task in self._works:
            self._ray.cancel(task, force=True)
        self._works = {}
        if self._mine:
            self._ray.shutdown()

    def _begin(self, work: Work, before: int) -> None:
        self._works[self._task.remote(work, self.how, before)] = (work, before)


def remotely(work: Work, how: How, before: int) -> list[Ended]:
    """Do a work in a Ray worker."""
    import torch

    from kalmanac._sweep.work import do

    torch.set_num_threads(how.threads)
    return do(work, how, lost=before > 0)


def refuse_silent(address: str | None) -> None:
    """Raise ValueError where nobody answers at HOST:PORT, which Ray itself would wait for."""
    host, _, port = (address or "").rpartition(":")
    if not host or "/" in host or not port.isdecimal():
        return  # "auto", or a kind of address that Ray itself answers for
    try:
        socket.create_connection((host, int(port)), timeout=ANSWER).close()
    except OSError as error:
        raise ValueError(
            f"ray_address: got {address}, expected a cluster that answers ({error})"
        ) from None
