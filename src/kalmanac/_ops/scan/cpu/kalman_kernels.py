"""Kalman scan kernels: one fused loop over time, vectorised over channels, threads over rows.

Every array has three axes; what is constant or absent comes as a broadcast view (stride 0), so that
one kernel serves all forms of a call. Signals are read row by row in place.
"""

import numba
import numpy as np
from numba import prange, types

from kalmanac._ops.scan.cpu.compile import all_rows, one_row, optional, row, row_facts, signals
from kalmanac._ops.scan.cpu.softplus import INLINE, noise, slope


def forward_types(n, *raw):
    """The argument types of `forward` for a number type; `raw`: which floors are given."""
    return types.intp, signals(n, 6), optional(n, raw), signals(n, 4), row_facts(), signals(n, 6)


@all_rows(forward_types)
def forward(width, inputs, floors, beliefs, facts, outputs):
    """Predict and update, t = 0 … length-1, then hold the belief (paper, Eqs. 4 to 6).

    inputs (a, b, u, q, w, r), of which q and r come before their softplus where `floors` (r?, q?)
    has a number; beliefs (m, P) of the start and of the prior, each (B, 1, N);
    outputs (mean, variance) of all steps and of the end, (B, 1, N), whose rows carry the belief,
    and scratch (B, 1, N) each that carries what rounding took from mean and variance. At a fixed
    point that loss is the same at every step, and a long memory (a → 1) would add it up a
    thousandfold; so both are summed up by their changes, with the loss of the step before.
    `width` channels of one row make a task.
    """
    rows, _, channels = inputs[4].shape
    blocks = (channels + width - 1) // width
    for task in prange(rows * blocks):
        low = (task % blocks) * width
        count = min(width, channels - low)
        forward_row(task // blocks, low, count, inputs, floors, beliefs, facts, outputs)


def backward_types(n, *raw):
    """The argument types of `backward`, as `forward_types`."""
    common = forward_types(n, *raw)[:-1]
    return (*common, signals(n, 2), signals(n, 4), signals(n, 6), signals(n, 4), signals(n, 5))


@all_rows(backward_types)
def backward(width, inputs, floors, beliefs, facts, saved, given, g_inputs, g_beliefs, rounding):
    """The closed-form adjoint, t = T-1 … 0.

    saved: mean and variance of all steps. given: the gradients of `forward`'s four outputs.
    g_inputs, g_beliefs: what is filled. The gradients of a, b and of a constant q are partial sums
    per row, (B, 1, N); these three, the time-varying q's and the prior's are added to, so they must
    come zeroed. The rows of the start's gradient carry the adjoints (μ, π) of the belief, those of
    `rounding` (B, 1, N), zeroed too, what rounding took from the three sums and from (μ, π).
    """
    rows, _, channels = inputs[4].shape
    blocks = (channels + width - 1) // width
    for task in prange(rows * blocks):
        low = (task % blocks) * width
        count = min(width, channels - low)
        backward_row(
            task // blocks, low, count, inputs, floors, beliefs, facts, saved, given, g_inputs,
            g_beliefs, rounding,
        )  # fmt: skip


@numba.njit
def above_denormal(x):
    """Below this, a decaying mean or adjoint is set to zero: denormals would slow the loop down."""
    return x.dtype.type(np.finfo(x.dtype).tiny * 1e8)


@numba.njit
def bounds(x):
    """(scale, least): a gain is computed from variances times `scale`, and a prior's `least` more.

    So neither a sum of variances near the largest number is infinite, for |a| up to 8, nor the
    inverse of a sum of denormal ones; where both are zero, the reading is taken. Only for priors of
    less than 1e-28 (float64: 1e-289) does the gain feel that.
    """
    return x.dtype.type(1 / 64), x.dtype.type(np.finfo(x.dtype).tiny)


@numba.njit(**INLINE)
def added(total, x, lost):
    """total + x, with what rounding took the last time, and what it takes now."""
    change = x + lost
    found = total + change
    return found, change - (found - total)


@one_row
def forward_row(i, low, count, inputs, floors, beliefs, facts, outputs):
    """`forward` for `count` channels of row i, from channel `low` on."""
    a, b, u, q, w, r = inputs
    r_floor, q_floor = floors
    m_start, P_start, m_prior, P_prior = beliefs
    lengths, reset, observed = facts
    mean, variance, m_end, P_end, m_rounding, P_rounding = outputs
    steps = w.shape[1]
    length = min(max(lengths[i], 0), steps)
    zero, one, tiny = w.dtype.type(0), w.dtype.type(1), above_denormal(w)
    largest, (scale, least) = w.dtype.type(np.finfo(w.dtype).max), bounds(w)

    a_, b_ = row(a, 0, 0, low), row(b, 0, 0, low)
    m_lost, P_lost = row(m_rounding, i, 0, low), row(P_rounding, i, 0, low)
    m0_, P0_ = row(m_start, i, 0, low), row(P_start, i, 0, low)
    mp_, Pp_ = row(m_prior, i, 0, low), row(P_prior, i, 0, low)
    m, P = row(m_end, i, 0, low), row(P_end, i, 0, low)
    for n in range(count):
        m[n] = m0_[n]
        P[n] = P0_[n]
        m_lost[n] = zero
        P_lost[n] = zero
    for t in range(length):
        if reset[i, t]:
            for n in range(count):
                m[n] = mp_[n]
                P[n] = Pp_[n]
                m_lost[n] = zero
                P_lost[n] = zero
        u_, q_, w_, r_ = row(u, i, t, low), row(q, i, t, low), row(w, i, t, low), row(r, i, t, low)
        mean_, variance_ = row(mean, i, t, low), row(variance, i, t, low)
        if observed[i, t]:
            for n in range(count):
                q_t, r_t = noise(q_[n], q_floor), noise(r_[n], r_floor)
                p, r_scaled = a_[n] * a_[n] * (scale * P[n]) + (scale * q_t + least), scale * r_t
                inverse = one / (p + r_scaled)
                k, g = p * inverse, r_scaled * inverse  # g is 1 - k without cancellation
                moved = b_[n] * u_[n] - (one - a_[n]) * m[n]
                grown = q_t - (one - a_[n]) * (one + a_[n]) * P[n]
                m_change = moved + k * (w_[n] - (m[n] + moved)) + m_lost[n]
                P_change = grown * g - P[n] * k + P_lost[n]
                y, z = m[n] + m_change, P[n] + P_change
                sharp = p > r_scaled  # then these sums cancel, but the memory is short
                m_lost[n] = zero if sharp else m_change - (y - m[n])
                P_lost[n] = zero if sharp else P_change - (z - P[n])
                y = g * m[n] + g * moved + k * w_[n] if sharp else y
                z = k * r_t if sharp else z
                y = zero if abs(y) <= tiny else y
                m[n] = y
                P[n] = z
                mean_[n] = y
                variance_[n] = z
        else:
            for n in range(count):
                m_change = b_[n] * u_[n] - (one - a_[n]) * m[n] + m_lost[n]
                P_change = noise(q_[n], q_floor) - (one - a_[n]) * (one + a_[n]) * P[n] + P_lost[n]
                y, z = m[n] + m_change, P[n] + P_change
                # beyond the largest number: it stands in, so that a later reading is made use of
                m_lost[n] = zero if abs(y) > largest else m_change - (y - m[n])
                P_lost[n] = zero if z > largest else P_change - (z - P[n])
                y = largest if y > largest else (-largest if y < -largest else y)
                z = largest if z > largest else z
                y = zero if abs(y) <= tiny else y
                m[n] = y
                P[n] = z
                mean_[n] = y
                variance_[n] = z
    for t in range(length, steps):
        mean_, variance_ = row(mean, i, t, low), row(variance, i, t, low)
        for n in range(count):
            mean_[n] = m[n]
            variance_[n] = P[n]


@one_row
def backward_row(
    i, low, count, inputs, floors, beliefs, facts, saved, given, g_inputs, g_beliefs, rounding
):
    """`backward` for `count` channels of row i, from channel `low` on."""
    a, b, u, q, w, r = inputs
    r_floor, q_floor = floors
    m_start, P_start, m_prior, P_prior = beliefs
    lengths, reset, observed = facts
    mean, variance = saved
    g_mean, g_variance, g_m_end, g_P_end = given
    g_a, g_b, g_u, g_q, g_w, g_r = g_inputs
    g_m_start, g_P_start, g_m_prior, g_P_prior = g_beliefs
    steps = w.shape[1]
    length = min(max(lengths[i], 0), steps)
    zero, one, two = w.dtype.type(0), w.dtype.type(1), w.dtype.type(2)
    tiny = above_denormal(w)
    scale, least = bounds(w)

    a_, b_ = row(a, 0, 0, low), row(b, 0, 0, low)
    ga_, gb_ = row(g_a, i, 0, low), row(g_b, i, 0, low)
    a_lost, b_lost = row(rounding[0], i, 0, low), row(rounding[1], i, 0, low)
    q_lost = row(rounding[2], i, 0, low)
    mu_lost, pi_lost = row(rounding[3], i, 0, low), row(rounding[4], i, 0, low)
    gmp_, gPp_ = row(g_m_prior, i, 0, low), row(g_P_prior, i, 0, low)
    gme_, gPe_ = row(g_m_end, i, 0, low), row(g_P_end, i, 0, low)
    mu, pi = row(g_m_start, i, 0, low), row(g_P_start, i, 0, low)
    for n in range(count):
        mu[n] = gme_[n]
        pi[n] = gPe_[n]
    for t in range(steps - 1, length - 1, -1):
        gm_, gP_ = row(g_mean, i, t, low), row(g_variance, i, t, low)
        gu_, gw_, gr_ = row(g_u, i, t, low), row(g_w, i, t, low), row(g_r, i, t, low)
        for n in range(count):
            mu[n] += gm_[n]
            pi[n] += gP_[n]
            gu_[n] = zero
            gw_[n] = zero
            gr_[n] = zero
    for t in range(length - 1, -1, -1):
        if reset[i, t]:
            m_, P_ = row(m_prior, i, 0, low), row(P_prior, i, 0, low)
        elif t == 0:
            m_, P_ = row(m_start, i, 0, low), row(P_start, i, 0, low)
        else:
            m_, P_ = row(mean, i, t - 1, low), row(variance, i, t - 1, low)
        u_, q_, w_, r_ = row(u, i, t, low), row(q, i, t, low), row(w, i, t, low), row(r, i, t, low)
        gm_, gP_ = row(g_mean, i, t, low), row(g_variance, i, t, low)
        gu_, gq_ = row(g_u, i, t, low), row(g_q, i, t, low)
        gw_, gr_ = row(g_w, i, t, low), row(g_r, i, t, low)
        if observed[i, t]:
            for n in range(count):
                x, v = added(mu[n], gm_[n], mu_lost[n])  # the adjoints of this step's posterior
                y, z = added(pi[n], gP_[n], pi_lost[n])
                q_t, r_t = noise(q_[n], q_floor), noise(r_[n], r_floor)
                p, r_scaled = a_[n] * a_[n] * (scale * P_[n]) + (scale * q_t + least), scale * r_t
                inverse = one / (p + r_scaled)
                k, g = p * inverse, r_scaled * inverse
                c_bar, w_bar = g * x, k * x
                e = scale * (w_[n] - a_[n] * m_[n] - b_[n] * u_[n])
                ce, we = c_bar * e * inverse, w_bar * e * inverse  # e * inverse may be infinite
                p_bar = ce + y * g * g
                gr_[n] = (y * k * k - we) * slope(r_[n], r_floor)
                gw_[n] = w_bar
                gu_[n] = b_[n] * c_bar
                # to the step before: μ ← a g μ, π ← (a g)² π + a² g e μ, summed up by the change
                fade = (one - a_[n]) + a_[n] * k  # 1 - a g
                v = v - x * fade
                z = z - y * fade * (two - fade) + a_[n] * a_[n] * ce
                sharp = p > r_scaled
                x_new, y_new = x + v, y + z
                mu_lost[n] = zero if sharp else v - (x_new - x)
                pi_lost[n] = zero if sharp else z - (y_new - y)
                x_new = a_[n] * c_bar if sharp else x_new
                y_new = a_[n] * a_[n] * p_bar if sharp else y_new
                mu[n] = zero if abs(x_new) <= tiny else x_new
                pi[n] = zero if abs(y_new) <= tiny else y_new
                gq_[n], q_lost[n] = added(gq_[n], p_bar * slope(q_[n], q_floor), q_lost[n])
                gb_[n], b_lost[n] = added(gb_[n], u_[n] * c_bar, b_lost[n])
                a_bar = c_bar * m_[n] + two * a_[n] * P_[n] * p_bar
                ga_[n], a_lost[n] = added(ga_[n], a_bar, a_lost[n])
        else:
            for n in range(count):
                x, v = added(mu[n], gm_[n], mu_lost[n])
                y, z = added(pi[n], gP_[n], pi_lost[n])
                gr_[n] = zero
                gw_[n] = zero
                gu_[n] = b_[n] * x
                fade = one - a_[n]
                v, z = v - x * fade, z - y * fade * (two - fade)
                x_new, y_new = x + v, y + z
                mu_lost[n] = v - (x_new - x)
                pi_lost[n] = z - (y_new - y)
                mu[n] = zero if abs(x_new) <= tiny else x_new
                pi[n] = zero if abs(y_new) <= tiny else y_new
                gq_[n], q_lost[n] = added(gq_[n], y * slope(q_[n], q_floor), q_lost[n])
                gb_[n], b_lost[n] = added(gb_[n], u_[n] * x, b_lost[n])
                a_bar = x * m_[n] + two * a_[n] * P_[n] * y
                ga_[n], a_lost[n] = added(ga_[n], a_bar, a_lost[n])
        if reset[i, t]:
            for n in range(count):
                gmp_[n] += mu[n]
                gPp_[n] += pi[n]
                mu[n] = zero
                pi[n] = zero
                mu_lost[n] = zero
                pi_lost[n] = zero
