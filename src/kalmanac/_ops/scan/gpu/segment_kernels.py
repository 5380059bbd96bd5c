"""Kernels that let K segments of one row run at once, for small batches of long sequences.

Forward: `summarise` folds each segment into one associative element, `chain` applies them one after
another to get the belief before every segment, and the plain forward then runs all segments.
Backward: the plain backward first leaves each segment's effect on an adjoint, `chain_adjoint` links
these from the last segment to the first, and the plain backward runs again with what enters.
"""

import triton
import triton.language as tl

from kalmanac._ops.scan.gpu.kalman_kernels import FREE, chunk_of_signals, noises_of, slow_chunk
from kalmanac._ops.scan.gpu.steps import (
    anchored,
    belief,
    filter_step,
    flags,
    lanes,
    noise,
    reciprocal,
    rows,
    steps_of,
)


@triton.jit(do_not_specialize=FREE)
def summarise(
    a, b, q, u, w, r, m_prior, P_prior, lengths, reset, observed, summary,
    T, S, K, u_i, w_i, r_i, q_i, mp_i, Pp_i, reset_i, reset_t, observed_i, observed_t,
    r_floor: tl.float64, q_floor: tl.float64,
    N, u_t, w_t, r_t, q_t,
    HAS_B: tl.constexpr, HAS_U: tl.constexpr, Q_VARIES: tl.constexpr, HAS_RESET: tl.constexpr,
    HAS_OBSERVED: tl.constexpr, HAS_LENGTHS: tl.constexpr, HAS_PRIOR: tl.constexpr,
    R_RAW: tl.constexpr, Q_RAW: tl.constexpr, FULL: tl.constexpr,
    X: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Each segment as a `Filter` element (A, b, C, η, J), step appended to step.

    In place of A stands F = 1 - A, which keeps its digits where a memory is long.
    """
    dtype: tl.constexpr = a.dtype.element_ty
    segment, segments, n, inside = lanes(N, BLOCK)
    i, first, last, stop = steps_of(segment, lengths, T, S, K, HAS_LENGTHS)

    a_ = tl.load(a + n, mask=inside, other=0.0)
    a2 = a_ * a_
    if HAS_B:
        b_ = tl.load(b + n, mask=inside, other=0.0)
    if not Q_VARIES:
        q_ = noise(tl.load(q + n, mask=inside, other=1.0), q_floor, Q_RAW)
    if HAS_RESET:
        m_fresh, P_fresh = belief(
            m_prior, P_prior, i * mp_i + n, i * Pp_i + n, inside, dtype, HAS_PRIOR
        )
    zero = tl.zeros((BLOCK,), dtype)
    F, m, P, eta, J = zero, zero, zero, zero, zero
    m_at, P_at = zero, zero
    signals = u + i * u_i + n, w + i * w_i + n, r + i * r_i + n, q + i * q_i + n
    strides = u_t, w_t, r_t, q_t
    for t in range(first, last, C):
        us, ws, rs, qs = chunk_of_signals(
            signals, strides, t, stop, inside, HAS_U, Q_VARIES, FULL, C, dtype
        )
        resets = flags(reset + i * reset_i, reset_t, t, stop, HAS_RESET, C)
        reads = flags(observed + i * observed_i, observed_t, t, stop, HAS_OBSERVED, C)
        rs, qs = noises_of(rs, r_floor, R_RAW), noises_of(qs, q_floor, Q_RAW)
        slow = slow_chunk(P_at + P, a2, zero if Q_VARIES else q_, qs, rs, reads)
        m_at, m = anchored(m_at, m, slow)
        P_at, P = anchored(P_at, P, slow)
        for j in tl.static_range(C):
            if HAS_RESET:
                F = tl.where(resets[j], 1.0, F)
                m_at, m = tl.where(resets[j], 0.0, m_at), tl.where(resets[j], m_fresh, m)
                P_at, P = tl.where(resets[j], 0.0, P_at), tl.where(resets[j], P_fresh, P)
            d = zero
            if HAS_U:
                d = b_ * us[j] if HAS_B else us[j]
            q_j = qs[j] if Q_VARIES else q_
            inverse = reciprocal(a2 * (P_at + P) + (q_j + rs[j]))
            if HAS_OBSERVED:
                inverse = tl.where(reads[j], inverse, 0.0)
            m_new, P_new, k, g, e = filter_step(
                m_at, m, P_at, P, d, a_, a2, q_j, ws[j], rs[j],
                reads[j] if HAS_OBSERVED else True, not HAS_OBSERVED, True,
            )  # fmt: skip
            aA = a_ * (1.0 - F)
            valid = t + j < stop
            J = tl.where(valid, J + aA * aA * inverse, J)
            eta = tl.where(valid, eta + aA * e, eta)
            m = tl.where(valid, m_new, m)
            P = tl.where(valid, P_new, P)
            F = tl.where(valid, (1.0 - a_) + a_ * (k + g * F), F)
    m, P = m_at + m, P_at + P

    here = segment * N + n
    tl.store(summary + here, F, mask=inside)
    tl.store(summary + segments * N + here, m, mask=inside)
    tl.store(summary + 2 * segments * N + here, P, mask=inside)
    tl.store(summary + 3 * segments * N + here, eta, mask=inside)
    tl.store(summary + 4 * segments * N + here, J, mask=inside)


@triton.jit
def moved(x, change):
    """x + change, and what rounding left of the change."""
    y = x + change
    return y, change - (y - x)


@triton.jit(do_not_specialize=FREE)
def chain(
    summary, m_start, P_start, starts, K, m_i, P_i, N,
    HAS_START: tl.constexpr, AHEAD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The belief before every segment: each element applied to the belief before it."""
    dtype: tl.constexpr = summary.dtype.element_ty
    i, count, n, inside = lanes(N, BLOCK)
    size = count * K * N
    m, P = belief(m_start, P_start, i * m_i + n, i * P_i + n, inside, dtype, HAS_START)
    m_rest, P_rest = tl.zeros((BLOCK,), dtype), tl.zeros((BLOCK,), dtype)
    row = summary + i * K * N
    for s in range(0, K, AHEAD):
        Fs = rows(row + n, s, K, inside, 0.0, N, AHEAD, False, dtype)
        bs = rows(row + size + n, s, K, inside, 0.0, N, AHEAD, False, dtype)
        Cs = rows(row + 2 * size + n, s, K, inside, 0.0, N, AHEAD, False, dtype)
        etas = rows(row + 3 * size + n, s, K, inside, 0.0, N, AHEAD, False, dtype)
        Js = rows(row + 4 * size + n, s, K, inside, 0.0, N, AHEAD, False, dtype)
        for j in tl.static_range(AHEAD):
            here = (i * K + s + j) * N + n
            mask = inside & (s + j < K)
            tl.store(starts + here, m, mask=mask)
            tl.store(starts + size + here, P, mask=mask)
            # A' = A / (1 + P J), m ← A' (m + P η) + b, P ← A' A P + C; summed up by the change
            # where memory is long, elsewhere that would cancel
            A, F, PJ = 1.0 - Fs[j], Fs[j], P * Js[j]
            long, inverse = F + PJ < 0.5, reciprocal(1.0 + PJ)
            m_off = tl.where(long, m_rest - (F + PJ) * inverse * m, A * inverse * m)
            P_off = tl.where(long, P_rest - (F * (1.0 + A) + PJ) * inverse * P, A * inverse * A * P)
            m_off += A * inverse * P * etas[j] + bs[j]
            P_off += Cs[j]
            m, m_rest = moved(tl.where(long, m, 0.0), m_off)
            P, P_rest = moved(tl.where(long, P, 0.0), P_off)


@triton.jit(do_not_specialize=FREE)
def chain_adjoint(
    summary, g_m_end, g_P_end, ends, K, gm_i, gP_i, N,
    HAS_G_END: tl.constexpr, AHEAD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The adjoint (μ, π) that enters every segment at its end, from the last segment back."""
    dtype: tl.constexpr = summary.dtype.element_ty
    i, count, n, inside = lanes(N, BLOCK)
    size = count * K * N
    mu = tl.zeros((BLOCK,), dtype)
    pi = tl.zeros((BLOCK,), dtype)
    if HAS_G_END:
        mu += tl.load(g_m_end + i * gm_i + n, mask=inside, other=0.0)
        pi += tl.load(g_P_end + i * gP_i + n, mask=inside, other=0.0)
    mu_rest, pi_rest = tl.zeros((BLOCK,), dtype), tl.zeros((BLOCK,), dtype)
    row = summary + i * K * N
    for c in range(tl.cdiv(K, AHEAD)):
        s = (tl.cdiv(K, AHEAD) - 1 - c) * AHEAD
        Fs = rows(row + n, s, K, inside, 0.0, N, AHEAD, False, dtype)
        Gs = rows(row + size + n, s, K, inside, 0.0, N, AHEAD, False, dtype)
        mus = rows(row + 2 * size + n, s, K, inside, 0.0, N, AHEAD, False, dtype)
        pis = rows(row + 3 * size + n, s, K, inside, 0.0, N, AHEAD, False, dtype)
        for j in tl.static_range(AHEAD - 1, -1, -1):
            here = (i * K + s + j) * N + n
            mask = inside & (s + j < K)
            tl.store(ends + here, mu, mask=mask)
            tl.store(ends + size + here, pi, mask=mask)
            # μ ← A μ + v₁, π ← A² π + Γ μ + v₂, as in `chain`; rows past K are zeros
            A, F = 1.0 - Fs[j], Fs[j]
            long = F < 0.5
            pi_off = tl.where(long, pi_rest - F * (1.0 + A) * pi, A * A * pi) + Gs[j] * mu + pis[j]
            mu_off = tl.where(long, mu_rest - F * mu, A * mu) + mus[j]
            mu, mu_rest = moved(tl.where(long, mu, 0.0), mu_off)
            pi, pi_rest = moved(tl.where(long, pi, 0.0), pi_off)


@triton.jit(do_not_specialize=["R", "N"])
def total(
    partials, first, second, third, rest, parts, R, N, TILE: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Sums of (parts, P, R, N) over parts and R, always in the same order: three outputs (N,),
    which must not share memory, and the rest, (P - 3, N)."""
    which = tl.program_id(0)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    k = tl.arange(0, TILE)
    sums = tl.zeros((TILE, BLOCK), partials.dtype.element_ty)
    for part in range(parts):
        begin = (part * tl.num_programs(0) + which).to(tl.int64) * R
        for s in range(0, R, TILE):
            at = (begin + s + k[:, None]) * N + n[None, :]
            sums += tl.load(partials + at, mask=(s + k[:, None] < R) & (n[None, :] < N), other=0.0)
    x = tl.sum(sums, 0)
    tl.store(first + n, x, mask=(which == 0) & (n < N))
    tl.store(second + n, x, mask=(which == 1) & (n < N))
    tl.store(third + n, x, mask=(which == 2) & (n < N))
    tl.store(rest + (which - 3) * N + n, x, mask=(which > 2) & (n < N))
