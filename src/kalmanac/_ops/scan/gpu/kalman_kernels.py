"""Kalman scan kernels in Triton: lanes over channels, one fused loop over time, native layout.

A program owns BLOCK channels of one segment: K segments of S steps make a row (K = 1 unless the
batch is too small to fill the device). It walks through time in chunks of C steps, whose rows it
loads at once and one chunk ahead. The forward leaves the belief before every chunk in `saved`; the
backward replays a chunk from there in registers instead of reading means and variances back.

Constants say which inputs exist, so that an absent one costs nothing: HAS_U, HAS_B, Q_VARIES,
HAS_RESET and so on; R_RAW and Q_RAW ask for softplus and floor inside the kernel; FULL promises
that no chunk or block is only part-filled, and comes with sizes and strides as constants, so that
an address is one register and an immediate.
"""

import triton
import triton.language as tl

from kalmanac._ops.scan.gpu.steps import (
    anchored,
    belief,
    filter_step,
    flags,
    lanes,
    noise,
    prefetch,
    rows,
    steps_of,
)

# Sizes and strides, on whose divisibility Triton would otherwise compile anew.
FREE = [
    "T", "S", "K", "N", "out_i", "u_i", "w_i", "r_i", "q_i", "u_t", "w_t", "r_t", "q_t",
    "m_i", "P_i", "mp_i", "Pp_i", "reset_i", "reset_t", "observed_i", "observed_t",
    "gm_i", "gP_i", "gme_i", "gPe_i", "g_i", "gm_t", "gP_t", "g_t",
]  # fmt: skip


@triton.jit
def columns_of(projection, n, inside, N, COUNT: tl.constexpr):
    """COUNT rows of the projection, at these channels."""
    result = ()
    for j in tl.static_range(COUNT):
        result = result + (tl.load(projection + j * N + n, mask=inside, other=0.0),)
    return result


@triton.jit
def projected(
    x, t, stop, x_t, columns,
    HAS_U: tl.constexpr, FULL: tl.constexpr, X: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """C rows of (u, w, r) from X inputs each; the columns of input e are k e … k e + k - 1 of k
    signals, and the last ones are biases."""
    us, ws, rs = (), (), ()
    k: tl.constexpr = 3 if HAS_U else 2
    for j in tl.static_range(C):
        u, w, r = columns[X * k], columns[X * k + k - 2], columns[X * k + k - 1]
        for e in tl.static_range(X):
            at = x + t * x_t + (j * x_t + e)
            seen = tl.load(at) if FULL else tl.load(at, mask=t + j < stop, other=0.0)
            w += seen * columns[e * k + k - 2]
            r += seen * columns[e * k + k - 1]
            if HAS_U:
                u += seen * columns[e * k]
        us, ws, rs = us + (u,), ws + (w,), rs + (r,)
    return us, ws, rs, ()


@triton.jit
def chunk_of_signals(
    signals, strides, t, stop, inside,
    HAS_U: tl.constexpr, Q_VARIES: tl.constexpr, FULL: tl.constexpr, C: tl.constexpr,
    dtype: tl.constexpr,
):  # fmt: skip
    """C rows of each signal: (u, w, r, q), an empty tuple where a signal is absent."""
    u, w, r, q = signals
    u_t, w_t, r_t, q_t = strides
    ws = rows(w, t, stop, inside, 0.0, w_t, C, FULL, dtype)
    rs = rows(r, t, stop, inside, 1.0, r_t, C, FULL, dtype)
    us = rows(u, t, stop, inside, 0.0, u_t, C, FULL, dtype, HAS_U)
    qs = rows(q, t, stop, inside, 1.0, q_t, C, FULL, dtype, Q_VARIES)
    return us, ws, rs, qs


@triton.jit
def prefetch_signals(signals, strides, t, HAS_U: tl.constexpr, C: tl.constexpr):
    """Ask for C rows of u, w and r."""
    for s in tl.static_range(0 if HAS_U else 1, 3):
        prefetch(signals[s], t, strides[s], C)


@triton.jit
def noises_of(signals, floor, RAW: tl.constexpr):
    """The noise variances of a chunk from their signals."""
    result = ()
    for j in tl.static_range(len(signals)):
        result = result + (noise(signals[j], floor, RAW),)
    return result


@triton.jit
def slow_chunk(P, a2, q, qs, rs, reads):
    """Do a chunk's steps, with noises rs, and qs where q varies, change a belief of variance P by
    little? Then, and only then, memory is long, and sums within the chunk do not cancel against
    what stood at its start. Missing readings do not count.
    """
    r_least = tl.where(reads[0], rs[0], 3e38) if len(reads) > 0 else rs[0]
    for j in tl.static_range(1, len(rs)):
        r = tl.where(reads[j], rs[j], 3e38) if len(reads) > 0 else rs[j]
        r_least = tl.minimum(r_least, r)
    for j in tl.static_range(len(qs)):
        q = tl.maximum(q, qs[j]) if j > 0 else qs[j]
    return (a2 > 0.9) & (8.0 * (P + len(rs) * q) <= r_least)


@triton.jit(do_not_specialize=FREE)
def forward(
    a, b, q, u, w, r, m_start, P_start, m_prior, P_prior, lengths, reset, observed,
    mean, variance, m_end, P_end, saved,
    projection, T, S, K, out_i, u_i, w_i, r_i, q_i, m_i, P_i, mp_i, Pp_i,
    reset_i, reset_t, observed_i, observed_t, r_floor: tl.float64, q_floor: tl.float64,
    N, u_t, w_t, r_t, q_t,
    HAS_B: tl.constexpr, HAS_U: tl.constexpr, Q_VARIES: tl.constexpr, HAS_RESET: tl.constexpr,
    HAS_OBSERVED: tl.constexpr, HAS_LENGTHS: tl.constexpr, HAS_PRIOR: tl.constexpr,
    R_RAW: tl.constexpr, Q_RAW: tl.constexpr, FULL: tl.constexpr, HAS_START: tl.constexpr,
    HAS_VARIANCE: tl.constexpr, PREFETCH: tl.constexpr, X: tl.constexpr, C: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Predict and update every step of a segment, then hold the belief (paper, Eqs. 4 to 6)."""
    CHECK: tl.constexpr = HAS_LENGTHS or not FULL  # is every step valid?
    dtype: tl.constexpr = a.dtype.element_ty
    out: tl.constexpr = mean.dtype.element_ty
    segment, _, n, inside = lanes(N, BLOCK)
    i, first, last, stop = steps_of(segment, lengths, T, S, K, HAS_LENGTHS)

    a_ = tl.load(a + n, mask=inside, other=0.0)
    a2 = a_ * a_
    if HAS_B:
        b_ = tl.load(b + n, mask=inside, other=0.0)
    if not Q_VARIES:
        q_ = noise(tl.load(q + n, mask=inside, other=1.0), q_floor, Q_RAW)
    m, P = belief(m_start, P_start, segment * m_i + n, segment * P_i + n, inside, dtype, HAS_START)
    zero = tl.zeros((BLOCK,), dtype)
    m_at, P_at = zero, zero
    if HAS_RESET:
        m_fresh, P_fresh = belief(
            m_prior, P_prior, i * mp_i + n, i * Pp_i + n, inside, dtype, HAS_PRIOR
        )
    signals = u + i * u_i + n, w + i * w_i + n, r + i * r_i + n, q + i * q_i + n
    strides = u_t, w_t, r_t, q_t
    mean_row, variance_row = mean + i * out_i + n, variance + i * out_i + n
    kept = saved + (i * tl.cdiv(T, C) + first // C) * 2 * N + n

    if X > 0:
        columns = columns_of(projection, n, inside, N, (3 if HAS_U else 2) * (X + 1))
    else:
        ahead = chunk_of_signals(
            signals, strides, first, stop, inside, HAS_U, Q_VARIES, FULL, C, dtype
        )
    for t in range(first, last, C):
        if X > 0:
            us, ws, rs, qs = projected(w + i * w_i, t, stop, w_t, columns, HAS_U, FULL, X, C)
        else:
            us, ws, rs, qs = ahead
            following = tl.minimum(t + C, last - C) if FULL else t + C
            ahead = chunk_of_signals(
                signals, strides, following, stop, inside, HAS_U, Q_VARIES, FULL, C, dtype
            )
        if PREFETCH > 0:
            later = tl.minimum(t + (1 + PREFETCH) * C, last - C)
            prefetch_signals(signals, strides, later, HAS_U, C)
        resets = flags(reset + i * reset_i, reset_t, t, stop, HAS_RESET, C)
        reads = flags(observed + i * observed_i, observed_t, t, stop, HAS_OBSERVED, C)
        rs, qs = noises_of(rs, r_floor, R_RAW), noises_of(qs, q_floor, Q_RAW)
        tl.store(kept, m_at + m, mask=inside)
        tl.store(kept + N, P_at + P, mask=inside)
        kept += 2 * N
        slow = slow_chunk(P_at + P, a2, zero if Q_VARIES else q_, qs, rs, reads)
        m_at, m = anchored(m_at, m, slow)
        P_at, P = anchored(P_at, P, slow)
        mean_t, variance_t = mean_row + t * N, variance_row + t * N
        for j in tl.static_range(C):
            if HAS_RESET:
                m_at, m = tl.where(resets[j], 0.0, m_at), tl.where(resets[j], m_fresh, m)
                P_at, P = tl.where(resets[j], 0.0, P_at), tl.where(resets[j], P_fresh, P)
            d = zero
            if HAS_U:
                d = b_ * us[j] if HAS_B else us[j]
            m_new, P_new, _k, _g, _e = filter_step(
                m_at, m, P_at, P, d, a_, a2, qs[j] if Q_VARIES else q_, ws[j], rs[j],
                reads[j] if HAS_OBSERVED else True, not HAS_OBSERVED, True,
            )  # fmt: skip
            if CHECK:
                valid = t + j < stop
                m, P = tl.where(valid, m_new, m), tl.where(valid, P_new, P)
            else:
                m, P = m_new, P_new
            here = None if FULL else inside & (t + j < last)
            tl.store(mean_t + j * N, (m_at + m).to(out), mask=here)
            if HAS_VARIANCE:
                tl.store(variance_t + j * N, (P_at + P).to(out), mask=here)
    if last == T:
        tl.store(m_end + i * N + n, m_at + m, mask=inside)
        tl.store(P_end + i * N + n, P_at + P, mask=inside)
