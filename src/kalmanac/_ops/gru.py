"""A layer of gated recurrent units over whole sequences, resettable.

On a GPU with TF32 products, kernels of ours walk through all steps in few launches, which leave
room for those of other seeds beside them. All else takes PyTorch's own. Sequences run unpacked:
packing needs lengths on the host, which breaks graph capture. A reset cuts the sequence for
PyTorch, and the pieces run one after the other.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from kalmanac._ops.dispatch import differentiates, fused_products, readable, shared_bytes


def gru(
    x: Tensor, start: Tensor, weights: Sequence[Tensor], *, lengths: Tensor | None = None,
    reset: Tensor | None = None, training: bool = True,
) -> Tensor:  # fmt: skip
    """Compute the hidden states (B, T, N) of x (B, T, E) from `start` (B, N) on.

    Args:
        weights: nn.GRU's: of inputs (3 N, E), of states (3 N, N), and both biases.
        lengths: (B,): steps from there on are pads, where x is finite and states mean nothing.
        reset: (B, T) bool: the state is zero before that step.
        training: cuDNN differentiates only what it ran for training.
    """
    if takes_lengths(x, weights):
        return fused_gru(x, start, weights, lengths=lengths, reset=reset)
    return plain_gru(x, start, weights, reset=reset, training=training)


def takes_lengths(x: Tensor, weights: Sequence[Tensor]) -> bool:
    """Return whether `gru` stops at the last step that it must, and so gains from lengths."""
    if not fused_products(x, weights[0]) or len(weights) != 4 or x.numel() == 0:
        return False
    from kalmanac._ops.gru_kernels import fits

    return fits(weights[1].shape[1], shared_bytes(x.device))


def plain_gru(
    x: Tensor, start: Tensor, weights: Sequence[Tensor], *, reset: Tensor | None = None,
    training: bool = True,
) -> Tensor:  # fmt: skip
    """Run PyTorch's form: it knows no pads."""
    outputs = []
    for begin, end in pieces(reset, x.shape[1]):
        if reset is not None:
            start = start.masked_fill(reset[:, begin, None], 0)
        piece, before = x[:, begin:end].contiguous(), start[None].contiguous()
        y, last = torch.gru(piece, before, list(weights), True, 1, 0.0, training, False, True)
        outputs.append(y)
        start = last[0]
    return torch.cat(outputs, 1) if outputs else x.new_zeros(*x.shape[:2], start.shape[1])


def pieces(reset: Tensor | None, steps: int) -> Iterator[tuple[int, int]]:
    """Return the ranges of steps that begin wherever any row resets.

    Where the flags cannot be read (while a graph is traced or captured), every step is a piece.
    """
    if reset is None:
        cuts = []
    elif readable(reset):
        cuts = [t for t in reset.any(0).nonzero()[:, 0].tolist() if t > 0]
    else:
        cuts = list(range(1, steps))
    return pairwise([0, *cuts, steps]) if steps else iter(())


def fused_gru(
    x: Tensor, start: Tensor, weights: Sequence[Tensor], *, lengths: Tensor | None = None,
    reset: Tensor | None = None, exact: bool = False,
) -> Tensor:  # fmt: skip
    """Run the GPU's form: the walk ends behind the last step that it must.

    `exact`: products do not round their factors; that of the recurrent weights' gradient is
    PyTorch's and does as its switch says.
    """
    from kalmanac._ops.gru_kernels import Marks

    steps = Marks(None if lengths is None else lengths.contiguous(), reset)
    tensors = (x, start, *weights)
    if differentiates(*tensors):
        return FusedGRU.apply(exact, steps, *tensors)
    return _through(tensors, steps, keep=False, exact=exact).states


def _through(tensors: Sequence[Tensor], steps: Any, *, keep: bool, exact: bool) -> Any:
    from kalmanac._ops.dense_kernels import product
    from kalmanac._ops.gru_kernels import walk

    x, start, w_i, w_h, b_i, b_h = tensors
    driven = product(x.reshape(-1, x.shape[-1]).contiguous(), w_i.mT, b_i, exact=exact)
    driven = driven.view(*x.shape[:-1], len(w_i))
    return walk(driven, w_h.contiguous(), b_h, start.contiguous(), steps, keep=keep, exact=exact)


class FusedGRU(torch.autograd.Function):
    """`fused_gru`, differentiable."""

    @staticmethod
    def forward(ctx: Any, exact: bool, steps: Any, *tensors: Tensor) -> Tensor:
        """See `fused_gru`."""
        walked = _through(tensors, steps, keep=True, exact=exact)
        ctx.exact, ctx.steps = exact, steps
        ctx.save_for_backward(tensors[0], tensors[2], tensors[3], *walked)
        return walked.states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g_states: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of x, the start, and the four weights."""
        from kalmanac._ops.dense_kernels import gradients, product
        from kalmanac._ops.gru_kernels import Walked, walk_back

        x, w_i, w_h, *walked = ctx.saved_tensors
        exact, hidden = ctx.exact, w_h.shape[1]
        slopes, g_start = walk_back(
            g_states.contiguous(), Walked(*walked), w_h.contiguous(), ctx.steps, exact=exact
        )
        rows = slopes.view(-1, 4 * hidden)  # n, r, z, q; weights have the order r, z, n or q
        into = None
        if ctx.needs_input_grad[2]:
            into = product(rows[:, :-hidden], w_i.roll(hidden, 0), None, exact=exact).view(x.shape)
        if not any(ctx.needs_input_grad[4:]):
            return None, None, into, g_start, None, None, None, None
        tokens = x.reshape(1, -1, x.shape[-1]).contiguous()
        ((g_weights, biases),) = gradients([(tokens, rows[None])], True, exact=exact)
        of_inputs, of_biases = g_weights[0].mT[:-hidden], biases[0, 0]
        return (
            None, None, into, g_start, of_inputs.roll(-hidden, 0),
            rows[:, hidden:].mT @ walked[2].view(-1, hidden),
            of_biases[:-hidden].roll(-hidden), of_biases[hidden:],
        )  # fmt: skip
