"""Linear recurrence kernels, real and complex, built like the Kalman kernels."""

from numba import prange, types

from kalmanac._ops.scan.cpu.compile import all_rows, one_row, row, row_facts, signals


@all_rows(lambda n: (types.intp, signals(n, 2), signals(n, 2), row_facts(), signals(n, 2)))
def forward(width, inputs, starts, facts, outputs):
    """x_t = a_t x_{t-1} + b_t, t = 0 … length-1, then hold the state.

    inputs (a, b); starts: the state to start from and the one a reset restores, (B, 1, N); outputs:
    the states of all steps, and of the end, (B, 1, N), whose rows carry the state.
    """
    rows, _, channels = inputs[1].shape
    blocks = (channels + width - 1) // width
    for task in prange(rows * blocks):
        low = (task % blocks) * width
        forward_row(task // blocks, low, min(width, channels - low), inputs, starts, facts, outputs)


def backward_types(n):
    """The argument types of `backward` for a number type."""
    pair = signals(n, 2)
    return types.intp, pair, pair, row_facts(), signals(n, 1), pair, pair, pair


@all_rows(backward_types)
def backward(width, inputs, starts, facts, saved, given, g_inputs, g_starts):
    """The adjoint λ_t = x̄_t + ā_{t+1} λ_{t+1}; b̄ = λ, ā = λ x̄_{t-1} (bars: conjugates).

    saved: the states of all steps; given: the gradients of `forward`'s outputs. The gradient of a
    (a per-row partial (B, 1, N) for a constant a) and of the reset state are added to, so they must
    come zeroed. The rows of the start's gradient carry the adjoint.
    """
    rows, _, channels = inputs[1].shape
    blocks = (channels + width - 1) // width
    for task in prange(rows * blocks):
        low = (task % blocks) * width
        backward_row(
            task // blocks, low, min(width, channels - low), inputs, starts, facts,
            saved, given, g_inputs, g_starts,
        )  # fmt: skip


@one_row
def forward_row(i, low, count, inputs, starts, facts, outputs):
    """`forward` for `count` channels of row i, from channel `low` on."""
    a, b = inputs
    start, initial = starts
    lengths, reset, _ = facts
    states, end = outputs
    steps = b.shape[1]
    length = min(max(lengths[i], 0), steps)

    start_, initial_, x = row(start, i, 0, low), row(initial, i, 0, low), row(end, i, 0, low)
    for n in range(count):
        x[n] = start_[n]
    for t in range(length):
        if reset[i, t]:
            for n in range(count):
                x[n] = initial_[n]
        a_, b_, states_ = row(a, i, t, low), row(b, i, t, low), row(states, i, t, low)
        for n in range(count):
            x[n] = a_[n] * x[n] + b_[n]
            states_[n] = x[n]
    for t in range(length, steps):
        states_ = row(states, i, t, low)
        for n in range(count):
            states_[n] = x[n]


@one_row
def backward_row(i, low, count, inputs, starts, facts, saved, given, g_inputs, g_starts):
    """`backward` for `count` channels of row i, from channel `low` on."""
    a, b = inputs
    start, initial = starts
    lengths, reset, _ = facts
    (states,) = saved
    g_states, g_end = given
    g_a, g_b = g_inputs
    g_start, g_initial = g_starts
    steps = b.shape[1]
    length = min(max(lengths[i], 0), steps)
    zero = b.dtype.type(0)

    g_end_, g_initial_ = row(g_end, i, 0, low), row(g_initial, i, 0, low)
    carried = row(g_start, i, 0, low)
    for n in range(count):
        carried[n] = g_end_[n]
    for t in range(steps - 1, length - 1, -1):
        gx_, gb_ = row(g_states, i, t, low), row(g_b, i, t, low)
        for n in range(count):
            carried[n] += gx_[n]
            gb_[n] = zero
    for t in range(length - 1, -1, -1):
        if reset[i, t]:
            x_ = row(initial, i, 0, low)
        elif t == 0:
            x_ = row(start, i, 0, low)
        else:
            x_ = row(states, i, t - 1, low)
        a_, gx_ = row(a, i, t, low), row(g_states, i, t, low)
        ga_, gb_ = row(g_a, i, t, low), row(g_b, i, t, low)
        for n in range(count):
            adjoint = carried[n] + gx_[n]
            gb_[n] = adjoint
            ga_[n] += adjoint * x_[n].conjugate()
            carried[n] = a_[n].conjugate() * adjoint
        if reset[i, t]:
            for n in range(count):
                g_initial_[n] += carried[n]
                carried[n] = zero
