"""What an environment can do wrong, as one error that says so."""

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gymnasium.vector import AsyncVectorEnv, VectorEnv

from kalmanac.envs.workers import WorkerError


class EnvironmentFailedError(RuntimeError):
    """An environment raised, hung, or gave something that is no observation or reward of its own.

    `__cause__` is what was raised.
    """


@contextmanager
def environment_at_work() -> Iterator[None]:
    """What is raised inside comes from the environment."""
    try:
        yield
    except EnvironmentFailedError:
        raise
    except WorkerError as error:  # it names the environment and its seed
        raise EnvironmentFailedError(str(error)) from error
    except multiprocessing.TimeoutError as error:
        raise EnvironmentFailedError(f"the environment gave no answer: {error}") from error
    except Exception as error:
        words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise EnvironmentFailedError(f"the environment raised {words}") from error


@contextmanager
def environment_judged() -> Iterator[None]:
    """A ValueError or TypeError inside is about what the environment gave."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise EnvironmentFailedError(f"the environment gave a wrong {error}") from error


def close_failed(env: VectorEnv[Any, Any, Any]) -> None:
    """Close an environment that may hang: worker processes are ended, not asked."""
    if isinstance(env.unwrapped, AsyncVectorEnv):
        env.close(terminate=True)
    else:
        env.close()
