"""Environments run in worker processes, one each; observations come through shared memory.

The processes are those of Gymnasium's `AsyncVectorEnv`. Each environment is seeded as it would be
in this process, so that results do not depend on where it runs. What goes wrong in a process is
said once, with the environment's number and its seed, and ends all of them.
"""

import inspect
import multiprocessing
import re
import signal
import sysconfig
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, VectorWrapper

from kalmanac._envs.checkpointable import check_names
from kalmanac._envs.observation_codecs import privileged_space
from kalmanac._envs.wrappers import Checkpointable

MakeOne = Callable[[], gymnasium.Env[Any, Any]]
TIMEOUT = 120.0  # seconds; a beginning episode may take its time on a busy machine
_OURS = str(Path(__file__).parents[1])
_LIBRARIES = tuple({*map(sysconfig.get_path, ("stdlib", "purelib", "platlib")), _OURS})
_PLACE = re.compile(r'File "([^"]+)", line (\d+)')  # in a traceback's text


class WorkerError(RuntimeError):
    """An environment's process has died, hung or raised, and all processes have been ended.

    Examples:
        >>> from kalmanac import WorkerError, make_vector
        >>> try:
        ...     envs = make_vector("track", 2, workers=0)  # or with processes of their own
        ...     observations, infos = envs.reset(seed=0)
        ... except WorkerError as error:
        ...     print(error)  # which environment, and its seed
    """


class Workers(VectorWrapper[Any, Any, Any, Any, Any]):
    """Each environment has a process of its own; at most `at_once` of them step together.

    Args:
        makers: functions that make one environment each; they travel by cloudpickle.
        at_once: as many processes as have a core of their own to step on; None sets no bound.
        timeout: seconds until an environment that does not answer counts as hanging.
    """

    def __init__(
        self, makers: Sequence[MakeOne], *, at_once: int | None = None, timeout: float = TIMEOUT
    ) -> None:
        self.timeout = timeout
        self._seeds: list[int | None] = [None] * len(makers)
        probe = makers[0]()
        self.privileged_space: spaces.Box | None = privileged_space(probe)
        probe.close()
        bound: dict[str, Any] = {}
        if at_once is not None and at_once < len(makers):
            bound["max_concurrency"] = at_once
        if bound and "max_concurrency" not in inspect.signature(AsyncVectorEnv).parameters:
            raise ValueError(
                f"workers: got {at_once}, expected 0 or {len(makers)}: fewer processes than "
                f"environments need Gymnasium 1.4, here is {gymnasium.__version__}"
            )
        methods = multiprocessing.get_all_start_methods()
        self._async: AsyncVectorEnv
        self._traces: _Traces
        env = _StartHookVectorEnv(
            self._on_start,
            [_InWorker(make) for make in makers],
            # a forked copy of a process that has used OpenMP aborts
            context="forkserver" if "forkserver" in methods else "spawn",
            autoreset_mode=AutoresetMode.SAME_STEP,
            **bound,
        )
        super().__init__(env)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:  # fmt: skip
        """Reset all, environment i with seed + i."""
        if isinstance(seed, int):
            seed = [seed + i for i in range(self.num_envs)]
        if seed is not None:
            self._seeds = list(seed)
        return self._together(
            lambda: self._async.reset_async(seed=self._seeds if seed else None, options=options),
            self._async.reset_wait,
        )

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all at once."""
        return self._together(lambda: self._async.step_async(actions), self._async.step_wait)

    def get_checkpoint_state(self) -> dict[str, Any] | None:
        """Return the states of all, as of copies in this process; None where one is unknown."""
        states = self._together(
            lambda: self._async.call_async("checkpoint_state"), self._async.call_wait
        )
        if any(state is None for state in states):
            return None
        return {"copies": list(states), "over": np.zeros(self.num_envs, np.bool_)}

    def set_checkpoint_state(self, state: Mapping[str, Any]) -> None:
        """Go on exactly where `get_checkpoint_state` was called, here or in one process."""
        check_names(state, ("copies", "over"))
        states = list(state["copies"])
        if len(states) != self.num_envs:
            raise ValueError(f"state: got {len(states)} environments, expected {self.num_envs}")
        self._together(lambda: self._async.set_attr("checkpoint_state", states), lambda _: None)

    def close(self, **kwargs: Any) -> None:
        """End the processes, whatever state they are in."""
        if self._async.closed:
            return
        alive = all(process.is_alive() for process in self._async.processes)
        if kwargs.get("terminate") or not alive:
            return self._stop()
        try:
            self._async.close(timeout=1)
        except (EOFError, OSError, gymnasium.error.Error):
            self._stop()

    def _on_start(self, env: AsyncVectorEnv) -> None:
        """Ask for anything: a reply proves that the environment was built."""
        self._async = env
        self._traces = _Traces(env.error_queue)
        env.error_queue = self._traces  # type: ignore[assignment]
        self._together(
            lambda: env.call_async("has_wrapper_attr", "checkpoint_state"),
            env.call_wait,
            when=" while it was made",
        )

    def _together(
        self, send: Callable[[], Any], wait: Callable[[float], Any], when: str = ""
    ) -> Any:
        """Ask all and wait for all, or raise one WorkerError about those that failed."""
        try:
            send()
            return wait(self.timeout)
        except multiprocessing.TimeoutError:
            pipes = self._async.parent_pipes
            silent = [i for i, pipe in enumerate(pipes) if pipe is None or not pipe.poll(0)]
            problem = f"did not answer within {self.timeout:g} s"
            cause: Exception | None = None
        except (EOFError, OSError) as error:
            for process in self._async.processes:  # one that has just died needs a moment
                process.join(0.2)
            codes = [process.exitcode for process in self._async.processes]
            silent = [i for i, code in enumerate(codes) if code is not None]
            problem = f"its process ended with exit code {[codes[i] for i in silent]}"
            cause = error
        except gymnasium.error.Error:
            raise
        except Exception as error:
            silent = [i for i, pipe in enumerate(self._async.parent_pipes) if pipe is None]
            if not silent:
                raise
            problem = f"raised {describe_remote_exception(error, self._traces.last)}"
            cause = error
            cause.add_note(self._traces.last)
        self._stop()
        seeds = ("" if seed is None else f" (seed {seed})" for seed in self._seeds)
        named = [f"{i}{seed}" for i, seed in enumerate(seeds) if i in silent]
        raise WorkerError(f"environment {', '.join(named)}: {problem}{when}") from cause

    def _stop(self) -> None:
        """End all processes at once."""
        for process in self._async.processes:
            if process.is_alive():
                process.kill()  # one that hangs may not listen to anything less
            process.join()
        for pipe in self._async.parent_pipes:
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        self._async.closed = True


class _Traces:
    """This is the queue that processes put their errors into; it keeps the last traceback."""

    def __init__(self, queue: Any) -> None:
        self.queue, self.last = queue, ""

    def get(self) -> tuple[int, type[Exception], Any, str]:
        """Return the next error."""
        entry = self.queue.get()
        self.last = str(entry[3])
        return entry


class _StartHookVectorEnv(AsyncVectorEnv):
    """This vector calls `announce` with itself as soon as its processes have been started.

    Gymnasium's own first request would wait for ever for an environment that cannot be built. What
    the processes share lives until this constructor ends: environments must be built by then.
    """

    def __init__(self, announce: Callable[[AsyncVectorEnv], None], *args: Any, **how: Any) -> None:
        self._announce = announce
        super().__init__(*args, **how)

    def _check_spaces(self) -> None:
        self._announce(self)
        super()._check_spaces()


class _InWorker:
    """This makes an environment where it will run, such that its state can be read and set."""

    def __init__(self, make: MakeOne) -> None:
        self.make = make

    def __call__(self) -> gymnasium.Env[Any, Any]:
        if multiprocessing.parent_process() is not None:
            # Ctrl-C and SIGTERM, where all processes of a group get them, are for the one that
            # trains: it leaves a checkpoint, and needs the environments' states for it.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        return Checkpointable(self.make())


def describe_exception(error: BaseException) -> str:
    """Say in one line what was raised: its kind and message, the file and the line."""
    frames = traceback.extract_tb(error.__traceback__)
    return _describe(error, [(frame.filename, frame.lineno or 0) for frame in frames])


def describe_remote_exception(error: BaseException, trace: str) -> str:
    """Say the same of an error that came from another process, with its traceback as text."""
    return _describe(error, [(file, int(line)) for file, line in _PLACE.findall(trace)])


def _describe(error: BaseException, places: Sequence[tuple[str, int]]) -> str:
    text = " ".join(str(error).split())
    text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    # the environment's own line, not that of a library which it called
    own = [place for place in places if not place[0].startswith((*_LIBRARIES, "<"))]
    if not places:
        return text
    file, line = (own or places)[-1]
    return f"{text} ({file}, line {line})"
