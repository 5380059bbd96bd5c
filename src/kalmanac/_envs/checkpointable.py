"""Environments can be left, and entered again, in the middle of an episode.

An environment that can be resumed exactly has two methods, on a single one or on a vector:

    get_checkpoint_state() -> dict     all that its future depends on, its generator included:
                                       arrays, numbers, texts, None, and dictionaries, lists and
                                       tuples of these
    set_checkpoint_state(state)        go on exactly where `get_checkpoint_state` was called

A wrapper with these methods answers for what it wraps, too. Without them, only wrappers known here
are looked through: what another one remembers would be lost. In a worker process,
`Checkpointable` around the environment hands its state to the outside.
"""

import zlib
from collections.abc import Collection, Mapping
from typing import Any, TypeGuard

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

Environment = gymnasium.Env[Any, Any] | VectorEnv[Any, Any, Any]
_FORGETFUL = (PassiveEnvChecker, OrderEnforcing)  # wrappers without a past


def environment_state(env: Environment) -> Any | None:
    """Return the state of `env` as arrays and plain data, or None where it is unknown.

    Examples:
        >>> import gymnasium
        >>> from kalmanac import Track, environment_state
        >>> env = Track()
        >>> reading, info = env.reset(seed=0)
        >>> sorted(environment_state(env))
        ['generator', 'target', 'time']
        >>> print(environment_state(gymnasium.make("CartPole-v1")))
        None
    """
    if _resumable(env):
        return env.get_checkpoint_state()  # type: ignore[union-attr]
    if isinstance(env, _FORGETFUL):
        return environment_state(env.env)
    if isinstance(env, TimeLimit):
        inner = environment_state(env.env)
        return None if inner is None else {"inner": inner, "steps": env._elapsed_steps}
    if isinstance(env, SyncVectorEnv):
        states = [environment_state(copy) for copy in env.envs]
        return _all_or_none({"copies": states, "over": env._autoreset_envs.copy()})
    if _of_checkpointables(env):
        return _all_or_none({"copies": list(env.get_attr("checkpoint_state"))})
    return None


def restore_environment(env: Environment, state: Any) -> None:
    """Bring `env`, built as the one was that `state` is of, into that state.

    It is reset first, which is all that wrappers such as Gymnasium's checks wait for.

    Examples:
        >>> from kalmanac import Track, environment_state, restore_environment
        >>> one, other = Track(), Track()
        >>> reading, info = one.reset(seed=0)
        >>> restore_environment(other, environment_state(one))
        >>> one.step([0.0])[:2] == other.step([0.0])[:2]
        True
    """
    env.reset()
    _restore(env, state)


def _restore(env: Environment, state: Any) -> None:
    if _resumable(env):
        env.set_checkpoint_state(state)  # type: ignore[union-attr]
    elif isinstance(env, _FORGETFUL):
        _restore(env.env, state)
    elif isinstance(env, TimeLimit):
        env._elapsed_steps = state["steps"]
        _restore(env.env, state["inner"])
    elif isinstance(env, SyncVectorEnv):
        if len(state["copies"]) != env.num_envs:
            raise ValueError(
                f"state: got {len(state['copies'])} environments, expected {env.num_envs}"
            )
        for copy, one in zip(env.envs, state["copies"], strict=True):
            _restore(copy, one)
        env._autoreset_envs = state["over"].copy()
    elif _of_checkpointables(env):
        env.set_attr("checkpoint_state", state["copies"])
    else:
        raise TypeError(f"env: got {env}, expected one with set_checkpoint_state")


def _all_or_none(state: dict[str, Any]) -> dict[str, Any] | None:
    return None if any(copy is None for copy in state["copies"]) else state


def _of_checkpointables(env: Environment) -> "TypeGuard[AsyncVectorEnv[Any, Any]]":
    # With NEXT_STEP a worker keeps for itself whether its next step is a reset.
    return (
        isinstance(env, AsyncVectorEnv)
        and env.autoreset_mode is AutoresetMode.SAME_STEP
        and all(env.call("has_wrapper_attr", "checkpoint_state"))
    )


def _resumable(env: Environment) -> bool:
    # Asked of the class: a vector of copies hands on questions about attributes.
    return all(
        callable(getattr(type(env), name, None))
        for name in ("get_checkpoint_state", "set_checkpoint_state")
    )


def random_stream(wrapper: gymnasium.Wrapper[Any, Any, Any, Any], seed: int) -> np.random.Generator:
    """Make a wrapper's own generator, apart from those of the environment and other wrappers.

    The seed, the wrapper's kind and how many of its kind are beneath decide it, so that another
    wrapper, or one of another kind, changes nothing in it.
    """
    beneath, layer = 0, wrapper.env
    while isinstance(layer, gymnasium.Wrapper):
        beneath += type(layer) is type(wrapper)
        layer = layer.env
    kind = zlib.crc32(type(wrapper).__name__.encode())
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(kind, beneath)))


def generator(state: Any) -> np.random.Generator:
    """Make a generator in this state, of the kind that Gymnasium uses."""
    bits = np.random.PCG64()
    bits.state = state
    return np.random.Generator(bits)


def check_state(state: Mapping[str, Any], like: Mapping[str, Any], within: str = "state") -> None:
    """Refuse a state that has not the names and shapes of the present one."""
    check_names(state, like, within)
    for name, value in like.items():
        if isinstance(value, Mapping):
            if "bit_generator" not in value:
                check_state(state[name], value, f"{within}[{name!r}]")
        elif np.shape(state[name]) != np.shape(value):
            raise ValueError(
                f"{within}[{name!r}]: got shape {np.shape(state[name])}, expected {np.shape(value)}"
            )


def check_names(state: Mapping[str, Any], like: Collection[str], within: str = "state") -> None:
    """Refuse a state that has not the names of the present one."""
    if not isinstance(state, Mapping) or set(state) != set(like):
        received = list(state) if isinstance(state, Mapping) else type(state).__name__
        raise ValueError(f"{within}: got {received}, expected {list(like)}")
