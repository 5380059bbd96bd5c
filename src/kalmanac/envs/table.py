"""The table of environments: name → how to make it. A new environment is its file and one row here.

Names outside the table are Gymnasium ids ("CartPole-v1", "module:Name-v0") or "module:NAME".
"""

import difflib
import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import gymnasium
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from kalmanac.envs.best_arm_vector import BestArmVector
from kalmanac.envs.privileged import PrivilegedObservation
from kalmanac.envs.track import tracks

AnyVectorEnv = VectorEnv[Any, Any, Any]


@dataclass(frozen=True)
class EnvironmentSpec:
    """An environment and what experiments have to know of it."""

    name: str
    summary: str
    make: Callable[..., AnyVectorEnv]  # make(num_envs, **settings)
    settings: Mapping[str, Any] | None = None  # names and defaults; None: not known beforehand
    normaliser: float = 1.0  # returns are divided by it
    horizon: int | None = None  # steps of the longest episode
    evaluations: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"in": {}})
    # named changes of the settings under which an agent is evaluated


ENVS: dict[str, EnvironmentSpec] = {
    "best-arm": EnvironmentSpec(
        name="best-arm",
        summary="Is a noisy bandit's mean above zero? Ask, or decide (paper, section 5.1)",
        make=BestArmVector,
        settings={
            name: parameter.default
            for name, parameter in inspect.signature(BestArmVector).parameters.items()
            if name != "num_envs"
        },
        normaliser=10.0,
        horizon=1000,
        evaluations={"in": {}, "out": {"sigma": (2.0, 3.0)}},
    ),
    "track": EnvironmentSpec(
        name="track",
        summary="Where is a wandering target? Noisy readings, an estimate at every step",
        make=tracks,
        settings={"decay": 0.95, "noise": 0.3, "horizon": 64},
        horizon=64,
    ),
}


def environment(name: str) -> EnvironmentSpec:
    """The row of the table, or a description of what "module:NAME" or a Gymnasium id names.

    In "module:NAME", NAME is an `EnvironmentSpec`, a callable that takes `num_envs` and settings
    and gives a vector environment, or one that takes settings and gives a single environment.
    """
    if name in ENVS:
        return ENVS[name]
    if ":" in name:
        module, attribute = name.split(":", 1)
        try:
            found = getattr(importlib.import_module(module), attribute, None)
        except ModuleNotFoundError as error:
            raise ValueError(f"env: got {name!r}, expected a module to import: {error}") from None
        if isinstance(found, EnvironmentSpec):
            return found
        if callable(found):
            return EnvironmentSpec(name, _first_line(found), _maker(found))
        if found is not None:
            raise TypeError(
                f"env: got {name!r}, a {type(found).__name__}, "
                "expected an EnvironmentSpec or a callable"
            )
        name = attribute  # importing the module may have registered the id
    if name not in gymnasium.registry:
        near = difflib.get_close_matches(name, [*ENVS, *gymnasium.registry], n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise ValueError(
            f"env: got {name!r}, expected one of {', '.join(ENVS)}, a Gymnasium id, "
            f"or module:NAME{hint}"
        )
    return EnvironmentSpec(
        name, f"Gymnasium's {name}", partial(_registered, name),
        horizon=gymnasium.spec(name).max_episode_steps,
    )  # fmt: skip


def make_vector(
    name: str, num_envs: int, *, privileged: bool = False, **settings: Any
) -> AnyVectorEnv:
    """`num_envs` copies of environment `name`, with its own settings except for those given.

    With `privileged`, the observation is the environment's true state: what the Oracle sees.
    """
    if isinstance(num_envs, bool) or not isinstance(num_envs, int) or num_envs < 1:
        raise ValueError(f"num_envs: got {num_envs!r}, expected an integer of at least 1")
    spec = environment(name)
    known = spec.settings
    for setting in settings:
        if known is not None and setting not in known:
            raise TypeError(
                f"{setting}: environment {name!r} has no such setting, expected {', '.join(known)}"
            )
    env = spec.make(num_envs, **settings)
    return PrivilegedObservation(env) if privileged else env


def _registered(name: str, num_envs: int, **settings: Any) -> AnyVectorEnv:
    """Gymnasium's own vectorised version where there is one, else copies stepped in turn."""
    if gymnasium.spec(name).vector_entry_point is not None:
        return gymnasium.make_vec(name, num_envs, **settings)
    return _copies(partial(gymnasium.make, name), num_envs, **settings)


def _maker(found: Callable[..., Any]) -> Callable[..., AnyVectorEnv]:
    if "num_envs" in inspect.signature(found).parameters:
        return lambda num_envs, **settings: found(num_envs=num_envs, **settings)
    return partial(_copies, found)


def _copies(make: Callable[..., Any], num_envs: int, **settings: Any) -> AnyVectorEnv:
    return SyncVectorEnv(
        [partial(make, **settings)] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP
    )


def _first_line(found: object) -> str:
    return (inspect.getdoc(found) or "").split("\n", 1)[0]
