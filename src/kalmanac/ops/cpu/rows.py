"""Contiguous rows of strided arrays, the way the CPU kernels read their signals in place."""

from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array


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
