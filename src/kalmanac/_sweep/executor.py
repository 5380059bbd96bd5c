"""Who executes works: the contract between a sweep and the machines that it runs on."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple

from kalmanac._sweep.plan import Work
from kalmanac._sweep.work import Ended


class Done(NamedTuple):
    """A work, and how each of its runs ended."""

    work: Work
    ended: list[Ended]


class Executor(ABC):
    """Works go in by `begin` and come out of `wait`, each once."""

    @property
    @abstractmethod
    def slots(self) -> int:
        """Return how many works it takes at a time."""

    @abstractmethod
    def begin(self, work: Work) -> None:
        """Take a work."""

    @abstractmethod
    def wait(self, seconds: float) -> Iterator[Done]:
        """Yield works that have ended, after at most so many seconds where none has."""

    @abstractmethod
    def close(self) -> None:
        """Give everything back; works under way are killed, and can be resumed later."""


def crashed(work: Work, error: str) -> Done:
    """Return the end of a work whose worker is gone: what it has finished is finished."""
    return Done(
        work, [Ended("finished") if planned.done else Ended("failed", error) for planned in work]
    )
