"""Random streams of environments and wrappers: their seeds, and their states as plain data."""

import zlib
from collections.abc import Collection, Mapping
from typing import Any

import gymnasium
import numpy as np


def own_stream(wrapper: gymnasium.Wrapper[Any, Any, Any, Any], seed: int) -> np.random.Generator:
    """A wrapper's own generator: apart from the environment's and from every other wrapper's.

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
    """A generator in this state, of the kind that Gymnasium uses."""
    bits = np.random.PCG64()
    bits.state = state
    return np.random.Generator(bits)


def check_state(state: Mapping[str, Any], like: Mapping[str, Any], within: str = "state") -> None:
    """A state to go on from has the names and shapes of the present one."""
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
    """A state to go on from has the names of the present one."""
    if not isinstance(state, Mapping) or set(state) != set(like):
        came = list(state) if isinstance(state, Mapping) else type(state).__name__
        raise ValueError(f"{within}: got {came}, expected {list(like)}")
