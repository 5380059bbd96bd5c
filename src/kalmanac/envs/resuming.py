"""Environments that can be left and entered again in the middle of an episode.

An environment that can be resumed exactly has two methods, on a single one or on a vector:

    get_checkpoint_state() -> dict     all that its future depends on, its generator included:
                                       arrays, numbers, texts, None, and dictionaries, lists and
                                       tuples of these
    set_checkpoint_state(state)        go on exactly where `get_checkpoint_state` was called

A wrapper with these methods answers for what it wraps, too. Without them, only wrappers known here
are looked through: what another one remembers would be lost. In a worker process, `Leavable` around
the environment hands its state to the outside.
"""

from typing import Any, TypeGuard

import gymnasium
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from kalmanac.envs.copies import Step, copied_step
from kalmanac.envs.privileged import PrivilegedObservation

Environment = gymnasium.Env[Any, Any] | VectorEnv[Any, Any, Any]
_FORGETFUL = (PrivilegedObservation, PassiveEnvChecker, OrderEnforcing)  # wrappers without a past


class Leavable(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment for an `AsyncVectorEnv`, whose state is an attribute to read and to set.

    Its observations are copies: with SAME_STEP, an array that the environment fills again would
    show the next episode's first observation before the last one has been sent.

    Examples:
        >>> from kalmanac import Leavable, Track
        >>> env = Leavable(Track())
        >>> reading, info = env.reset(seed=0)
        >>> sorted(env.checkpoint_state)
        ['generator', 'target', 'time']
    """

    def step(self, action: Any) -> Step:
        """One step."""
        return copied_step(self.env.step(action))

    @property
    def checkpoint_state(self) -> Any | None:
        """`environment_state` of what is inside."""
        return environment_state(self.env)

    @checkpoint_state.setter
    def checkpoint_state(self, state: Any) -> None:
        _restore(self.env, state)


def environment_state(env: Environment) -> Any | None:
    """The state of `env`, as arrays and plain data; None where it cannot be told.

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
    if _of_leavables(env):
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
    elif _of_leavables(env):
        env.set_attr("checkpoint_state", state["copies"])
    else:
        raise TypeError(f"env: got {env}, expected one with set_checkpoint_state")


def _all_or_none(state: dict[str, Any]) -> dict[str, Any] | None:
    return None if any(copy is None for copy in state["copies"]) else state


def _of_leavables(env: Environment) -> "TypeGuard[AsyncVectorEnv[Any, Any]]":
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
