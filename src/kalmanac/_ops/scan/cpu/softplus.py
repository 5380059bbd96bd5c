"""A noise variance from its signal inside the kernels' loops: softplus above a floor, its slope.

numba calls the C library's exp for one number at a time, and LLVM then uses no vectors in the whole
loop around it. So the exponential and the logarithm here are made of arithmetic alone.
"""

import numba
import numpy as np
from numba import types
from numba.extending import overload
from numba.np.numpy_support import as_dtype

from kalmanac._ops.scan.cpu.compile import OPTIONS

# A call that LLVM leaves in the loop, because the function is long, would stop the vectors too.
INLINE = OPTIONS | {"forceinline": True}


@numba.njit(**INLINE)
def noise(signal, floor):
    """softplus(x) + floor = log(1 + eˣ) + floor, or without a floor the signal itself."""
    if floor is None:
        return signal
    positive = signal if signal > like(signal, 0) else like(signal, 0)
    return positive + log1p_of_unit(decay(signal)) + floor


@numba.njit(**INLINE)
def slope(signal, floor):
    """The derivative of `noise`: the logistic function, without overflow, or one."""
    one = like(signal, 1)
    if floor is None:
        return one
    y = decay(signal)
    return (one if signal >= like(signal, 0) else y) / (one + y)


def like(x, value):
    """`value` in the number type of x: a plain number would make float64 of float32."""


def decay(x):
    """exp(-|x|)."""


def log1p_of_unit(y):
    """log(1 + y) for 0 ≤ y ≤ 1."""


@overload(like)
def _(x, value):
    number = as_dtype(x).type
    return lambda x, value: number(value)


@overload(decay, jit_options=INLINE)
def _(x):
    return _decay_of_float32 if x == types.float32 else _decay_of_float64


@overload(log1p_of_unit, jit_options=INLINE)
def _(y):
    return _log1p_of_float32 if y == types.float32 else _log1p_of_float64


def _decay_of_float32(x):
    """exp(-|x|) = 2ⁿ exp(d), |d| ≤ log(2)/2, to 1e-7 of its value; never below 1e-38.

    The sum with 1.5·2²³ rounds to a whole number n, which then stands in the last bits of the sum;
    moved to the place of the exponent they are 2ⁿ. n·log 2 is taken off in two parts, of which the
    first has few digits, so that its product is exact. NaN stays NaN.
    """
    y = -abs(x)
    y = np.float32(-87.0) if y < np.float32(-87.0) else y
    shifted = y * np.float32(1.44269504) + np.float32(12582912.0)
    n = shifted - np.float32(12582912.0)
    d = y - n * np.float32(0.693145751953125)
    d = d - n * np.float32(1.42860677e-06)
    p = np.float32(0.001390130608) * d + np.float32(0.00836320035)
    p = p * d + np.float32(0.041666854173)
    p = p * d + np.float32(0.166665762663)
    p = p * d + np.float32(0.5)
    p = p * d + np.float32(1.0)
    p = p * d + np.float32(1.0)
    power = (np.float32(shifted).view(np.int32) + np.int32(127)) << np.int32(23)
    return p * np.int32(power).view(np.float32)


def _log1p_of_float32(y):
    """y times a polynomial: a Chebyshev fit of log(1+y)/y, error 3e-8."""
    p = np.float32(0.005253458) * y - np.float32(0.029588507)
    p = p * y + np.float32(0.07836167)
    p = p * y - np.float32(0.1367477)
    p = p * y + np.float32(0.1911143)
    p = p * y - np.float32(0.2484437)
    p = p * y + np.float32(0.3331927)
    p = p * y - np.float32(0.49999502)
    return (p * y + np.float32(1.0)) * y


def _decay_of_float64(x):
    """As for float32, with Taylor's series up to d¹³: the rest is below 1e-17."""
    y = -abs(x)
    y = -708.0 if y < -708.0 else y
    shifted = y * 1.4426950408889634 + 6755399441055744.0
    n = shifted - 6755399441055744.0
    d = y - n * 0.6931471803691238
    d = d - n * 1.9082149292705877e-10
    p = 1.0
    for k in range(13, 0, -1):
        p = p * d * (1 / k) + 1.0
    power = (np.float64(shifted).view(np.int64) + 1023) << 52
    return p * np.int64(power).view(np.float64)


def _log1p_of_float64(y):
    """2 artanh(s), s = y / (2 + y) ≤ 1/3, by Taylor's series up to s³⁵: the rest is below 1e-17."""
    s = y / (2.0 + y)
    z = s * s
    p = 1 / 35
    for k in range(33, 0, -2):
        p = p * z + 1 / k
    return 2.0 * s * p
