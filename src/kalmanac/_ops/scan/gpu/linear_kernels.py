"""Linear recurrence kernels in Triton, built like the Kalman kernels: x_t = a_t x_{t-1} + b_t.

Both directions are affine in what they carry, so one `chain` kernel links the segments of a row
either way: with SUMMARY, a kernel writes nothing but its segment's effect x ← A x + v.
"""

import triton
import triton.language as tl

from kalmanac._ops.scan.gpu.steps import flags, lanes, rows, steps_of

# Sizes and strides, on whose divisibility Triton would otherwise compile anew.
FREE = [
    "T", "S", "K", "N", "a_i", "a_t", "b_i", "b_t", "start_i", "initial_i", "reset_i", "reset_t",
    "gx_i", "gx_t", "ge_i", "given_i",
]  # fmt: skip


@triton.jit(do_not_specialize=FREE)
def forward(
    a, b, start, initial, lengths, reset, states, end, summary,
    T, S, K, a_i, b_i, start_i, initial_i, reset_i, reset_t,
    N, a_t, b_t,
    A_VARIES: tl.constexpr, HAS_RESET: tl.constexpr, HAS_LENGTHS: tl.constexpr,
    HAS_INITIAL: tl.constexpr, HAS_START: tl.constexpr, SUMMARY: tl.constexpr,
    FULL: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Every step of a segment, then hold the state."""
    dtype: tl.constexpr = summary.dtype.element_ty
    segment, segments, n, inside = lanes(N, BLOCK)
    i, first, last, stop = steps_of(segment, lengths, T, S, K, HAS_LENGTHS)

    if not A_VARIES:
        a_ = tl.load(a + n, mask=inside, other=0.0)
    x = tl.zeros((BLOCK,), dtype)
    A = x + 1.0
    if HAS_START and not SUMMARY:
        x += tl.load(start + segment * start_i + n, mask=inside, other=0.0)
    if HAS_RESET:
        fresh = tl.zeros((BLOCK,), dtype)
        if HAS_INITIAL:
            fresh += tl.load(initial + i * initial_i + n, mask=inside, other=0.0)
    a_row, b_row = a + i * a_i + n, b + i * b_i + n
    decays_ahead = rows(a_row, first, stop, inside, 0.0, a_t, C, FULL, dtype, A_VARIES)
    bs_ahead = rows(b_row, first, stop, inside, 0.0, b_t, C, FULL, dtype)
    for t in range(first, last, C):
        decays, bs = decays_ahead, bs_ahead
        following = tl.minimum(t + C, last - C) if FULL else t + C
        decays_ahead = rows(a_row, following, stop, inside, 0.0, a_t, C, FULL, dtype, A_VARIES)
        bs_ahead = rows(b_row, following, stop, inside, 0.0, b_t, C, FULL, dtype)
        resets = flags(reset + i * reset_i, reset_t, t, stop, HAS_RESET, C)
        for j in tl.static_range(C):
            valid = t + j < stop
            if HAS_RESET:
                x = tl.where(resets[j], fresh, x)
                A = tl.where(resets[j], 0.0, A)
            decay = decays[j] if A_VARIES else a_
            x = tl.where(valid, decay * x + bs[j], x)
            if SUMMARY:
                A = tl.where(valid, decay * A, A)
            else:
                at = (i * T + t + j) * N + n
                tl.store(states + at, x.to(states.dtype.element_ty), mask=inside & (t + j < last))
    if SUMMARY:
        tl.store(summary + segment * N + n, A, mask=inside)
        tl.store(summary + (segments + segment) * N + n, x, mask=inside)
    elif last == T:
        tl.store(end + i * N + n, x, mask=inside)


@triton.jit(do_not_specialize=FREE)
def backward(
    a, start, initial, lengths, reset, states, g_states, g_end,
    g_a, g_b, g_start, g_initial, summary,
    T, S, K, a_i, start_i, initial_i, reset_i, reset_t, gx_i, ge_i,
    N, a_t, gx_t,
    A_VARIES: tl.constexpr, HAS_RESET: tl.constexpr, HAS_LENGTHS: tl.constexpr,
    HAS_INITIAL: tl.constexpr, HAS_START: tl.constexpr,
    HAS_G_STATES: tl.constexpr, HAS_G_END: tl.constexpr, SUMMARY: tl.constexpr,
    FULL: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The adjoint λ_t = x̄_t + a_{t+1} λ_{t+1}: b̄ = λ, ā = λ x_{t-1}.

    A constant a gets one partial sum per segment in g_a (B·K, N). `start` is the belief before the
    row; inside a row, the state before a segment is the last one of the segment before.
    """
    dtype: tl.constexpr = summary.dtype.element_ty
    segment, segments, n, inside = lanes(N, BLOCK)
    i, first, last, stop = steps_of(segment, lengths, T, S, K, HAS_LENGTHS)

    if not A_VARIES:
        a_ = tl.load(a + n, mask=inside, other=0.0)
    before_all = tl.zeros((BLOCK,), dtype)
    if HAS_START:
        before_all += tl.load(start + i * start_i + n, mask=inside, other=0.0)
    if HAS_RESET:
        fresh = tl.zeros((BLOCK,), dtype)
        if HAS_INITIAL:
            fresh += tl.load(initial + i * initial_i + n, mask=inside, other=0.0)
    carried = tl.zeros((BLOCK,), dtype)
    A, sum_a, sum_initial = carried + 1.0, carried, carried
    if HAS_G_END:
        carried += tl.load(g_end + segment * ge_i + n, mask=inside, other=0.0)
    chunks = tl.cdiv(last - first, C)
    a_row, g_row, t = a + i * a_i + n, g_states + i * gx_i + n, first + (chunks - 1) * C
    decays_ahead = rows(a_row, t, stop, inside, 0.0, a_t, C, FULL, dtype, A_VARIES)
    gs_ahead = rows(g_row, t, last, inside, 0.0, gx_t, C, FULL, dtype, HAS_G_STATES)
    for chunk in range(chunks):
        t = first + (chunks - 1 - chunk) * C
        decays, gs = decays_ahead, gs_ahead
        earlier = tl.maximum(t - C, first)
        decays_ahead = rows(a_row, earlier, stop, inside, 0.0, a_t, C, FULL, dtype, A_VARIES)
        gs_ahead = rows(g_row, earlier, last, inside, 0.0, gx_t, C, FULL, dtype, HAS_G_STATES)
        resets = flags(reset + i * reset_i, reset_t, t, stop, HAS_RESET, C)
        if not SUMMARY:
            befores = ()
            for j in tl.static_range(C):
                ready = inside & (t + j < stop) & (t + j > 0)
                x = tl.load(states + (i * T + t + j - 1) * N + n, mask=ready, other=0.0).to(dtype)
                if j == 0:
                    x = tl.where(t == 0, before_all, x)
                befores = befores + (x,)
        for j in tl.static_range(C - 1, -1, -1):
            valid = t + j < stop
            decay = decays[j] if A_VARIES else a_
            if HAS_G_STATES:
                carried += gs[j]
            if not SUMMARY:
                before = befores[j]
                if HAS_RESET:
                    before = tl.where(resets[j], fresh, before)
                at = (i * T + t + j) * N + n
                here = inside & (t + j < last)
                b_bar = tl.where(valid, carried, 0.0)
                tl.store(g_b + at, b_bar.to(g_b.dtype.element_ty), mask=here)
                a_bar = b_bar * before
                if A_VARIES:
                    tl.store(g_a + at, a_bar.to(g_a.dtype.element_ty), mask=here)
                else:
                    sum_a += a_bar
            carried = tl.where(valid, decay * carried, carried)
            A = tl.where(valid, decay * A, A)
            if HAS_RESET:
                sum_initial += tl.where(resets[j], carried, 0.0)
                carried = tl.where(resets[j], 0.0, carried)
                A = tl.where(resets[j], 0.0, A)
    if SUMMARY:
        tl.store(summary + segment * N + n, A, mask=inside)
        tl.store(summary + (segments + segment) * N + n, carried, mask=inside)
    else:
        if not A_VARIES:
            tl.store(g_a + segment * N + n, sum_a, mask=inside)
        if first == 0:
            tl.store(g_start + i * N + n, carried, mask=inside)
        if HAS_RESET:
            tl.store(g_initial + segment * N + n, sum_initial, mask=inside)


@triton.jit(do_not_specialize=FREE)
def chain(
    summary, given, entering, K, given_i, N,
    HAS_GIVEN: tl.constexpr, REVERSE: tl.constexpr, AHEAD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """What enters every segment of a row, from `given` on: the start forwards, or the end back."""
    dtype: tl.constexpr = summary.dtype.element_ty
    i, count, n, inside = lanes(N, BLOCK)
    size = count * K * N
    x = tl.zeros((BLOCK,), dtype)
    if HAS_GIVEN:
        x += tl.load(given + i * given_i + n, mask=inside, other=0.0)
    row = summary + i * K * N
    groups = tl.cdiv(K, AHEAD)
    for c in range(groups):
        s = (groups - 1 - c if REVERSE else c) * AHEAD
        As = rows(row + n, s, K, inside, 0.0, N, AHEAD, False, dtype)
        vs = rows(row + size + n, s, K, inside, 0.0, N, AHEAD, False, dtype)
        if REVERSE:
            for j in tl.static_range(AHEAD - 1, -1, -1):
                tl.store(entering + (i * K + s + j) * N + n, x, mask=inside & (s + j < K))
                x = tl.where(s + j < K, As[j] * x + vs[j], x)
        else:
            for j in tl.static_range(AHEAD):
                tl.store(entering + (i * K + s + j) * N + n, x, mask=inside & (s + j < K))
                x = tl.where(s + j < K, As[j] * x + vs[j], x)
