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
        return 1.0 / x
    return tl.inline_asm_elementwise(
        "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
    )


@triton.jit
def log1p_of_unit(y):
    """log(1 + y) for 0 ≤ y ≤ 1, to the last digits of relative accuracy.

    float32: y times a polynomial (Chebyshev fit of log(1+y)/y, error 3e-8), cheaper than a
    logarithm and a division.
    """
    if y.dtype == tl.float64:
        z = 1.0 + y
        gone = z == 1.0
        return tl.where(gone, y, tl.log(z) * (y / tl.where(gone, 1.0, z - 1.0)))
    x = 0.005253458 * y - 0.029588507
    x = x * y + 0.07836167
    x = x * y - 0.1367477
    x = x * y + 0.1911143
    x = x * y - 0.2484437
    x = x * y + 0.3331927
    x = x * y - 0.49999502
    return (x * y + 1.0) * y


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
def filter_step(m, P, lost, x, a2, c, q, w, r, read, ALWAYS_READ: tl.constexpr):
    """One predict and update of a belief (m, P); x is the predicted mean a·m + b·u, c is 1 - a².

    Steps wait for each other through P alone, so all that can be is computed beside that path.

    `lost` carries what rounding took from the variance: at a fixed point that loss is the same at
    every step, and a long memory (a → 1) would add it up a thousandfold.
    """
    inverse = reciprocal(a2 * P + (q + r))
    p = a2 * P + q
    grown = q - c * P
    g = r * inverse  # 1 - k without cancellation
    sharp = p > r  # then P + change cancels, but the memory is short
    m_new = g * x + (p * inverse) * w
    change = (grown * r - P * p) * inverse + lost
    if not ALWAYS_READ:
        change = tl.where(read, change, grown + lost)
        sharp = sharp & read
        m_new = tl.where(read, m_new, x)
    P_new = P + change
    lost = tl.where(sharp, 0.0, change - (P_new - P))
    P_new = tl.where(sharp, g * p, P_new)
    return m_new, P_new, lost
