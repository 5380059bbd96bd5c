"""A GRU layer on a GPU in few launches, which leave room for those of other seeds beside them."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from kalmanac.ops import gpu
from kalmanac.ops.late import late

_KERNELS = "kalmanac.ops.gpu.gru_kernels"
_walk, _walk_back = late(_KERNELS, "walk"), late(_KERNELS, "walk_back")
_fits = late(_KERNELS, "fits")
_marks, _walked = late(_KERNELS, "Marks"), late(_KERNELS, "Walked")
_shared_bytes = late("kalmanac.ops.gpu.head_kernels", "shared_bytes")
_product = late("kalmanac.ops.gpu.product_kernels", "product")
_gradients = late("kalmanac.ops.gpu.product_kernels", "gradients")


def possible(x: Tensor, weights: Sequence[Tensor]) -> bool:
    """The kernels can take this layer, and its products may round to TF32."""
    if x.numel() == 0 or torch.compiler.is_compiling() or torch.is_autocast_enabled("cuda"):
        return False
    plain = len(weights) == 4 and weights[0].dtype == x.dtype and gpu.rounds_products(x)
    return plain and _fits(weights[1].shape[1], _shared_bytes(x.device))


def run(
    x: Tensor, start: Tensor, weights: Sequence[Tensor], *, lengths: Tensor | None = None,
    reset: Tensor | None = None, exact: bool = False,
) -> Tensor:  # fmt: skip
    """The hidden states (B, T, N) of x (B, T, E) from `start` (B, N) on.

    `weights` are nn.GRU's: of inputs (3 N, E), of states (3 N, N), and both biases. Steps from
    `lengths` (B,) on are pads, where x is finite and states mean nothing: the walk ends behind the
    last step that it must. `reset` (B, T): the state is zero before that step. `exact`: products do
    not round their factors; that of the recurrent weights' gradient is PyTorch's and does as its
    switch says.
    """
    lengths = None if lengths is None else lengths.contiguous()
    tensors, steps = (x, start, *weights), _marks(lengths, reset)
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        return FusedGRU.apply(exact, steps, *tensors)
    return _through(tensors, steps, keep=False, exact=exact).states


def _through(tensors: Sequence[Tensor], steps: Any, *, keep: bool, exact: bool) -> Any:
    x, start, w_i, w_h, b_i, b_h = tensors
    driven = _product(x.reshape(-1, x.shape[-1]).contiguous(), w_i.mT, b_i, exact=exact)
    driven = driven.view(*x.shape[:-1], len(w_i))
    return _walk(driven, w_h.contiguous(), b_h, start.contiguous(), steps, keep=keep, exact=exact)


class FusedGRU(torch.autograd.Function):
    """`run`, differentiable."""

    @staticmethod
    def forward(ctx: Any, exact: bool, steps: Any, *tensors: Tensor) -> Tensor:
        """See `run`."""
        walked = _through(tensors, steps, keep=True, exact=exact)
        ctx.exact, ctx.steps = exact, steps
        ctx.save_for_backward(tensors[0], tensors[2], tensors[3], *walked)
        return walked.states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, given: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of x, the start, and the four weights."""
        x, w_i, w_h, *walked = ctx.saved_tensors
        exact, hidden = ctx.exact, w_h.shape[1]
        slopes, g_start = _walk_back(
            given.contiguous(), _walked(*walked), w_h.contiguous(), ctx.steps, exact=exact
        )
        rows = slopes.view(-1, 4 * hidden)  # n, r, z, q; weights have the order r, z, n or q
        into = None
        if ctx.needs_input_grad[2]:
            into = _product(rows[:, :-hidden], w_i.roll(hidden, 0), None, exact=exact).view(x.shape)
        if not any(ctx.needs_input_grad[4:]):
            return None, None, into, g_start, None, None, None, None
        seen = x.reshape(1, -1, x.shape[-1]).contiguous()
        ((found, biases),) = _gradients([(seen, rows[None])], True, exact=exact)
        of_inputs, of_biases = found[0].mT[:-hidden], biases[0, 0]
        return (
            None, None, into, g_start, of_inputs.roll(-hidden, 0),
            rows[:, hidden:].mT @ walked[2].view(-1, hidden),
            of_biases[:-hidden].roll(-hidden), of_biases[hidden:],
        )  # fmt: skip
