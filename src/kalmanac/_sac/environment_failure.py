"""Environments that fail: what they raise or give is told apart from errors of ours, and they are
closed.
"""

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from gymnasium.vector import AsyncVectorEnv, VectorEnv

from kalmanac._envs.workers import WorkerError, describe_exception


class EnvironmentFailedError(RuntimeError):
    """An environment raised, hung, or gave something that is no observation or reward of its own.

    `__cause__` is what was raised.

    Examples:
        >>> from kalmanac import EnvironmentFailedError, RecurrentSAC, Track, evaluate_policy
        >>> class Broken(Track):
        ...     def step(self, action):
        ...         raise OSError("the robot is unplugged")
        >>> try:
        ...     evaluate_policy(RecurrentSAC("gru", Track(), seed=0), Broken(), 1)
        ... except EnvironmentFailedError as error:
        ...     print(error)
        the environment raised OSError: the robot is unplugged (...)
    """


@contextmanager
def environment_at_work() -> Iterator[None]:
    """What is raised inside comes from the environment; only Ctrl-C goes through."""
    try:
        yield
    except (EnvironmentFailedError, KeyboardInterrupt):
        raise
    except WorkerError as error:  # it names the environment and its seed
        raise EnvironmentFailedError(str(error)) from error
    except multiprocessing.TimeoutError as error:
        raise EnvironmentFailedError(f"the environment gave no answer: {error}") from error
    except BaseException as error:  # SystemExit above all: the environment has no say over the run
        raise EnvironmentFailedError(
            f"the environment raised {describe_exception(error)}"
        ) from error


@contextmanager
def environment_output_checked() -> Iterator[None]:
    """A ValueError or TypeError inside is about what the environment gave."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise EnvironmentFailedError(f"the environment gave a wrong {error}") from error


def closed(env: VectorEnv[Any, Any, Any]) -> str | None:
    """Close an environment that has done its work; what it raised then, in words."""
    try:
        with environment_at_work():
            env.close()
    except EnvironmentFailedError as error:
        return f"{error}, when it was closed"
    return None


def close_failed(env: VectorEnv[Any, Any, Any]) -> None:
    """Close an environment that may hang: worker processes are ended, not asked.

    After a failure, nothing that it raises now is worth telling.
    """
    with suppress(EnvironmentFailedError), environment_at_work():
        if isinstance(env.unwrapped, AsyncVectorEnv):
            env.close(terminate=True)
        else:
            env.close()
