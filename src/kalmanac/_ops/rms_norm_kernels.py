"""RMSNorm of many short rows: one launch forward, two backward, several rows a warp."""

import triton
import triton.language as tl
from torch import Tensor

from kalmanac._ops.dense_kernels import add_chunks

BLOCK = 32  # rows at once


@triton.jit
def normed(
    x, w, y, g, partials, rows, n, eps,
    BACK: tl.constexpr, BLOCK: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """BLOCK rows of y = x̂ w with x̂ = s x, s = 1 / √(mean(x²) + ε). With BACK, y is the slope of x
    for slopes g, s (g w - x̂ mean(g w x̂)), and `partials` the sum of g x̂ over these rows."""
    c, o = tl.arange(0, WIDE)[None, :], tl.arange(0, WIDE)
    i = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)[:, None]
    inside = (i < rows) & (c < n)
    weight = tl.load(w + c, mask=c < n, other=0.0)
    seen = tl.load(x + i * n + c, mask=inside, other=0.0)
    scale = 1.0 / tl.sqrt(tl.sum(seen * seen, 1)[:, None] / n + eps)
    found = seen * scale
    if BACK:
        slope = tl.load(g + i * n + c, mask=inside, other=0.0)
        tl.store(partials + tl.program_id(0) * n + o, tl.sum(slope * found, 0), mask=o < n)
        pulled = slope * weight
        found = scale * (pulled - found * (tl.sum(pulled * found, 1)[:, None] / n))
    else:
        found *= weight
    tl.store(y + i * n + c, found, mask=inside)


def launch(x: Tensor, w: Tensor, eps: float, g: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """y (rows, n) for x (rows, n); or, with slopes g of y, those of x, and the gradient of w."""
    (rows, n), y = x.shape, x.new_empty(x.shape)
    programs = triton.cdiv(rows, BLOCK)
    partials = y if g is None else x.new_empty(programs, n)
    if rows:
        normed[(programs,)](
            x, w, y, y if g is None else g, partials, rows, n, eps, BACK=g is not None,
            BLOCK=BLOCK, WIDE=triton.next_power_of_2(n), num_warps=4,
        )  # fmt: skip
    return y, w if g is None else add_chunks(partials)
