"""The registry knows how to make each environment. A new one is its file and one row here.

Names outside the table are Gymnasium ids ("CartPole-v1", "module:Name-v0") or "module:NAME".
`foreign_code` says whose code a name stands for without importing any of it.
"""

import difflib
import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import gymnasium
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from kalmanac._envs import dmc, novel, popgym, walkers
from kalmanac._envs.best_arm import BestArm, BestArmVector
from kalmanac._envs.dmc import DMC
from kalmanac._envs.motor import Motor
from kalmanac._envs.popgym import POPGym
from kalmanac._envs.sensors import Corruption, corrupted
from kalmanac._envs.track import Track
from kalmanac._envs.workers import TIMEOUT, Workers, describe_exception
from kalmanac._envs.wrappers import PrivilegedObservation

AnyVectorEnv = VectorEnv[Any, Any, Any]
KNOWN = ("gymnasium", "kalmanac")  # packages


@dataclass(frozen=True)
class EnvironmentSpec:
    """This is an environment's row: how to make it, and what experiments have to know of it.

    Examples:
        >>> import gymnasium
        >>> from kalmanac import ENVS, EnvironmentSpec, make_env
        >>> def calm(**settings):
        ...     return gymnasium.make("MountainCarContinuous-v0", **settings)
        >>> ENVS["calm"] = EnvironmentSpec("calm", "a car in a valley", single=calm, horizon=999)
        >>> make_env("calm").action_space.shape
        (1,)
        >>> del ENVS["calm"]
    """

    name: str
    summary: str
    make: Callable[..., AnyVectorEnv] | None = None  # make(num_envs, **settings), many at once
    single: Callable[..., Any] | None = (
        None  # single(**settings), one; needed where `make` is None,
    )
    # and for what is done to one environment: corruption, and worker processes
    settings: Mapping[str, Any] | None = None  # names and defaults; None: not known beforehand
    normalizer: float = 1.0  # returns are divided by it
    horizon: int | None = None  # steps of the longest episode
    evaluations: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"in": {}})
    # named changes of the settings under which an agent is evaluated
    noise: str = ""  # what noise there is, or was in the paper, in words
    extra: str | None = None  # the optional dependencies that it needs
    heavy: bool = False  # a step takes longer than a message between processes


ENVS: dict[str, EnvironmentSpec] = {
    "best-arm": EnvironmentSpec(
        name="best-arm",
        summary="Is a noisy bandit's mean above zero? Ask, or decide (paper, section 5.2)",
        make=BestArmVector,
        single=BestArm,
        settings={
            name: parameter.default
            for name, parameter in inspect.signature(BestArmVector).parameters.items()
            if name != "num_envs"
        },
        normalizer=10.0,
        horizon=1000,
        evaluations={"in": {}, "out": {"sigma": (2.0, 3.0)}},
        noise="σ ~ U(0, 2)",
    ),
    "track": EnvironmentSpec(
        name="track",
        summary="Where is a wandering target? Noisy readings, an estimate at every step",
        single=Track,
        settings={"decay": 0.95, "noise": 0.3, "horizon": 64},
        horizon=64,
        noise="σ = 0.3",
    ),
    "motor": EnvironmentSpec(
        name="motor",
        summary="Keep an electric motor at its reference speed, whatever its load",
        single=Motor,
        settings={"load": 0.5, "horizon": 200},
        horizon=200,
        noise="preset: 0.05",
    ),
    **{
        f"dmc/{task}": EnvironmentSpec(
            name=f"dmc/{task}",
            summary=f"DeepMind Control's {task} (paper, section 5.3)",
            single=partial(DMC, task),
            settings={},
            horizon=dmc.HORIZON,
            noise=f"preset: {noise}",
            extra="dmc",
            heavy=True,
        )
        for task, noise in dmc.NOISE.items()
    },
    **{
        f"popgym/{task}": EnvironmentSpec(
            name=f"popgym/{task}",
            summary=f"POPGym's {task}" + " (paper, section 5.4)" * (task in popgym.PAPER),
            single=partial(POPGym, task),
            settings={"truth": True},
            horizon=steps,
            noise=f"own: {popgym.NOISE[task]}" if task in popgym.NOISE else "",
            extra=popgym.extra(task),
        )
        for task, steps in popgym.HORIZONS.items()
    },
    **{
        f"novel/{name}": EnvironmentSpec(
            name=f"novel/{name}",
            summary=f"Gymnasium's {task.id} with its velocities hidden",
            single=partial(novel.novel, name),
            settings={},
            horizon=task.horizon,
        )
        for name, task in novel.TASKS.items()
    },
    **{
        task: EnvironmentSpec(
            name=task,
            summary=f"{task.split('/')[1]}: a walker, its "
            + ("positions alone" if task.endswith("P") else "velocities alone"),
            single=partial(walkers.walker, task),
            settings={},
            horizon=walkers.HORIZON,
            extra=task.split("/")[0],
            heavy=True,
        )
        for task in walkers.TASKS
    },
}
"""The package's environments by name. A row of your own may be added.

Examples:
    >>> from kalmanac import ENVS
    >>> ENVS["track"].summary
    'Where is a wandering target? Noisy readings, an estimate at every step'
    >>> ENVS["track"].settings
    {'decay': 0.95, 'noise': 0.3, 'horizon': 64}
"""


def environment(name: str) -> EnvironmentSpec:
    """Find the row of the table, or describe what "module:NAME" or a Gymnasium id names.

    In "module:NAME", NAME is an `EnvironmentSpec`, a callable that takes `num_envs` and settings
    and gives a vector environment, or one that takes settings and gives a single environment.
    """
    if name in ENVS:
        return ENVS[name]
    if ":" in name:
        module, attribute = name.split(":", 1)
        if (here := str(Path.cwd())) not in sys.path:
            sys.path.append(here)  # as `python -m` has it, but behind all that is installed
        try:
            target = getattr(importlib.import_module(module), attribute, None)
        except ModuleNotFoundError as error:
            raise ValueError(f"env: got {name!r}, expected a module to import: {error}") from None
        except (Exception, SystemExit) as error:  # of code that is not ours
            raise ValueError(
                f"env: got {name!r}, which raised {describe_exception(error)}, "
                "expected a module to import"
            ) from error
        if isinstance(target, EnvironmentSpec):
            return target
        if callable(target):
            if (target.__module__ or "").split(".")[0] in sys.stdlib_module_names:
                # a run folder names its environment: it must not name os:system
                raise ValueError(f"env: got {name!r}, expected something that makes environments")
            return _describe(name, target)
        if target is not None:
            raise TypeError(
                f"env: got {name!r}, a {type(target).__name__}, "
                "expected an EnvironmentSpec or a callable"
            )
        if attribute not in gymnasium.registry:  # importing the module may have registered it
            raise ValueError(
                f"env: got {name!r}, expected {module} to have {attribute!r}, or to register it "
                "with Gymnasium"
            )
        name = attribute
    if name not in gymnasium.registry:
        near = difflib.get_close_matches(name, [*ENVS, *gymnasium.registry], n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise ValueError(
            f"env: got {name!r}, expected one of {', '.join(_families())}, a Gymnasium id, "
            f"or module:NAME{hint}"
        )
    registered = gymnasium.spec(name)
    vector = partial(gymnasium.make_vec, name) if registered.vector_entry_point else None
    single = partial(gymnasium.make, name) if registered.entry_point else None
    return EnvironmentSpec(
        name, f"Gymnasium's {name}", vector, single, horizon=registered.max_episode_steps
    )


def foreign_code(name: str) -> str | None:
    """Say what foreign code would be imported and called to make environment `name`, or None.

    Names of the table are this package's code, and registered ids are whose entry point they have:
    Gymnasium's own and this package's are known. One that nobody has registered is no code at all.
    """
    if name in ENVS:
        return None
    if ":" in name:
        module, _, attribute = name.partition(":")
        return f"import {module!r} and use {attribute!r} of it"
    spec = gymnasium.registry.get(name)
    if spec is None:
        return None
    points = (spec.entry_point, spec.vector_entry_point)
    places = [p if isinstance(p, str) else p.__module__ for p in points if p is not None]
    foreign = [place for place in places if re.split("[.:]", place)[0] not in KNOWN]
    return f"use {' and '.join(map(repr, foreign))}" if foreign else None


def _families() -> list[str]:
    """List the names of the table; of those with a slash, what stands before it."""
    return list(dict.fromkeys(f"{n.split('/')[0]}/…" if "/" in n else n for n in ENVS))


def make_env(
    name: str, *, corruption: Corruption | None = None, **settings: Any
) -> gymnasium.Env[Any, Any]:
    """Make one environment by its name.

    Args:
        name: a row of `ENVS` such as "best-arm", a Gymnasium id such as "CartPole-v1", or
            "module:NAME" of a class or function of your own.
        corruption: what happens to readings and actions on their way; None is nothing.
        **settings: settings of the environment other than its defaults.

    Examples:
        >>> from kalmanac import make_env
        >>> env = make_env("best-arm", cost=0.1)
        >>> observation, info = env.reset(seed=0)
        >>> observation, reward, terminated, truncated, info = env.step(0)  # ask
        >>> reward, terminated
        (-0.1, False)
    """
    spec = environment(name)
    _expect_settings(spec, settings)
    if spec.single is None:
        raise ValueError(
            f"env: got {name!r}, which comes as a vector of many only, expected one to make singly"
        )
    return _one(name, partial(spec.single, **settings), corruption or Corruption())


def make_vector(
    name: str, num_envs: int, *, privileged: bool = False, corruption: Corruption | None = None,
    workers: int | Literal["auto"] = 0, timeout: float = TIMEOUT, **settings: Any,
) -> AnyVectorEnv:  # fmt: skip
    """Make `num_envs` copies of environment `name`, with its own settings but for those given.

    Args:
        privileged: the observation is the environment's true state: what the Oracle observes.
        corruption: what happens to readings and actions on their way; None is nothing.
        workers: 0 steps all copies in this process. Otherwise each has a process of its own, and at
            most so many of them step at once; "auto" takes as many as there are cores where the
            environment is known to be worth it. The results are the same.
        timeout: seconds until a process that does not answer counts as hanging.

    Examples:
        >>> from kalmanac import make_vector
        >>> envs = make_vector("track", 4, horizon=20)
        >>> observations, infos = envs.reset(seed=0)
        >>> observations.shape
        (4, 1)
    """
    if isinstance(num_envs, bool) or not isinstance(num_envs, int) or num_envs < 1:
        raise ValueError(f"num_envs: got {num_envs!r}, expected an integer of at least 1")
    spec = environment(name)
    _expect_settings(spec, settings)
    at_once = worker_count(spec, num_envs, workers, corruption)
    if spec.make is not None and not corruption:
        env = spec.make(num_envs, **settings)
        if not isinstance(env, VectorEnv):
            raise TypeError(f"env: got a {type(env).__name__} from {name!r}, expected a VectorEnv")
    elif spec.single is not None:
        make = partial(_one, name, partial(spec.single, **settings), corruption or Corruption())
        if at_once:
            env = Workers([make] * num_envs, at_once=at_once, timeout=timeout)
        else:
            env = SyncVectorEnv([make] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)
    else:
        raise ValueError(
            f"corruption: got {corruption}, expected none: {name!r} comes as a vector of many only"
        )
    return PrivilegedObservation(env) if privileged else env


def _expect_settings(spec: EnvironmentSpec, settings: Mapping[str, Any]) -> None:
    for setting in settings:
        if spec.settings is not None and setting not in spec.settings:
            raise TypeError(
                f"{setting}: environment {spec.name!r} has no such setting, "
                f"expected {', '.join(spec.settings) or 'none'}"
            )


def _one(name: str, make: Callable[[], Any], corruption: Corruption) -> gymnasium.Env[Any, Any]:
    env = make()
    if not isinstance(env, gymnasium.Env):
        raise TypeError(f"env: got a {type(env).__name__} from {name!r}, expected a gymnasium.Env")
    return corrupted(env, corruption)


def worker_count(
    spec: EnvironmentSpec, num_envs: int, workers: int | Literal["auto"],
    corruption: Corruption | None = None,
) -> int:  # fmt: skip
    """Decide how many environments step at once in processes of their own; 0: in this one."""
    if workers == "auto":
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        return min(cores or 1, num_envs) if spec.heavy and (cores or 1) > 1 < num_envs else 0
    if isinstance(workers, bool) or not isinstance(workers, int) or not 0 <= workers <= num_envs:
        raise ValueError(
            f"workers: got {workers!r}, expected auto or 0 to {num_envs}, the environments' number"
        )
    if workers and spec.make is not None and not corruption:  # its copies draw other numbers
        raise ValueError(f"workers: got {workers}, expected 0: {spec.name!r} steps many by itself")
    return workers


def _describe(name: str, make: Callable[..., Any]) -> EnvironmentSpec:
    summary = (inspect.getdoc(make) or "").split("\n", 1)[0]
    takes: Mapping[str, Any] = {}
    with suppress(ValueError):  # a function that is not written in Python may have none
        takes = inspect.signature(make).parameters
    if "num_envs" in takes:
        vector = make
        return EnvironmentSpec(
            name, summary, lambda num_envs, **settings: vector(num_envs=num_envs, **settings)
        )
    return EnvironmentSpec(name, summary, single=make)
