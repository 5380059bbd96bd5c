"""`linear_scan`: check the arguments, choose a backend, run it."""

from collections.abc import Sequence

from torch import Tensor

from kalmanac._ops.scan import arguments
from kalmanac._ops.scan.arguments import COMPLEX, REAL, carry_dtype
from kalmanac._ops.scan.backends import choose
from kalmanac._ops.scan.inputs import LinearInputs, start_and_initial


def linear_scan(
    a: Tensor,
    b: Tensor,
    initial: Tensor | None = None,
    *,
    state: Tensor | None = None,
    lengths: Tensor | Sequence[int] | None = None,
    reset: Tensor | None = None,
    check: bool = False,
    backend: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Run B linear recurrences x_t = a_t x_{t-1} + b_t over T steps in N channels.

    Args:
        a: decay, (N,) or (B, T, N); real or complex.
        b: drive, (B, T, N).
        initial: the state at the start of an episode, (N,) or (B, N); zero by default.
        state: the state to go on from, as an earlier call returned it; `initial` by default.
        lengths: valid steps of each row, (B,); later steps hold the last valid state.
        reset: (B, T) bool; True restores `initial` before step t (first step of a new episode).
        check: also check `lengths` where that has to be read from the device.
        backend: a name in `BACKENDS`; chosen by device, dtype and size if None.

    Returns:
        The states of all steps (B, T, N) and the state after each row's own length (B, N).

    Examples:
        >>> import torch
        >>> from kalmanac import linear_scan
        >>> states, final = linear_scan(torch.tensor([0.5]), torch.ones(1, 3, 1))
        >>> states[0, :, 0]
        tensor([1.0000, 1.5000, 1.7500])
    """
    arguments.signal("b", b, None, REAL + COMPLEX)
    batch, steps, channels = b.shape
    if isinstance(a, Tensor) and a.dim() == 3:
        arguments.signal("a", a, b, REAL + COMPLEX)
    else:
        arguments.parameter("a", a, ((channels,), tuple(b.shape)), b)
    for name, x in (("initial", initial), ("state", state)):
        if x is not None:
            arguments.parameter(name, x, ((channels,), (batch, channels)), b)
    if reset is not None:
        arguments.flags("reset", reset, b)
    lengths = arguments.row_lengths(lengths, b, check)
    chosen = choose(backend, b.device, b.dtype, steps)

    carry = carry_dtype(b.dtype)
    initial, state = (
        None if x is None else x.to(carry).expand(batch, channels) for x in (initial, state)
    )
    signals = b.dtype if chosen.fused else carry
    inputs = LinearInputs(
        a=a.to(signals) if a.dim() == 3 else a.to(carry),
        b=b.to(signals),
        start=initial if state is None else state,
        initial=initial,
        lengths=lengths,
        reset=reset,
    )
    if steps == 0:
        return b, start_and_initial(inputs, carry)[0]
    states, final = chosen.linear(inputs)
    return states.to(b.dtype), final
