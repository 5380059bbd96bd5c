"""How the CPU kernels are compiled: once per dtype, for strided arrays, with distinct arguments.

Machine code is cached on disk beside the kernels' files and made anew when such a file changes. A
change here, in `rows` or in `softplus` is not noticed: remove `__pycache__` then (`make clean`).
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numba
from numba import types
from numba.core.compiler import Compiler

# Contraction to fused multiply-add, but no assumption about NaN, infinity or the order of sums.
OPTIONS = {"fastmath": {"contract"}, "error_model": "numpy"}


class DistinctArrays(Compiler):
    """Tells LLVM that no two array arguments overlap (C's `restrict`).

    Without it the vector loops must first compare all pairs of twenty pointers at every time step.
    """

    def define_pipelines(self) -> Any:
        self.state.flags.noalias = True
        return super().define_pipelines()


def one_row(function: Callable[..., None]) -> Any:
    """Compile what one thread does to one row of the batch."""
    return numba.njit(pipeline_class=DistinctArrays, **OPTIONS)(function)


def all_rows(signature: Callable[..., tuple[Any, ...]]) -> Callable[..., Any]:
    """Compile a kernel that spreads rows over threads; returns number type → compiled kernel.

    `signature` gives the argument types for a number type, and for flags where they depend on some.
    They are fixed, so that a contiguous and a strided signal run the same machine code, which is
    made on first use and cached on disk.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., Any]:
        @cache
        def kernel(number: Any, *flags: bool) -> Any:
            declared = types.void(*signature(number, *flags))
            return numba.njit([declared], parallel=True, cache=True, **OPTIONS)(function)

        return kernel

    return decorate


def signals(number: Any, count: int) -> Any:
    """The type of a tuple of `count` strided (B, T, N) arrays."""
    return types.UniTuple(types.Array(number, 3, "A"), count)


def optional(number: Any, given: Sequence[bool]) -> Any:
    """The type of a tuple of numbers, None where none is given: each form has its own code."""
    return types.Tuple([number if there else types.none for there in given])


def row_facts() -> Any:
    """The type of (lengths (B,), reset (B, T), observed (B, T))."""
    flags = types.Array(types.boolean, 2, "A")
    return types.Tuple((types.Array(types.int32, 1, "A"), flags, flags))
