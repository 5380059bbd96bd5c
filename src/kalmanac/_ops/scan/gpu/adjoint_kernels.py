"""The closed-form backward of the Kalman scan: adjoints from a segment's last step to its first.

It walks in the forward's chunks, replays each from the belief saved before it, and then takes the
chunk's steps in reverse. Layout, constants and chunks are those of `kalman_kernels`.
"""

import triton
import triton.language as tl

from kalmanac._ops.scan.gpu.kalman_kernels import (
    FREE,
    chunk_of_signals,
    columns_of,
    noises_of,
    prefetch_signals,
    projected,
    slow_chunk,
)
from kalmanac._ops.scan.gpu.steps import (
    anchored,
    belief,
    filter_step,
    flags,
    lanes,
    noise,
    prefetch,
    rows,
    slope,
    steps_of,
)


@triton.jit
def collected(at, off):
    """Sums at + off with `off` moved over, up to what rounding leaves for the next time."""
    whole, rest = (), ()
    for j in tl.static_range(4):
        x = at[j] + off[j]
        whole, rest = whole + (x,), rest + (off[j] - (x - at[j]),)
    return whole, rest


@triton.jit
def with_step(sums, bars, x, valid, FULL: tl.constexpr, X: tl.constexpr):
    """Sums over steps of the signals' gradients times X inputs and a one, with one more step."""
    found = ()
    for e in tl.static_range(X + 1):
        seen = 1.0
        if e < X:
            seen = tl.load(x + e) if FULL else tl.load(x + e, mask=valid, other=0.0)
        for s in tl.static_range(len(bars)):
            found = found + (sums[e * len(bars) + s] + bars[s] * seen,)
    return found


@triton.jit(do_not_specialize=FREE)
def backward(
    a, b, q, u, w, r, m_prior, P_prior, lengths, reset, observed, saved,
    g_mean, g_variance, g_m_end, g_P_end,
    g_parameters, g_u, g_w, g_r, g_q, g_m_start, g_P_start, g_m_prior, g_P_prior, summary,
    projection, T, S, K, u_i, w_i, r_i, q_i, mp_i, Pp_i, reset_i, reset_t, observed_i, observed_t,
    gm_i, gP_i, gme_i, gPe_i, g_i, r_floor: tl.float64, q_floor: tl.float64,
    N, u_t, w_t, r_t, q_t,
    gm_t, gP_t, g_t,
    HAS_B: tl.constexpr, HAS_U: tl.constexpr, Q_VARIES: tl.constexpr, HAS_RESET: tl.constexpr,
    HAS_OBSERVED: tl.constexpr, HAS_LENGTHS: tl.constexpr, HAS_PRIOR: tl.constexpr,
    R_RAW: tl.constexpr, Q_RAW: tl.constexpr, FULL: tl.constexpr,
    HAS_G_MEAN: tl.constexpr, HAS_G_VARIANCE: tl.constexpr, HAS_G_END: tl.constexpr,
    SUMMARY: tl.constexpr, PREFETCH: tl.constexpr, X: tl.constexpr, C: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The closed-form adjoint (μ, π) of the belief, from a segment's last step to its first.

    The gradients of a, b and a constant q leave as one partial sum per segment in `g_parameters`
    (3, B·K, N), to be added in a fixed order; with X > 0 also those of the projection, behind
    them, in the place of the signals' own. With SUMMARY, nothing is written but the segment's
    effect on an adjoint that enters at its end: (F, Γ, v₁, v₂) with A = 1 - F, μ ← A μ + v₁ and
    π ← A² π + Γ μ + v₂.
    """
    CHECK: tl.constexpr = HAS_LENGTHS or not FULL  # is every step valid?
    dtype: tl.constexpr = a.dtype.element_ty
    out: tl.constexpr = g_w.dtype.element_ty
    segment, segments, n, inside = lanes(N, BLOCK)
    i, first, last, stop = steps_of(segment, lengths, T, S, K, HAS_LENGTHS)

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
    mu_at, mu, pi_at, pi, m_back, P_back = zero, zero, zero, zero, zero, zero
    sums_at, sums = (zero, zero, zero, zero), (zero, zero, zero, zero)
    F, G = zero, zero
    if HAS_G_END:
        mu += tl.load(g_m_end + segment * gme_i + n, mask=inside, other=0.0)
        pi += tl.load(g_P_end + segment * gPe_i + n, mask=inside, other=0.0)
    signals = u + i * u_i + n, w + i * w_i + n, r + i * r_i + n, q + i * q_i + n
    strides = u_t, w_t, r_t, q_t
    COLUMNS: tl.constexpr = (3 if HAS_U else 2) * (X + 1) if X > 0 else 0
    columns = columns_of(projection, n, inside, N, COLUMNS)
    of_columns = ()
    for _ in tl.static_range(COLUMNS):
        of_columns = of_columns + (zero,)
    gm_row, gP_row = g_mean + i * gm_i + n, g_variance + i * gP_i + n

    chunks = tl.cdiv(last - first, C)
    t = first + (chunks - 1) * C
    kept = saved + (i * tl.cdiv(T, C) + t // C) * 2 * N + n
    m_ahead = tl.load(kept, mask=inside, other=0.0)
    P_ahead = tl.load(kept + N, mask=inside, other=1.0)
    if X == 0:
        ahead = chunk_of_signals(signals, strides, t, stop, inside, HAS_U, Q_VARIES, FULL, C, dtype)
    gms_ahead = rows(gm_row, t, last, inside, 0.0, gm_t, C, FULL, dtype, HAS_G_MEAN)
    gPs_ahead = rows(gP_row, t, last, inside, 0.0, gP_t, C, FULL, dtype, HAS_G_VARIANCE)
    for chunk in range(chunks):
        t = first + (chunks - 1 - chunk) * C
        m, P = m_ahead, P_ahead
        gms, gPs = gms_ahead, gPs_ahead
        before = tl.maximum(t - C, first)
        kept = saved + (i * tl.cdiv(T, C) + before // C) * 2 * N + n
        m_ahead = tl.load(kept, mask=inside, other=0.0)
        P_ahead = tl.load(kept + N, mask=inside, other=1.0)
        if X > 0:
            us, ws, rs, qs = projected(w + i * w_i, t, stop, w_t, columns, HAS_U, FULL, X, C)
        else:
            us, ws, rs, qs = ahead
            ahead = chunk_of_signals(
                signals, strides, before, stop, inside, HAS_U, Q_VARIES, FULL, C, dtype
            )
        gms_ahead = rows(gm_row, before, last, inside, 0.0, gm_t, C, FULL, dtype, HAS_G_MEAN)
        gPs_ahead = rows(gP_row, before, last, inside, 0.0, gP_t, C, FULL, dtype, HAS_G_VARIANCE)
        if PREFETCH > 0:
            earlier = tl.maximum(t - (1 + PREFETCH) * C, first)
            prefetch_signals(signals, strides, earlier, HAS_U, C)
            if HAS_G_MEAN:
                prefetch(gm_row, earlier, gm_t, C)
            if HAS_G_VARIANCE:
                prefetch(gP_row, earlier, gP_t, C)
        resets = flags(reset + i * reset_i, reset_t, t, stop, HAS_RESET, C)
        reads = flags(observed + i * observed_i, observed_t, t, stop, HAS_OBSERVED, C)
        noises, q_noises = noises_of(rs, r_floor, R_RAW), noises_of(qs, q_floor, Q_RAW)
        slow = slow_chunk(P, a2, zero if Q_VARIES else q_, q_noises, noises, reads)

        # replay: the belief before each step, the step's gain and innovation
        ms, Ps, ks, gs, es = (), (), (), (), ()
        for j in tl.static_range(C):
            if HAS_RESET:
                m, P = tl.where(resets[j], m_fresh, m), tl.where(resets[j], P_fresh, P)
            d = zero
            if HAS_U:
                d = b_ * us[j] if HAS_B else us[j]
            m_new, P_new, k, g, e = filter_step(
                zero, m, zero, P, d, a_, a2, q_noises[j] if Q_VARIES else q_, ws[j], noises[j],
                reads[j] if HAS_OBSERVED else True, not HAS_OBSERVED, False,
            )  # fmt: skip
            ms, Ps, ks, gs, es = ms + (m,), Ps + (P,), ks + (k,), gs + (g,), es + (e,)
            if CHECK:
                valid = t + j < stop
                m, P = tl.where(valid, m_new, m), tl.where(valid, P_new, P)
            else:
                m, P = m_new, P_new

        mu_at, mu = anchored(mu_at, mu, slow)
        pi_at, pi = anchored(pi_at, pi, slow)
        sum_m, sum_P, sum_b, sum_q = sums
        at = i * g_i + t * g_t + n
        for j in tl.static_range(C - 1, -1, -1):
            valid = t + j < stop
            if HAS_G_MEAN:
                mu += gms[j]
            if HAS_G_VARIANCE:
                pi += gPs[j]
            k, g, e = ks[j], gs[j], es[j]
            mu_whole, pi_whole = mu_at + mu, pi_at + pi
            mu_e = mu_whole * e
            c_bar = g * mu_whole
            p_bar = g * (pi_whole * g + mu_e)
            r_bar, w_bar, q_bar = k * (pi_whole * k - mu_e), k * mu_whole, p_bar
            # to the step before: μ ← a g μ, π ← (a g)² π + a² g e μ, as distance from the anchor
            ag, fade = a_ * g, (1.0 - a_) + a_ * k
            mu_new = ag * mu - fade * mu_at
            pi_new = a2 * (g * mu_e) + (ag * ag * pi - fade * (1.0 + ag) * pi_at)
            if SUMMARY:
                G_new, F_new = ag * ag * G + a_ * ag * e * (1.0 - F), fade + ag * F
                G = tl.where(valid, G_new, G) if CHECK else G_new
                F = tl.where(valid, F_new, F) if CHECK else F_new
            else:
                if CHECK:
                    c_bar = tl.where(valid, c_bar, 0.0)
                    p_bar = tl.where(valid, p_bar, 0.0)
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
                u_bar = b_ * c_bar if HAS_B else c_bar
                if X > 0:
                    bars = (u_bar, w_bar, r_bar) if HAS_U else (w_bar, r_bar)
                    x_j = w + i * w_i + t * w_t + j * w_t
                    of_columns = with_step(of_columns, bars, x_j, valid, FULL, X)
                else:
                    tl.store(g_r + to, r_bar.to(out), mask=here)
                    tl.store(g_w + to, w_bar.to(out), mask=here)
                sum_m += c_bar * ms[j]
                sum_P += p_bar * Ps[j]
                if HAS_U:
                    u_seen = tl.where(valid, us[j], 0.0) if CHECK else us[j]
                    sum_b += u_seen * c_bar
                    if X == 0:
                        tl.store(g_u + to, u_bar.to(out), mask=here)
                if Q_VARIES:
                    tl.store(g_q + to, q_bar.to(out), mask=here)
                else:
                    sum_q += q_bar
            mu = tl.where(valid, mu_new, mu) if CHECK else mu_new
            pi = tl.where(valid, pi_new, pi) if CHECK else pi_new
            if HAS_RESET:
                m_back += tl.where(resets[j], mu_at + mu, 0.0)
                P_back += tl.where(resets[j], pi_at + pi, 0.0)
                mu_at, mu = tl.where(resets[j], 0.0, mu_at), tl.where(resets[j], 0.0, mu)
                pi_at, pi = tl.where(resets[j], 0.0, pi_at), tl.where(resets[j], 0.0, pi)
                F = tl.where(resets[j], 1.0, F)
                G = tl.where(resets[j], 0.0, G)
        sums_at, sums = collected(sums_at, (sum_m, sum_P, sum_b, sum_q))

    here = segment * N + n
    mu, pi = mu_at + mu, pi_at + pi
    if SUMMARY:
        tl.store(summary + here, F, mask=inside)
        tl.store(summary + segments * N + here, G, mask=inside)
        tl.store(summary + 2 * segments * N + here, mu, mask=inside)
        tl.store(summary + 3 * segments * N + here, pi, mask=inside)
    else:
        sum_a = sums_at[0] + 2.0 * a_ * sums_at[1] + (sums[0] + 2.0 * a_ * sums[1])
        tl.store(g_parameters + here, sum_a, mask=inside)
        tl.store(g_parameters + segments * N + here, sums_at[2] + sums[2], mask=inside)
        if not Q_VARIES:
            sum_q = sums_at[3] + sums[3]
            if Q_RAW:
                sum_q *= slope(q_raw)
            tl.store(g_parameters + 2 * segments * N + here, sum_q, mask=inside)
        for c in tl.static_range(COLUMNS):
            tl.store(g_parameters + (3 + c) * segments * N + here, of_columns[c], mask=inside)
        if first == 0:
            tl.store(g_m_start + i * N + n, mu, mask=inside)
            tl.store(g_P_start + i * N + n, pi, mask=inside)
        if HAS_RESET:
            tl.store(g_m_prior + here, m_back, mask=inside)
            tl.store(g_P_prior + here, P_back, mask=inside)
