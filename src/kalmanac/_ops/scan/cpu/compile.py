"""How the CPU kernels are compiled: once per dtype, for strided arrays, with distinct arguments.

Machine code is cached on disk beside the kernels' files and made anew when such a file changes. A
change here or in `softplus` is not noticed: remove `__pycache__` then (`make clean`).
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numba
from numba import types
from numba.core import cgutils
from numba.core.compiler import Compiler
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

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
    """Return the type of a tuple of `count` strided (B, T, N) arrays."""
    return types.UniTuple(types.Array(number, 3, "A"), count)


def optional(number: Any, present: Sequence[bool]) -> Any:
    """The type of a tuple of numbers, None where one is absent: each form has its own code."""
    return types.Tuple([number if there else types.none for there in present])


def row_facts() -> Any:
    """Return the type of (lengths (B,), reset (B, T), observed (B, T))."""
    flags = types.Array(types.boolean, 2, "A")
    return types.Tuple((types.Array(types.int32, 1, "A"), flags, flags))


@intrinsic
def row(typing_context: Any, x: Any, i: Any, t: Any, low: Any) -> Any:
    """The row x[i, t, low:] as a contiguous array; the caller promises that its stride is one.

    A plain slice of a strided array keeps its unknown last stride, which stops LLVM from using
    vector loads, and counts references at every step of the time loop; this view does neither.
    The function around it is compiled for the widest vectors there are: with AVX-512, LLVM would
    else take half of their width.
    """
    if not isinstance(x, types.Array) or x.ndim != 3:
        return None
    result = types.Array(x.dtype, 1, "C", readonly=not x.mutable)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        # past llvmlite's own check, which knows no attributes with a value
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')
        source = make_array(x)(context, builder, args[0])
        strides = cgutils.unpack_tuple(builder, source.strides, 3)
        shape = cgutils.unpack_tuple(builder, source.shape, 3)
        intp = context.get_value_type(types.intp)
        index = [
            context.cast(builder, value, kind, types.intp)
            for value, kind in zip(args[1:], signature.args[1:], strict=True)
        ]
        size = intp(context.get_abi_sizeof(context.get_data_type(x.dtype)))
        offset = builder.add(builder.mul(index[0], strides[0]), builder.mul(index[1], strides[1]))
        offset = builder.add(offset, builder.mul(index[2], size))
        view = make_array(result)(context, builder)
        populate_array(
            view,
            data=cgutils.pointer_add(builder, source.data, offset, source.data.type),
            shape=[builder.sub(shape[2], index[2])],
            strides=[size],
            itemsize=size,
            meminfo=None,
        )
        return view._getvalue()

    return result(x, i, t, low), generate
