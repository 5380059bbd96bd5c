"""The arithmetic of one step and the loading of rows, shared by all kernels of the backend."""

import os

import triton
import triton.language as tl

INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")


@triton.jit
def reciprocal(x):
    """1/x. On a GPU in float32 it is one instruction, right to the last digit but one.

    A plain division also guards against the extremes of the exponent, which no variance reaches.
    """
    if INTERPRETED or x.dtype == tl.float64:
        y = 1.0 / x
    else:
        y = tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    return y


@triton.jit
def log1p_of_unit(y):
    """log(1 + y) for 0 ≤ y ≤ 1, to the last digits of relative accuracy.

    float32: y times a polynomial (Chebyshev fit of log(1+y)/y, error 3e-8), cheaper than a
    logarithm and a division.
    """
    if y.dtype == tl.float64:
        z = 1.0 + y
        gone = z == 1.0
        x = tl.where(gone, y, tl.log(z) * (y / tl.where(gone, 1.0, z - 1.0)))
    else:
        x = 0.005253458 * y - 0.029588507
        x = x * y + 0.07836167
        x = x * y - 0.1367477
        x = x * y + 0.1911143
        x = x * y - 0.2484437
        x = x * y + 0.3331927
        x = x * y - 0.49999502
        x = (x * y + 1.0) * y
    return x


@triton.jit
def noise(x, floor, RAW: tl.constexpr):
    """A noise variance from its signal: itself, or softplus(x) = log(1 + eˣ) above a floor."""
    if RAW:
        x = tl.maximum(x, 0.0) + log1p_of_unit(tl.exp(-tl.abs(x))) + floor
    return x


@triton.jit
def slope(x):
    """The derivative of softplus: the logistic function, without overflow."""
    y = tl.exp(-tl.abs(x))
    return tl.where(x >= 0.0, 1.0, y) * reciprocal(1.0 + y)


@triton.jit
def rows(
    pointer, t, stop, inside, other, stride,
    COUNT: tl.constexpr, FULL: tl.constexpr, dtype: tl.constexpr,
):  # fmt: skip
    """Rows t … t+COUNT-1 as a tuple of (BLOCK,) tensors; `other` from `stop` on, which is not read.

    Noises get one there: such a step is computed and dropped, and must not divide by zero. With
    FULL all rows are read, whatever stands in padding: it exists, and the step is dropped as well.
    """
    result = ()
    at = pointer + t * stride
    for j in tl.static_range(COUNT):
        if FULL:
            x = tl.load(at + j * stride)
        else:
            x = tl.load(at + j * stride, mask=inside & (t + j < stop), other=other)
        result = result + (x.to(dtype),)
    return result


@triton.jit
def flags(pointer, stride, t, stop, COUNT: tl.constexpr):
    """Flags t … t+COUNT-1 of one row as a tuple of scalars; False from `stop` on."""
    result = ()
    for j in tl.static_range(COUNT):
        x = tl.load(pointer + (t + j) * stride, mask=t + j < stop, other=0)
        result = result + (x != 0,)
    return result


@triton.jit
def stop_of(lengths, i, last, HAS_LENGTHS: tl.constexpr):
    """The first step of a segment that is padding, or the segment's end."""
    stop = last
    if HAS_LENGTHS:
        stop = tl.minimum(tl.load(lengths + i).to(tl.int32), last)
    return stop


@triton.jit
def belief(m, P, m_at, P_at, inside, dtype: tl.constexpr, GIVEN: tl.constexpr):
    """A belief's rows, or N(0, 1) where none was given."""
    if GIVEN:
        mean = tl.load(m + m_at, mask=inside, other=0.0)
        variance = tl.load(P + P_at, mask=inside, other=1.0)
    else:
        mean = tl.zeros(m_at.shape, dtype)
        variance = mean + 1.0
    return mean, variance


@triton.jit
def filter_step(m, P, m_lost, P_lost, d, a, a2, q, w, r, read, ALWAYS_READ: tl.constexpr):
    """One predict and update of a belief (m, P), with input drive d = b·u and a2 = a².

    Steps wait for each other through m and P alone, so all that can be is computed beside that
    path. `m_lost` and `P_lost` carry what rounding took: at a fixed point that loss is the same at
    every step, and a long memory (a → 1) would add it up a thousandfold; so both are summed up by
    their changes, with the loss of the step before.
    """
    inverse = reciprocal(a2 * P + (q + r))
    p = a2 * P + q
    moved = d - (1.0 - a) * m
    grown = q - (1.0 - a) * (1.0 + a) * P
    x = m + moved  # the prior's mean
    k, g = p * inverse, r * inverse  # g is 1 - k without cancellation
    m_change = moved + k * (w - x) + m_lost
    P_change = (grown * r - P * p) * inverse + P_lost
    sharp = p > r  # then the sums below cancel, but the memory is short
    m_sharp, P_sharp = g * x + k * w, g * p
    if not ALWAYS_READ:
        m_change = tl.where(read, m_change, moved + m_lost)
        P_change = tl.where(read, P_change, grown + P_lost)
        sharp = sharp & read
    m_new, P_new = m + m_change, P + P_change
    m_lost = tl.where(sharp, 0.0, m_change - (m_new - m))
    P_lost = tl.where(sharp, 0.0, P_change - (P_new - P))
    m_new = tl.where(sharp, m_sharp, m_new)
    P_new = tl.where(sharp, P_sharp, P_new)
    return m_new, P_new, m_lost, P_lost
