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
    """A noise variance from its signal: itself, or softplus(x) = log(1 + eˣ) above a floor.

    Kernels take the floor as float64: a bare Python number would arrive rounded to float32.
    """
    if RAW:
        x = tl.maximum(x, 0.0) + log1p_of_unit(tl.exp(-tl.abs(x)))
        if x.dtype == tl.float64:  # noqa: SIM108 (chosen when the kernel is compiled)
            x = x + floor
        else:
            x = x + tl.cast(floor, x.dtype)
    return x


@triton.jit
def slope(x):
    """The derivative of softplus: the logistic function, without overflow."""
    y = tl.exp(-tl.abs(x))
    return tl.where(x >= 0.0, 1.0, y) * reciprocal(1.0 + y)


@triton.jit
def rows(
    pointer, t, stop, inside, other, stride,
    COUNT: tl.constexpr, FULL: tl.constexpr, dtype: tl.constexpr, GIVEN: tl.constexpr = True,
):  # fmt: skip
    """Rows t … t+COUNT-1 as a tuple of (BLOCK,) tensors, empty if none are GIVEN; `other` from
    `stop` on, which is not read.

    Noises get one there: such a step is computed and dropped, and must not divide by zero. With
    FULL all rows are read, whatever stands in padding: it exists, and the step is dropped as well.
    """
    result = ()
    at = pointer + t * stride
    for j in tl.static_range(COUNT if GIVEN else 0):
        if FULL:
            x = tl.load(at + j * stride)
        else:
            x = tl.load(at + j * stride, mask=inside & (t + j < stop), other=other)
        result = result + (x.to(dtype),)
    return result


@triton.jit
def flags(pointer, stride, t, stop, GIVEN: tl.constexpr, COUNT: tl.constexpr):
    """Flags t … t+COUNT-1 of one row as a tuple of scalars, empty without any; False from `stop`
    on."""
    result = ()
    for j in tl.static_range(COUNT if GIVEN else 0):
        x = tl.load(pointer + (t + j) * stride, mask=t + j < stop, other=0)
        result = result + (x != 0,)
    return result


@triton.jit
def lanes(N, BLOCK: tl.constexpr):
    """A program's row or segment, how many there are, its channels, and which of these exist."""
    blocks = tl.cdiv(N, BLOCK)
    count = (tl.num_programs(0) // blocks).to(tl.int64)
    mine = (tl.program_id(0) // blocks).to(tl.int64)
    n = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    return mine, count, n, n < N


@triton.jit
def steps_of(segment, lengths, T, S, K, HAS_LENGTHS: tl.constexpr):
    """A segment's row, its first step, its end, and its first step that is padding, or the end."""
    i = segment // K
    first = (segment % K).to(tl.int32) * S
    last = tl.minimum(first + S, T)
    stop = last
    if HAS_LENGTHS:
        stop = tl.minimum(tl.load(lengths + i).to(tl.int32), last)
    return i, first, last, stop


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
def anchored(at, off, slow):
    """The number at + off, taken apart anew: at its own value where it is slow, at zero elsewhere.

    At a fixed point a step's rounding is the same every time, and a long memory (a → 1) would add
    it up a thousandfold. So within a chunk the steps sum up only the distance `off` from an anchor
    `at`, whose digits are far below those of the sum, and nothing is lost between chunks either.
    """
    whole = at + off
    rest = off - (whole - at)
    return tl.where(slow, whole, 0.0), tl.where(slow, rest, whole)


@triton.jit
def filter_step(
    m_at, m, P_at, P, d, a, a2, q, w, r, read, ALWAYS_READ: tl.constexpr, ANCHORED: tl.constexpr
):
    """One predict and update of the belief (m_at + m, P_at + P), with d = b·u and a2 = a².

    Returns the new m and P, then the gain k, g = 1 - k and e = (w - prior mean) / (prior
    variance + r). Without ANCHORED, m_at and P_at are zero. Steps wait for each other through P
    above all, so all that can be is computed beside that path.
    """
    if ANCHORED:
        d -= (1.0 - a) * m_at
        q -= (1.0 - a) * (1.0 + a) * P_at
        w -= m_at
        inverse = reciprocal(a2 * P + (P_at + q + r))
    else:
        inverse = reciprocal(a2 * P + (q + r))
    x, h = a * m + d, a2 * P + q  # the prior's distance from the anchor
    if ANCHORED:
        p = P_at + h
        P_new = (r * h - P_at * p) * inverse
    else:
        p = h
        P_new = r * h * inverse
    k, g, e = p * inverse, r * inverse, (w - x) * inverse
    m_new = g * x + k * w
    if not ALWAYS_READ:
        m_new, P_new = tl.where(read, m_new, x), tl.where(read, P_new, h)
        k, g, e = tl.where(read, k, 0.0), tl.where(read, g, 1.0), tl.where(read, e, 0.0)
    return m_new, P_new, k, g, e


@triton.jit
def prefetch(pointer, t, stride, COUNT: tl.constexpr):
    """Ask for rows t … t+COUNT-1 to be brought into the second-level cache."""
    if not INTERPRETED:
        for j in tl.static_range(COUNT):
            tl.inline_asm_elementwise(
                "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l",
                [(pointer + (t + j) * stride).to(tl.int64)],
                dtype=tl.int32, is_pure=False, pack=1,
            )  # fmt: skip
