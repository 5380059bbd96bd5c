"""Kernels that let K segments of one row run at once, for small batches of long sequences.

Forward: `summarise` folds each segment into one associative element, `chain` applies them one after
another to get the belief before every segment, and the plain forward then runs all segments.
Backward: the plain backward first leaves each segment's effect on an adjoint, `chain_adjoint` links
these from the last segment to the first, and the plain backward runs again with what enters.
"""

import triton
import triton.language as tl

from kalmanac.ops.gpu.kalman_kernels import FREE, chunk_of_signals
from kalmanac.ops.gpu.steps import belief, filter_step, flags, noise, reciprocal, rows, stop_of


@triton.jit(do_not_specialize=FREE)
def summarise(
    a, b, q, u, w, r, m_prior, P_prior, lengths, reset, observed, summary,
    T, S, K, u_i, w_i, r_i, q_i, mp_i, Pp_i, reset_i, reset_t, observed_i, observed_t,
    r_floor, q_floor,
    N, u_t, w_t, r_t, q_t,
    HAS_B: tl.constexpr, HAS_U: tl.constexpr, Q_VARIES: tl.constexpr, HAS_RESET: tl.constexpr,
    HAS_OBSERVED: tl.constexpr, HAS_LENGTHS: tl.constexpr, HAS_PRIOR: tl.constexpr,
    R_RAW: tl.constexpr, Q_RAW: tl.constexpr, FULL: tl.constexpr,
    C: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Each segment as a `Filter` element (A, b, C, η, J), step appended to step."""
    dtype: tl.constexpr = a.dtype.element_ty
    blocks = tl.cdiv(N, BLOCK)
    segments = (tl.num_programs(0) // blocks).to(tl.int64)
    segment = (tl.program_id(0) // blocks).to(tl.int64)
    n = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    inside = n < N
    i = segment // K
    first = (segment % K).to(tl.int32) * S
    last = tl.minimum(first + S, T)
    stop = stop_of(lengths, i, last, HAS_LENGTHS)

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
    A, m, P, eta, J = zero + 1.0, zero, zero, zero, zero
    m_lost, P_lost = zero, zero

    for t in range(first, last, C):
        us, ws, rs, qs = chunk_of_signals(
            u + i * u_i + n, w + i * w_i + n, r + i * r_i + n, q + i * q_i + n, t, stop, inside,
            u_t, w_t, r_t, q_t, HAS_U, Q_VARIES, FULL, C, dtype,
        )  # fmt: skip
        if HAS_RESET:
            resets = flags(reset + i * reset_i, reset_t, t, stop, C)
        if HAS_OBSERVED:
            reads = flags(observed + i * observed_i, observed_t, t, stop, C)
        for j in tl.static_range(C):
            if HAS_RESET:
                A = tl.where(resets[j], 0.0, A)
                m = tl.where(resets[j], m_fresh, m)
                P = tl.where(resets[j], P_fresh, P)
                m_lost = tl.where(resets[j], 0.0, m_lost)
                P_lost = tl.where(resets[j], 0.0, P_lost)
            d = zero
            if HAS_U:
                d = b_ * us[j] if HAS_B else us[j]
            q_j = noise(qs[j], q_floor, Q_RAW) if Q_VARIES else q_
            r_j = noise(rs[j], r_floor, R_RAW)
            read = reads[j] if HAS_OBSERVED else True
            inverse = reciprocal(a2 * P + (q_j + r_j))
            g = r_j * inverse
            e = (ws[j] - (a_ * m + d)) * inverse
            if HAS_OBSERVED:
                g = tl.where(read, g, 1.0)
                e = tl.where(read, e, 0.0)
                inverse = tl.where(read, inverse, 0.0)
            m_new, P_new, m_lost_new, P_lost_new = filter_step(
                m, P, m_lost, P_lost, d, a_, a2, q_j, ws[j], r_j, read, not HAS_OBSERVED
            )
            aA = a_ * A
            valid = t + j < stop
            J = tl.where(valid, J + aA * aA * inverse, J)
            eta = tl.where(valid, eta + aA * e, eta)
            m = tl.where(valid, m_new, m)
            P = tl.where(valid, P_new, P)
            m_lost = tl.where(valid, m_lost_new, m_lost)
            P_lost = tl.where(valid, P_lost_new, P_lost)
            A = tl.where(valid, aA * g, A)

    here = segment * N + n
    tl.store(summary + here, A, mask=inside)
    tl.store(summary + segments * N + here, m, mask=inside)
    tl.store(summary + 2 * segments * N + here, P, mask=inside)
    tl.store(summary + 3 * segments * N + here, eta, mask=inside)
    tl.store(summary + 4 * segments * N + here, J, mask=inside)


@triton.jit(do_not_specialize=["K", "N", "m_i", "P_i", "gm_i", "gP_i"])
def chain(
    summary, m_start, P_start, starts, K, m_i, P_i, N,
    HAS_START: tl.constexpr, AHEAD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The belief before every segment: each element applied to the belief before it."""
    dtype: tl.constexpr = summary.dtype.element_ty
    blocks = tl.cdiv(N, BLOCK)
    size = (tl.num_programs(0) // blocks).to(tl.int64) * K * N
    i = (tl.program_id(0) // blocks).to(tl.int64)
    n = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    inside = n < N
    m, P = belief(m_start, P_start, i * m_i + n, i * P_i + n, inside, dtype, HAS_START)
    row = summary + i * K * N
    for s in range(0, K, AHEAD):
        As = rows(row + n, s, K, inside, 0.0, N, AHEAD, False, dtype)
        bs = rows(row + size + n, s, K, inside, 0.0, N, AHEAD, False, dtype)
        Cs = rows(row + 2 * size + n, s, K, inside, 0.0, N, AHEAD, False, dtype)
        etas = rows(row + 3 * size + n, s, K, inside, 0.0, N, AHEAD, False, dtype)
        Js = rows(row + 4 * size + n, s, K, inside, 0.0, N, AHEAD, False, dtype)
        for j in tl.static_range(AHEAD):
            here = (i * K + s + j) * N + n
            mask = inside & (s + j < K)
            tl.store(starts + here, m, mask=mask)
            tl.store(starts + size + here, P, mask=mask)
            A = As[j] * reciprocal(1.0 + P * Js[j])
            m = A * (m + P * etas[j]) + bs[j]
            P = A * As[j] * P + Cs[j]


@triton.jit(do_not_specialize=["K", "N", "m_i", "P_i", "gm_i", "gP_i"])
def chain_adjoint(
    summary, g_m_end, g_P_end, ends, K, gm_i, gP_i, N,
    HAS_G_END: tl.constexpr, AHEAD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The adjoint (μ, π) that enters every segment at its end, from the last segment back."""
    dtype: tl.constexpr = summary.dtype.element_ty
    blocks = tl.cdiv(N, BLOCK)
    size = (tl.num_programs(0) // blocks).to(tl.int64) * K * N
    i = (tl.program_id(0) // blocks).to(tl.int64)
    n = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    inside = n < N
    mu = tl.zeros((BLOCK,), dtype)
    pi = tl.zeros((BLOCK,), dtype)
    if HAS_G_END:
        mu += tl.load(g_m_end + i * gm_i + n, mask=inside, other=0.0)
        pi += tl.load(g_P_end + i * gP_i + n, mask=inside, other=0.0)
    row = summary + i * K * N
    for c in range(0, tl.cdiv(K, AHEAD)):
        s = (tl.cdiv(K, AHEAD) - 1 - c) * AHEAD
        As = rows(row + n, s, K, inside, 0.0, N, AHEAD, False, dtype)
        Gs = rows(row + size + n, s, K, inside, 0.0, N, AHEAD, False, dtype)
        mus = rows(row + 2 * size + n, s, K, inside, 0.0, N, AHEAD, False, dtype)
        pis = rows(row + 3 * size + n, s, K, inside, 0.0, N, AHEAD, False, dtype)
        for j in tl.static_range(AHEAD - 1, -1, -1):
            here = (i * K + s + j) * N + n
            mask = inside & (s + j < K)
            tl.store(ends + here, mu, mask=mask)
            tl.store(ends + size + here, pi, mask=mask)
            new_pi = As[j] * As[j] * pi + Gs[j] * mu + pis[j]
            mu = tl.where(s + j < K, As[j] * mu + mus[j], mu)
            pi = tl.where(s + j < K, new_pi, pi)


@triton.jit(do_not_specialize=["R", "N"])
def total(partials, first, second, third, R, N, TILE: tl.constexpr, BLOCK: tl.constexpr):
    """Sums of (3, R, N) over R, always in the same order, one for each of three outputs (N,)."""
    which = tl.program_id(0)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    k = tl.arange(0, TILE)
    sums = tl.zeros((TILE, BLOCK), partials.dtype.element_ty)
    for s in range(0, R, TILE):
        at = (which.to(tl.int64) * R + s + k[:, None]) * N + n[None, :]
        sums += tl.load(partials + at, mask=(s + k[:, None] < R) & (n[None, :] < N), other=0.0)
    x = tl.sum(sums, 0)
    tl.store(first + n, x, mask=(which == 0) & (n < N))
    tl.store(second + n, x, mask=(which == 1) & (n < N))
    tl.store(third + n, x, mask=(which == 2) & (n < N))
