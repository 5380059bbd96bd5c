"""Time shapes of the heads' kernels on a GPU, for several seeds: a launch for each, or one for all.

    python benchmarks/heads.py [--seeds 1 5 10] [--out FILE]

Twin perceptrons 24 → 256 → 256 → 5 of every seed on 2,080 rows, POPGym's size: their forward with
hidden layers kept, their slopes, and the gradients of their weights. What runs in a training is
`branches`, a launch for each seed, on streams of their own; `grouped` takes all seeds and twins in
one launch of the same kernel. Both are tried with tiles of other shapes, beside PyTorch's batched
products. Everything is a CUDA graph; what is not near PyTorch's float32 result is refused.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import pairwise, product
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor

from gpu_updates import product_speed
from kalmanac._ops import dense_kernels, mlp_kernels
from kalmanac._ops.cuda_streams import ForkedStreams
from kalmanac._ops.dense_kernels import Tile, side
from kalmanac._ops.mlp_kernels import Shape
from record import on_record, save
from report import print_table
from timing import Stopwatch, capture, interleave

ROWS, WIDTHS, TWINS, SLOPES = 2080, (24, 256, 256, 5), 2, 16
NEAR = 5e-3  # relative
PARTS = ("forward", "slopes", "gradients")
FORWARD = tuple(Shape(*x) for x in (
    (32, 4, 2, 32), (32, 4, 3, 32), (32, 4, 2, 64), (32, 8, 2, 64), (16, 4, 2, 32),
))  # fmt: skip
BACK = tuple(Shape(*x) for x in (
    (32, 4, 2, 32), (32, 4, 3, 32), (32, 4, 4, 32), (16, 4, 3, 32), (64, 8, 2, 32),
))  # fmt: skip
# Of the second layer; rows of a chunk.
TILES = tuple((Tile(*x), rows) for x, rows in product(
    ((64, 64, 32, 4, 3), (64, 128, 32, 4, 3), (128, 128, 32, 8, 3), (128, 128, 32, 8, 4)),
    (160, 320, 544),
))  # fmt: skip


class Problem(NamedTuple):
    """Tensors of G perceptrons: inputs, layers, hidden layers, and slopes of all of them."""

    x: Tensor  # (rows, n)
    weights: list[Tensor]  # (G, n, m)
    biases: list[Tensor]  # (G, 1, m)
    hidden: list[Tensor]  # (G, rows, m), turned in memory, as the slopes
    given: Tensor  # (G, rows, m), slopes of the output
    slopes: list[Tensor]  # (G, rows, m), of hidden layers

    def of_seed(self, seed: int) -> "Problem":
        """The twins of one seed."""
        own = slice(seed * TWINS, (seed + 1) * TWINS)
        return Problem(self.x, *(
            [y[own] for y in x] if isinstance(x, list) else x[own] for x in self[1:]
        ))  # type: ignore[arg-type]  # fmt: skip


class Candidate(NamedTuple):
    """One way to compute a part; None as its shape is what runs in a training, or PyTorch's own."""

    part: str
    way: str  # branches, grouped, products
    shape: Shape | Tile | None = None
    chunk: int = 0  # rows; 0: as in a training
    turned: bool = False  # weights lie as those of single perceptrons do

    @property
    def name(self) -> str:
        words = [self.part, self.way]
        if self.shape is not None:
            words += [f"{k} {v}" for k, v in self.shape._asdict().items()]
        words += [f"chunks of {self.chunk}"] * (self.chunk > 0)
        return ", ".join(words + ["turned"] * self.turned)


def candidates() -> Iterator[Candidate]:
    """All of them."""
    for part, way in product(PARTS, ("branches", "grouped", "products")):
        yield Candidate(part, way)
    for part, shapes in (("forward", FORWARD), ("slopes", BACK)):
        for shape in shapes:
            yield Candidate(part, "branches", shape)
        for turned in (Shape(32, 4, 2, 32), Shape(64, 4, 2, 32)):
            yield Candidate(part, "branches", turned, turned=True)
    for tile, rows in TILES:
        yield Candidate("gradients", "branches", tile, rows)


def make_problem(groups: int, device: torch.device) -> Problem:
    """Random ones, with PyTorch's float32 truth in the hidden layers and slopes."""
    draw = torch.Generator(device).manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=draw, device=device)

    x, pairs = normal(ROWS, WIDTHS[0]), list(pairwise(WIDTHS))
    weights = [normal(groups, n, m) * n**-0.5 for n, m in pairs]
    biases = [normal(groups, 1, m) for m in WIDTHS[1:]]
    blank = Problem(x, weights, biases, [], normal(groups, ROWS, WIDTHS[-1]), [])
    blank = blank._replace(hidden=turned(batched_forward(blank)[1:]))
    return blank._replace(slopes=turned(batched_slopes(blank)[:2]))


def turned(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The same matrices, transposed in memory."""
    return [x.mT.contiguous().mT for x in tensors]


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


def compute(c: Candidate, p: Problem) -> list[Tensor]:
    """These perceptrons, as an update computes them."""
    hidden, slopes = p.hidden, p.slopes
    if c.part == "forward":
        y, kept = mlp_kernels.forward(p.x, p.weights, p.biases, keep=True, exact=False)
        return [y, *kept]
    if c.part == "slopes":
        into, found = mlp_kernels.backward(
            p.given, p.weights, hidden, (0, SLOPES), keep=True, exact=False
        )
        assert into is not None
        return [*found, into]
    pairs = [(p.x[None], slopes[0]), (hidden[0], slopes[1]), (hidden[1], p.given)]
    each = dense_kernels.gradients(pairs, transposed=False, exact=False)
    return [w for w, _ in each] + [b for _, b in each]


def shaped(c: Candidate) -> ExitStack:
    """The kernels take the candidate's shape."""
    patches = ExitStack()
    if isinstance(c.shape, Shape):
        for name in ("DEEP", "DEEP_BACK"):
            patches.enter_context(patch.object(mlp_kernels, name, c.shape))
    elif c.shape is not None:
        usual, tile = dense_kernels.tile_of, c.shape

        def tile_of(n: int, m: int, **facts: bool) -> Tile:
            return tile if min(side(n), side(m)) >= 64 else usual(n, m, **facts)

        patches.enter_context(patch.object(dense_kernels, "tile_of", tile_of))
        patches.enter_context(patch.object(dense_kernels, "CHUNK_ROWS", c.chunk))
    return patches


def make_run(c: Candidate, seeds: int, device: torch.device) -> Callable[[], list[Tensor]]:
    """What a candidate does for so many seeds; its results, all seeds side by side."""
    p = make_problem(seeds * TWINS, device)
    if c.turned:
        p = p._replace(weights=turned(p.weights))
    if c.way == "products":
        return partial(BATCHED[c.part], p)
    own = [p] if c.way == "grouped" else [p.of_seed(i) for i in range(seeds)]
    streams = ForkedStreams(device, most=len(own))

    def run() -> list[Tensor]:
        with shaped(c):
            found = streams(None, *(partial(compute, c, x) for x in own))
        return [y for x in found for y in x]

    return run


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
    if c.part == "slopes" and c.way != "products":
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
            errors[c] = None if far <= NEAR else f"{far:.1e} off"
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
    return int(any(errors[c] for c in everyone if c.shape is None))


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
