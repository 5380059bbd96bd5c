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

from kalmanac.ops.gpu.steps import (
    belief,
    filter_step,
    flags,
    noise,
    reciprocal,
    rows,
    slope,
    stop_of,
)

# Sizes and strides, on whose divisibility Triton would otherwise compile anew.
FREE = [
    "T",
    "S",
    "K",
    "N",
    "u_i",
    "w_i",
    "r_i",
    "q_i",
    "u_t",
    "w_t",
    "r_t",
    "q_t",
    "m_i",
    "P_i",
    "mp_i",
    "Pp_i",
    "reset_i",
    "reset_t",
    "observed_i",
    "observed_t",
    "gm_i",
    "gP_i",
    "gme_i",
    "gPe_i",
    "g_i",
    "gm_t",
    "gP_t",
    "g_t",
]


@triton.jit
def chunk_of_signals(
    u, w, r, q, t, stop, inside,
    u_t, w_t, r_t, q_t,
    HAS_U: tl.constexpr, Q_VARIES: tl.constexpr, FULL: tl.constexpr, C: tl.constexpr,
    dtype: tl.constexpr,
):  # fmt: skip
    """C rows of each signal: (u, w, r, q), an empty tuple where a signal is absent."""
    us, qs = (), ()
    ws = rows(w, t, stop, inside, 0.0, w_t, C, FULL, dtype)
    rs = rows(r, t, stop, inside, 1.0, r_t, C, FULL, dtype)
    if HAS_U:
        us = rows(u, t, stop, inside, 0.0, u_t, C, FULL, dtype)
    if Q_VARIES:
        qs = rows(q, t, stop, inside, 1.0, q_t, C, FULL, dtype)
    return us, ws, rs, qs


@triton.jit(do_not_specialize=FREE)
def forward(
    a, b, q, u, w, r, m_start, P_start, m_prior, P_prior, lengths, reset, observed,
    mean, variance, m_end, P_end, saved,
    T, S, K, u_i, w_i, r_i, q_i, m_i, P_i, mp_i, Pp_i,
    reset_i, reset_t, observed_i, observed_t, r_floor, q_floor,
    N, u_t, w_t, r_t, q_t,
    HAS_B: tl.constexpr, HAS_U: tl.constexpr, Q_VARIES: tl.constexpr, HAS_RESET: tl.constexpr,
    HAS_OBSERVED: tl.constexpr, HAS_LENGTHS: tl.constexpr, HAS_PRIOR: tl.constexpr,
    R_RAW: tl.constexpr, Q_RAW: tl.constexpr, FULL: tl.constexpr, HAS_START: tl.constexpr,
    C: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Predict and update every step of a segment, then hold the belief (paper, Eqs. 4 to 6)."""
    CHECK: tl.constexpr = HAS_LENGTHS or not FULL  # is every step valid?
    dtype: tl.constexpr = a.dtype.element_ty
    out: tl.constexpr = mean.dtype.element_ty
    blocks = tl.cdiv(N, BLOCK)
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
    m, P = belief(m_start, P_start, segment * m_i + n, segment * P_i + n, inside, dtype, HAS_START)
    zero = tl.zeros((BLOCK,), dtype)
    m_lost, P_lost = zero, zero
    if HAS_RESET:
        m_fresh, P_fresh = belief(
            m_prior, P_prior, i * mp_i + n, i * Pp_i + n, inside, dtype, HAS_PRIOR
        )
    u_row, w_row, r_row, q_row = u + i * u_i + n, w + i * w_i + n, r + i * r_i + n, q + i * q_i + n
    mean_row, variance_row = mean + i * T * N + n, variance + i * T * N + n
    kept = saved + (i * tl.cdiv(T, C) + first // C) * 2 * N + n

    ahead = chunk_of_signals(
        u_row, w_row, r_row, q_row, first, stop, inside, u_t, w_t, r_t, q_t,
        HAS_U, Q_VARIES, FULL, C, dtype,
    )  # fmt: skip
    for t in range(first, last, C):
        us, ws, rs, qs = ahead
        ahead = chunk_of_signals(
            u_row, w_row, r_row, q_row, tl.minimum(t + C, last - C) if FULL else t + C,
            stop, inside, u_t, w_t, r_t, q_t, HAS_U, Q_VARIES, FULL, C, dtype,
        )  # fmt: skip
        if HAS_RESET:
            resets = flags(reset + i * reset_i, reset_t, t, stop, C)
        if HAS_OBSERVED:
            reads = flags(observed + i * observed_i, observed_t, t, stop, C)
        tl.store(kept, m, mask=inside)
        tl.store(kept + N, P, mask=inside)
        kept += 2 * N
        mean_t, variance_t = mean_row + t * N, variance_row + t * N
        for j in tl.static_range(C):
            if HAS_RESET:
                m = tl.where(resets[j], m_fresh, m)
                P = tl.where(resets[j], P_fresh, P)
                m_lost = tl.where(resets[j], 0.0, m_lost)
                P_lost = tl.where(resets[j], 0.0, P_lost)
            d = zero
            if HAS_U:
                d = b_ * us[j] if HAS_B else us[j]
            m_new, P_new, m_lost_new, P_lost_new = filter_step(
                m, P, m_lost, P_lost, d, a_, a2, noise(qs[j], q_floor, Q_RAW) if Q_VARIES else q_,
                ws[j], noise(rs[j], r_floor, R_RAW), reads[j] if HAS_OBSERVED else True,
                not HAS_OBSERVED,
            )  # fmt: skip
            if CHECK:
                valid = t + j < stop
                m = tl.where(valid, m_new, m)
                P = tl.where(valid, P_new, P)
                m_lost = tl.where(valid, m_lost_new, m_lost)
                P_lost = tl.where(valid, P_lost_new, P_lost)
            else:
                m, P, m_lost, P_lost = m_new, P_new, m_lost_new, P_lost_new
            here = None if FULL else inside & (t + j < last)
            tl.store(mean_t + j * N, m.to(out), mask=here)
            tl.store(variance_t + j * N, P.to(out), mask=here)
    if last == T:
        tl.store(m_end + i * N + n, m, mask=inside)
        tl.store(P_end + i * N + n, P, mask=inside)


@triton.jit
def chunk_of_gradients(
    g_mean, g_variance, t, last, inside, gm_t, gP_t,
    HAS_G_MEAN: tl.constexpr, HAS_G_VARIANCE: tl.constexpr, FULL: tl.constexpr, C: tl.constexpr,
    dtype: tl.constexpr,
):  # fmt: skip
    """C rows of the gradients of mean and variance, an empty tuple where there is none."""
    gms, gPs = (), ()
    if HAS_G_MEAN:
        gms = rows(g_mean, t, last, inside, 0.0, gm_t, C, FULL, dtype)
    if HAS_G_VARIANCE:
        gPs = rows(g_variance, t, last, inside, 0.0, gP_t, C, FULL, dtype)
    return gms, gPs


@triton.jit(do_not_specialize=FREE)
def backward(
    a, b, q, u, w, r, m_prior, P_prior, lengths, reset, observed, saved,
    g_mean, g_variance, g_m_end, g_P_end,
    g_parameters, g_u, g_w, g_r, g_q, g_m_start, g_P_start, g_m_prior, g_P_prior, summary,
    T, S, K, u_i, w_i, r_i, q_i, mp_i, Pp_i, reset_i, reset_t, observed_i, observed_t,
    gm_i, gP_i, gme_i, gPe_i, g_i, r_floor, q_floor,
    N, u_t, w_t, r_t, q_t,
    gm_t, gP_t, g_t,
    HAS_B: tl.constexpr, HAS_U: tl.constexpr, Q_VARIES: tl.constexpr, HAS_RESET: tl.constexpr,
    HAS_OBSERVED: tl.constexpr, HAS_LENGTHS: tl.constexpr, HAS_PRIOR: tl.constexpr,
    R_RAW: tl.constexpr, Q_RAW: tl.constexpr, FULL: tl.constexpr,
    HAS_G_MEAN: tl.constexpr, HAS_G_VARIANCE: tl.constexpr, HAS_G_END: tl.constexpr,
    SUMMARY: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The closed-form adjoint (μ, π) of the belief, from a segment's last step to its first.

    The gradients of a, b and a constant q leave as one partial sum per segment in `g_parameters`
    (3, B·K, N), to be added in a fixed order. With SUMMARY, nothing is written but the segment's
    effect on an adjoint that enters at its end: (A, Γ, v₁, v₂) with μ ← A μ + v₁ and
    π ← A² π + Γ μ + v₂.
    """
    CHECK: tl.constexpr = HAS_LENGTHS or not FULL  # is every step valid?
    dtype: tl.constexpr = a.dtype.element_ty
    out: tl.constexpr = g_w.dtype.element_ty
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
        q_raw = tl.load(q + n, mask=inside, other=1.0)
        q_ = noise(q_raw, q_floor, Q_RAW)
    if HAS_RESET:
        m_fresh, P_fresh = belief(
            m_prior, P_prior, i * mp_i + n, i * Pp_i + n, inside, dtype, HAS_PRIOR
        )
    zero = tl.zeros((BLOCK,), dtype)
    mu, pi, sum_a, sum_b, sum_q, m_back, P_back = zero, zero, zero, zero, zero, zero, zero
    A, G = zero + 1.0, zero
    if HAS_G_END:
        mu += tl.load(g_m_end + segment * gme_i + n, mask=inside, other=0.0)
        pi += tl.load(g_P_end + segment * gPe_i + n, mask=inside, other=0.0)
    u_row, w_row, r_row, q_row = u + i * u_i + n, w + i * w_i + n, r + i * r_i + n, q + i * q_i + n
    gm_row, gP_row = g_mean + i * gm_i + n, g_variance + i * gP_i + n

    chunks = tl.cdiv(last - first, C)
    t = first + (chunks - 1) * C
    kept = saved + (i * tl.cdiv(T, C) + t // C) * 2 * N + n
    m_ahead = tl.load(kept, mask=inside, other=0.0)
    P_ahead = tl.load(kept + N, mask=inside, other=1.0)
    ahead = chunk_of_signals(
        u_row, w_row, r_row, q_row, t, stop, inside, u_t, w_t, r_t, q_t,
        HAS_U, Q_VARIES, FULL, C, dtype,
    )  # fmt: skip
    given_ahead = chunk_of_gradients(
        gm_row, gP_row, t, last, inside, gm_t, gP_t, HAS_G_MEAN, HAS_G_VARIANCE, FULL, C, dtype
    )
    for chunk in range(0, chunks):
        t = first + (chunks - 1 - chunk) * C
        m, P = m_ahead, P_ahead
        us, ws, rs, qs = ahead
        gms, gPs = given_ahead
        before = tl.maximum(t - C, first)
        kept = saved + (i * tl.cdiv(T, C) + before // C) * 2 * N + n
        m_ahead = tl.load(kept, mask=inside, other=0.0)
        P_ahead = tl.load(kept + N, mask=inside, other=1.0)
        ahead = chunk_of_signals(
            u_row, w_row, r_row, q_row, before, stop, inside, u_t, w_t, r_t, q_t,
            HAS_U, Q_VARIES, FULL, C, dtype,
        )  # fmt: skip
        given_ahead = chunk_of_gradients(
            gm_row, gP_row, before, last, inside, gm_t, gP_t,
            HAS_G_MEAN, HAS_G_VARIANCE, FULL, C, dtype,
        )  # fmt: skip
        if HAS_RESET:
            resets = flags(reset + i * reset_i, reset_t, t, stop, C)
        if HAS_OBSERVED:
            reads = flags(observed + i * observed_i, observed_t, t, stop, C)

        # replay: the belief and the predicted mean before each step, and the step's noise
        ms, Ps, xs, noises = (), (), (), ()
        m_lost, P_lost = zero, zero
        for j in tl.static_range(C):
            if HAS_RESET:
                m = tl.where(resets[j], m_fresh, m)
                P = tl.where(resets[j], P_fresh, P)
                m_lost = tl.where(resets[j], 0.0, m_lost)
                P_lost = tl.where(resets[j], 0.0, P_lost)
            r_ = noise(rs[j], r_floor, R_RAW)
            d = zero
            if HAS_U:
                d = b_ * us[j] if HAS_B else us[j]
            x = a_ * m + d
            ms, Ps, xs, noises = ms + (m,), Ps + (P,), xs + (x,), noises + (r_,)
            m_new, P_new, m_lost_new, P_lost_new = filter_step(
                m, P, m_lost, P_lost, d, a_, a2, noise(qs[j], q_floor, Q_RAW) if Q_VARIES else q_,
                ws[j], r_, reads[j] if HAS_OBSERVED else True, not HAS_OBSERVED,
            )  # fmt: skip
            if CHECK:
                valid = t + j < stop
                m = tl.where(valid, m_new, m)
                P = tl.where(valid, P_new, P)
                m_lost = tl.where(valid, m_lost_new, m_lost)
                P_lost = tl.where(valid, P_lost_new, P_lost)
            else:
                m, P, m_lost, P_lost = m_new, P_new, m_lost_new, P_lost_new

        at = i * g_i + t * g_t + n
        for j in tl.static_range(C - 1, -1, -1):
            valid = t + j < stop
            if HAS_G_MEAN:
                mu += gms[j]
            if HAS_G_VARIANCE:
                pi += gPs[j]
            q_j = noise(qs[j], q_floor, Q_RAW) if Q_VARIES else q_
            p = a2 * Ps[j] + q_j
            inverse = reciprocal(a2 * Ps[j] + (q_j + noises[j]))
            k = p * inverse
            g = noises[j] * inverse
            e = (ws[j] - xs[j]) * inverse
            if HAS_OBSERVED:
                k = tl.where(reads[j], k, 0.0)
                g = tl.where(reads[j], g, 1.0)
                e = tl.where(reads[j], e, 0.0)
            c_bar = g * mu
            p_bar = g * (mu * e + pi * g)
            if CHECK:
                c_bar = tl.where(valid, c_bar, 0.0)
                p_bar = tl.where(valid, p_bar, 0.0)
            if SUMMARY:
                ag = a_ * g
                G_new, A_new = ag * ag * G + a_ * ag * e * A, ag * A
                G = tl.where(valid, G_new, G) if CHECK else G_new
                A = tl.where(valid, A_new, A) if CHECK else A_new
            else:
                r_bar, w_bar, q_bar = k * (pi * k - mu * e), k * mu, p_bar
                if R_RAW:
                    r_bar *= slope(rs[j])
                    if HAS_OBSERVED:  # what stands at a missing reading may be NaN
                        r_bar = tl.where(reads[j], r_bar, 0.0)
                if Q_VARIES and Q_RAW:
                    q_bar *= slope(qs[j])
                if CHECK:
                    r_bar = tl.where(valid, r_bar, 0.0)
                    w_bar = tl.where(valid, w_bar, 0.0)
                    q_bar = tl.where(valid, q_bar, 0.0)
                here = None if FULL else inside & (t + j < last)
                to = at + j * g_t
                tl.store(g_r + to, r_bar.to(out), mask=here)
                tl.store(g_w + to, w_bar.to(out), mask=here)
                sum_a += c_bar * ms[j] + 2.0 * a_ * Ps[j] * p_bar
                if HAS_U:
                    u_seen = tl.where(valid, us[j], 0.0) if CHECK else us[j]
                    sum_b += u_seen * c_bar
                    u_bar = b_ * c_bar if HAS_B else c_bar
                    tl.store(g_u + to, u_bar.to(out), mask=here)
                if Q_VARIES:
                    tl.store(g_q + to, q_bar.to(out), mask=here)
                else:
                    sum_q += q_bar
            mu = tl.where(valid, a_ * c_bar, mu) if CHECK else a_ * c_bar
            pi = tl.where(valid, a2 * p_bar, pi) if CHECK else a2 * p_bar
            if HAS_RESET:
                m_back += tl.where(resets[j], mu, 0.0)
                P_back += tl.where(resets[j], pi, 0.0)
                mu = tl.where(resets[j], 0.0, mu)
                pi = tl.where(resets[j], 0.0, pi)
                A = tl.where(resets[j], 0.0, A)
                G = tl.where(resets[j], 0.0, G)

    here = segment * N + n
    if SUMMARY:
        tl.store(summary + here, A, mask=inside)
        tl.store(summary + segments * N + here, G, mask=inside)
        tl.store(summary + 2 * segments * N + here, mu, mask=inside)
        tl.store(summary + 3 * segments * N + here, pi, mask=inside)
    else:
        tl.store(g_parameters + here, sum_a, mask=inside)
        tl.store(g_parameters + segments * N + here, sum_b, mask=inside)
        if not Q_VARIES:
            if Q_RAW:
                sum_q *= slope(q_raw)
            tl.store(g_parameters + 2 * segments * N + here, sum_q, mask=inside)
        if first == 0:
            tl.store(g_m_start + i * N + n, mu, mask=inside)
            tl.store(g_P_start + i * N + n, pi, mask=inside)
        if HAS_RESET:
            tl.store(g_m_prior + here, m_back, mask=inside)
            tl.store(g_P_prior + here, P_back, mask=inside)
