"""Time ways to run the heads of several seeds on a GPU: one launch for all, with other tiles.

    python benchmarks/heads.py [--seeds 1 5 10] [--out FILE]

Twin perceptrons 24 → 256 → 256 → 5 of every seed on 2,080 rows, POPGym's size: their forward with
hidden layers kept, their slopes, and the gradients of their weights. What runs today is `branches`:
a launch for each seed, on streams of their own. The others take all seeds and twins in one launch,
as kernels of ours with tiles of another shape, or as PyTorch's batched products. Everything is a
CUDA graph; a candidate that is not near PyTorch's float32 result is refused.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import pairwise, product
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_updates import product_speed
from kalmanac._ops import dense_kernels, mlp_kernels
from kalmanac._ops.cuda_streams import ForkedStreams
from kalmanac._ops.dense_kernels import Tile, factor, plus_product, side
from kalmanac._ops.dispatch import Precision
from kalmanac._ops.mlp_kernels import Shape, relu, tile
from record import on_record, save
from report import print_table
from timing import Stopwatch, capture, interleave

ROWS, WIDTHS, TWINS, SLOPES = 2080, (24, 256, 256, 5), 2, 16
NEAR: dict[Precision, float] = {"tf32": 5e-3, "bfloat16": 3e-2, "ieee": 1e-4}  # relative
PARTS = ("forward", "slopes", "gradients")
# Rows, warps, stages, columns at once. From 64 rows of TF32 factors on, `perceive` overflows its
# registers: ptxas spills 300 to 1,300 bytes a thread (sm_90a, Triton 3.6).
WIDE = tuple(Shape(*x) for x in (
    (16, 4, 2, 32), (32, 4, 2, 32), (32, 4, 3, 32), (32, 8, 2, 32), (32, 8, 2, 64), (64, 8, 2, 32),
    (128, 8, 2, 32),
))  # fmt: skip
NARROW = tuple(Shape(*x) for x in (
    (32, 4, 2, 32), (64, 4, 2, 32), (64, 8, 2, 32), (64, 8, 2, 64), (128, 8, 2, 32),
    (128, 8, 2, 64),
))  # fmt: skip
CHUNKED = tuple(Shape(*x) for x in (
    (32, 4, 2, 32), (64, 4, 2, 32), (64, 8, 2, 32), (64, 8, 2, 64), (128, 8, 2, 32),
))  # fmt: skip
ROUNDED: tuple[Precision, ...] = ("tf32", "bfloat16")


class Problem(NamedTuple):
    """Tensors of G perceptrons: inputs, layers, hidden layers, and slopes of all of them."""

    x: Tensor  # (rows, n)
    weights: list[Tensor]  # (G, n, m)
    biases: list[Tensor]  # (G, 1, m)
    hidden: list[Tensor]  # (G, rows, m)
    given: Tensor  # (G, rows, m), slopes of the output
    slopes: list[Tensor]  # (G, rows, m), of hidden layers

    def of_seed(self, seed: int) -> "Problem":
        """The twins of one seed."""
        own = slice(seed * TWINS, (seed + 1) * TWINS)
        return Problem(self.x, *(
            [y[own] for y in x] if isinstance(x, list) else x[own] for x in self[1:]
        ))  # type: ignore[arg-type]  # fmt: skip


class Candidate(NamedTuple):
    """One way to compute a part; None as its shape is PyTorch's own, or what runs today."""

    part: str
    way: str  # branches, grouped, chunked, products
    precision: Precision
    shape: Shape | Tile | None = None
    inputs_first: bool = False  # weights lie with their inputs side by side

    @property
    def name(self) -> str:
        words = [self.part, self.way, self.precision]
        if self.shape is not None:
            words += [f"{k} {v}" for k, v in self.shape._asdict().items()]
        return ", ".join(words + ["inputs side by side"] * self.inputs_first)


def candidates() -> Iterator[Candidate]:
    """All of them."""
    for part, precision in product(PARTS, ROUNDED):
        yield Candidate(part, "branches", precision)
    for part in PARTS:
        yield Candidate(part, "products", "tf32")
    for part, shape in product(PARTS[:2], WIDE):
        yield Candidate(part, "grouped", "tf32", shape)
    for part, shape in product(PARTS[:2], WIDE[-2:]):
        yield Candidate(part, "grouped", "tf32", shape, inputs_first=True)
    for part, shape in product(PARTS[:2], NARROW):
        yield Candidate(part, "grouped", "bfloat16", shape)
    for shape, inputs_first in product(CHUNKED, (False, True)):
        yield Candidate("forward", "chunked", "tf32", shape, inputs_first)
    for shape in CHUNKED:
        yield Candidate("forward", "chunked", "bfloat16", shape)
    for tall, wide, block, warps in (
        (32, 64, 32, 4), (64, 64, 32, 4), (64, 64, 64, 4), (64, 128, 32, 8), (128, 128, 32, 8),
        (128, 128, 64, 8),
    ):  # fmt: skip
        for precision in ROUNDED:
            yield Candidate("gradients", "grouped", precision, Tile(tall, wide, block, warps, 3))


@triton.jit
def chunked_forward(  # type: ignore[no-untyped-def]
    x, w1, w2, w3, b1, b2, b3, h1, h2, y, rows, n, m,
    w1_k, w1_i, w1_o, w2_k, w2_i, w2_o, w3_k, w3_i, w3_o, b1_k, b2_k, b3_k,
    H1: tl.constexpr, H2: tl.constexpr, NP: tl.constexpr, MP: tl.constexpr, BLOCK: tl.constexpr,
    AT_ONCE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """`mlp_kernels.perceive` by AT_ONCE columns of the first hidden layer: no row of it is whole,
    so that registers hold the sums of the second one and little else."""
    dtype: tl.constexpr = y.dtype.element_ty
    k = tl.program_id(1)
    i = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)[:, None]
    here = i < rows
    row = k.to(tl.int64) * rows + i
    c, o, g = tl.arange(0, NP), tl.arange(0, MP), tl.arange(0, H2)
    seen = tl.load(x + i * n + c[None, :], mask=here & (c[None, :] < n), other=0.0)
    two = tl.zeros((BLOCK, H2), dtype)
    for begin in range(0, H1, AT_ONCE):
        j = begin + tl.arange(0, AT_ONCE)
        weight = tile(w1, k, c[:, None], j[None, :], n, H1, w1_k, w1_i, w1_o)
        one = plus_product(tl.zeros((BLOCK, AT_ONCE), dtype), seen, weight, PRECISION)
        one = factor(relu(one + tl.load(b1 + k * b1_k + j)[None, :]), PRECISION)
        tl.store(h1 + row * H1 + j[None, :], one, mask=here)
        across = tile(w2, k, j[:, None], g[None, :], H1, H2, w2_k, w2_i, w2_o)
        two = plus_product(two, one, across, PRECISION)
    two = factor(relu(two + tl.load(b2 + k * b2_k + g)[None, :]), PRECISION)
    tl.store(h2 + row * H2 + g[None, :], two, mask=here)
    last = tile(w3, k, g[:, None], o[None, :], H2, m, w3_k, w3_i, w3_o)
    found = plus_product(tl.zeros((BLOCK, MP), dtype), two, last, PRECISION)
    found += tl.load(b3 + k * b3_k + o, mask=o < m, other=0.0)[None, :]
    tl.store(y + row * m + o[None, :], found, mask=here & (o[None, :] < m))


@triton.jit
def grouped_slopes(  # type: ignore[no-untyped-def]
    given, w1, w2, w3, h1, h2, g1, g2, gx, rows, m, wanted,
    w1_k, w1_i, w1_o, w2_k, w2_i, w2_o, w3_k, w3_i, w3_o,
    H1: tl.constexpr, H2: tl.constexpr, XP: tl.constexpr, MP: tl.constexpr, BLOCK: tl.constexpr,
    AT_ONCE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """`mlp_kernels.slopes` with a program for each perceptron, whose inputs' slopes stay apart."""
    dtype: tl.constexpr = given.dtype.element_ty
    k = tl.program_id(1)
    i = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)[:, None]
    here = i < rows
    o, j, c = tl.arange(0, MP), tl.arange(0, H1), tl.arange(0, XP)
    row = i + k.to(tl.int64) * rows
    slope = tl.load(given + row * m + o[None, :], mask=here & (o[None, :] < m), other=0.0)
    one = tl.zeros((BLOCK, H1), dtype)
    for begin in range(0, H2, AT_ONCE):
        g = begin + tl.arange(0, AT_ONCE)
        last = tile(w3, k, g[None, :], o[:, None], H2, m, w3_k, w3_i, w3_o)
        two = plus_product(tl.zeros((BLOCK, AT_ONCE), dtype), slope, last, PRECISION)
        above = tl.load(h2 + row * H2 + g[None, :], mask=here, other=0.0).to(dtype)
        two = factor(tl.where(above > 0.0, two, 0.0), PRECISION)
        tl.store(g2 + row * H2 + g[None, :], two, mask=here)
        across = tile(w2, k, j[None, :], g[:, None], H1, H2, w2_k, w2_i, w2_o)
        one = plus_product(one, two, across, PRECISION)
    below = tl.load(h1 + row * H1 + j[None, :], mask=here, other=0.0).to(dtype)
    passed = factor(tl.where(below > 0.0, one, 0.0), PRECISION)
    tl.store(g1 + row * H1 + j[None, :], passed, mask=here)
    weight = tile(w1, k, c[None, :], j[:, None], wanted, H1, w1_k, w1_i, w1_o)
    into = plus_product(tl.zeros((BLOCK, XP), dtype), passed, weight, PRECISION)
    tl.store(gx + row * wanted + c[None, :], into, mask=here & (c[None, :] < wanted))


def make_problem(groups: int, device: torch.device) -> Problem:
    """Random ones, with PyTorch's float32 truth in the hidden layers and slopes."""
    draw = torch.Generator(device).manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=draw, device=device)

    x, pairs = normal(ROWS, WIDTHS[0]), list(pairwise(WIDTHS))
    weights = [normal(groups, n, m) * n**-0.5 for n, m in pairs]
    biases = [normal(groups, 1, m) for m in WIDTHS[1:]]
    blank = Problem(x, weights, biases, [], normal(groups, ROWS, WIDTHS[-1]), [])
    blank = blank._replace(hidden=batched_forward(blank)[1:])
    return blank._replace(slopes=batched_slopes(blank)[:2])


def batched_forward(p: Problem) -> list[Tensor]:
    """Output and hidden layers, by batched products."""
    h1 = torch.baddbmm(p.biases[0], p.x.expand(len(p.given), *p.x.shape), p.weights[0]).relu_()
    h2 = torch.baddbmm(p.biases[1], h1, p.weights[1]).relu_()
    return [torch.baddbmm(p.biases[2], h2, p.weights[2]), h1, h2]


def batched_slopes(p: Problem) -> list[Tensor]:
    """Slopes of both hidden layers and of the first inputs."""
    backward = torch.ops.aten.threshold_backward.default
    two = backward(torch.bmm(p.given, p.weights[2].mT), p.hidden[1], 0)
    one = backward(torch.bmm(two, p.weights[1].mT), p.hidden[0], 0)
    return [one, two, torch.bmm(one, p.weights[0][:, :SLOPES].mT)]


def batched_gradients(p: Problem) -> list[Tensor]:
    """Gradients of weights and biases."""
    slopes = [*p.slopes, p.given]
    below = [p.x.expand(len(p.given), *p.x.shape), *p.hidden]
    weights = [torch.bmm(x.mT, g) for x, g in zip(below, slopes, strict=True)]
    return weights + [g.sum(1, keepdim=True) for g in slopes]


BATCHED = dict(zip(PARTS, (batched_forward, batched_slopes, batched_gradients), strict=True))


def grouped(c: Candidate, p: Problem) -> Callable[[], list[Tensor]]:
    """The candidate as one launch for all, or a launch a layer for gradients."""
    hidden, slopes = p.hidden, p.slopes
    weights = [w.mT.contiguous().mT for w in p.weights] if c.inputs_first else p.weights
    rows, (n, h, _, m), groups = ROWS, WIDTHS, len(p.given)
    strides = [s for w in weights for s in w.stride()]
    if c.part == "gradients":
        assert isinstance(c.shape, Tile)
        shape = c.shape

        def clipped(n: int, m: int, *, half: bool) -> Tile:
            return shape._replace(tall=min(side(n), shape.tall), wide=min(side(m), shape.wide))

        pairs = [(p.x[None], slopes[0]), (hidden[0], slopes[1]), (hidden[1], p.given)]

        def gradients() -> list[Tensor]:
            usual, dense_kernels.tile_of = dense_kernels.tile_of, clipped
            try:
                found = dense_kernels.gradients(pairs, transposed=False, exact=False)
            finally:
                dense_kernels.tile_of = usual
            return [w for w, _ in found] + [b for _, b in found]

        return gradients
    assert isinstance(c.shape, Shape)
    layout = {"num_warps": c.shape.warps, "num_stages": c.shape.stages}
    tiles = {"BLOCK": c.shape.block, "AT_ONCE": min(c.shape.columns, h), "PRECISION": c.precision}
    programs = (triton.cdiv(rows, c.shape.block), groups)
    y = [p.given.new_empty(groups, rows, m), *(torch.empty_like(x) for x in hidden)]
    g = [*(torch.empty_like(x) for x in hidden), p.given.new_empty(groups, rows, SLOPES)]

    def forward() -> list[Tensor]:
        kernel, keep = (
            (chunked_forward, {}) if c.way == "chunked" else (mlp_kernels.perceive, {"KEEP": True})
        )
        kernel[programs](
            p.x, *weights, *p.biases, y[1], y[2], y[0], rows, n, m, *strides,
            *(b.stride(0) for b in p.biases), H1=h, H2=h, **keep, NP=side(n), MP=side(m),
            **tiles, **layout,
        )  # fmt: skip
        return y

    def back() -> list[Tensor]:
        grouped_slopes[programs](
            p.given, *weights, *hidden, *g, rows, m, SLOPES, *strides, H1=h, H2=h,
            XP=side(SLOPES), MP=side(m), **tiles, **layout,
        )  # fmt: skip
        return g

    return forward if c.part == "forward" else back


def branch(c: Candidate, p: Problem) -> list[Tensor]:
    """One seed, as the update computes it today."""
    hidden, slopes = p.hidden, p.slopes
    if c.part == "forward":
        y, kept = mlp_kernels.forward(p.x, p.weights, p.biases, keep=True, precision=c.precision)
        return [y, *kept]
    if c.part == "slopes":
        into, found = mlp_kernels.backward(
            p.given, p.weights, hidden, (0, SLOPES), keep=True, precision=c.precision
        )
        assert into is not None
        return [*found, into]
    pairs = [(p.x[None], slopes[0]), (hidden[0], slopes[1]), (hidden[1], p.given)]
    each = dense_kernels.gradients(pairs, transposed=False, exact=False)
    return [w for w, _ in each] + [b for _, b in each]


def make_run(c: Candidate, seeds: int, device: torch.device) -> Callable[[], list[Tensor]]:
    """What a candidate does for so many seeds; its results, all seeds side by side."""
    p = make_problem(seeds * TWINS, device)
    if c.precision == "bfloat16":
        hidden, slopes = ([x.bfloat16() for x in y] for y in (p.hidden, p.slopes))
        p = p._replace(hidden=hidden, slopes=slopes)
    if c.way in ("grouped", "chunked"):
        return grouped(c, p)
    if c.way == "products":
        return partial(BATCHED[c.part], p)
    streams, own = ForkedStreams(device, most=seeds), [p.of_seed(i) for i in range(seeds)]

    def branches() -> list[Tensor]:
        found = streams(None, *(partial(branch, c, x) for x in own))
        return [y for x in found for y in x]

    return branches


def compile_one(c: Candidate) -> str | None:
    """Run it once, so that its kernel lies in Triton's cache; the error's text if it does not."""
    try:
        make_run(c, 1, torch.device("cuda"))()
        torch.cuda.synchronize()
    except Exception as error:  # a candidate that cannot run is a row of the table
        return f"{type(error).__name__}: {error}".splitlines()[0][:120]
    return None


def off(c: Candidate, found: Sequence[Tensor], p: Problem) -> float:
    """The largest relative distance of a result from PyTorch's in float32."""
    truth = BATCHED[c.part](p)
    if c.part == "slopes" and c.way == "branches":
        truth[2] = truth[2].sum(0)  # of both twins
    pairs = zip(found, truth, strict=True)
    return max(((x.float() - y).norm() / y.norm()).item() for x, y in pairs)


def measure(c: Candidate, seeds: int, device: torch.device) -> Stopwatch:
    """A watch for it as a graph."""
    run = make_run(c, seeds, device)
    return Stopwatch(capture(lambda _: run(), 1), 1, events=True)


def multiplications(part: str) -> int:
    """Of one seed's twins."""
    sizes = [n * m for n, m in pairwise(WIDTHS)]
    if part == "slopes":
        sizes[0] = SLOPES * WIDTHS[1]
    return TWINS * ROWS * sum(sizes)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print them, fastest first; 1 if one of today's was refused."""
    words = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 5, 10])
    parser.add_argument("--workers", type=int, default=14, help="processes that compile")
    parser.add_argument("--out", type=Path, help="also write the numbers as JSON")
    options = parser.parse_args(words)
    device, everyone = torch.device("cuda"), list(candidates())
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        errors = dict(zip(everyone, pool.map(compile_one, everyone), strict=True))
    peak = product_speed(device)
    torch.backends.cuda.matmul.fp32_precision = "ieee"
    one = make_problem(TWINS, device)
    for c in everyone:
        if errors[c] is None:
            far = off(c, make_run(c, 1, device)(), one)
            errors[c] = None if far <= NEAR[c.precision] else f"{far:.1e} off"
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    rows: list[dict[str, Any]] = []
    for c in everyone:
        row: dict[str, Any] = {"name": c.name, "part": c.part, "refused": errors[c], "seconds": {}}
        rows.append(row)
        for seeds in options.seeds if errors[c] is None else []:
            watch = measure(c, seeds, device)
            watch.calibrate(0.005)
            interleave([watch], 5)
            row["seconds"][seeds] = watch.median / seeds
    for part in PARTS:
        _print(part, [row for row in rows if row["part"] == part], options.seeds, peak)
    if options.out is not None:
        save({**on_record("benchmarks/heads.py", words), "peak": peak, "rows": rows}, options.out)
    return int(any(errors[c] for c in everyone if c.way == "branches"))


def _print(part: str, rows: list[dict[str, Any]], seeds: Sequence[int], peak: float) -> None:
    timed = [row for row in rows if not row["refused"]]
    timed.sort(key=lambda row: row["seconds"][seeds[-1]])
    head = [part, *(f"µs a seed, {n}" for n in seeds), "of TF32 peak"]
    body = []
    for row in timed:
        share = 2 * multiplications(part) / row["seconds"][seeds[-1]] / peak
        cells = [f"{row['seconds'][n] * 1e6:.1f}" for n in seeds]
        body.append([row["name"].removeprefix(f"{part}, "), *cells, f"{share:.0%}"])
    print()
    print_table(head, body)
    for row in rows:
        if row["refused"]:
            print(f"  REFUSED {row['name']}: {row['refused']}")


if __name__ == "__main__":
    sys.exit(main())
