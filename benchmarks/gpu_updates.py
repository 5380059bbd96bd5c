"""Time whole updates on a GPU: drawing, losses, gradients, Adam, target, for one seed and several.

    python benchmarks/update.py --device cuda [--only ENCODER …] [--seeds 1 2 5 10] [--out FILE]

A replay with full windows on the device; every update draws its own batch inside the graph. Seeds
are branches of one graph, several of them with as many rounds of updates as a training has in one.
The peers are a recurrent SAC as it is commonly written (nn.GRU, eager PyTorch, one optimizer each)
and our update with vssm+kf as one jit of JAX (jax_sac.py), its seeds one axis of a vmap, if there
is a JAX with CUDA; both learn from one batch again and again.
"""

import statistics
import time
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Generator
from torch.profiler import ProfilerActivity, profile

import jax_peer
from experience import filled
from kalmanac._ops.cuda_streams import ForkedStreams
from kalmanac._ops.graphed_call import WARM_UP
from kalmanac._replay.buffer import Replay
from kalmanac._sac.cuda_graph import GraphedUpdates, Work, run_eagerly
from kalmanac._sac.learner import Learner, Metrics
from kalmanac._sac.loop import ROUNDS
from plain_sac import PlainSAC
from products import layers_of
from report import print_table
from timing import Stopwatch, copy_bandwidth, interleave

NOTES = (
    "an update draws its batch too; full windows; TF32 matrix products unless said otherwise",
    "busy: the time in kernels, by the profiler, of an update's time, one seed; above 100 % where "
    "actor, critic and target run side by side",
    "of arithmetic, of memory: the update's matrix products (see products.py) a second, and the "
    "bytes that they would move one by one, by what one large TF32 product and one large copy "
    "reach here; at the fastest number of seeds; bytes found in the cache count too",
    "agreement: largest difference of any parameter after 100 updates, graph against eager ones on "
    "one stream, by the largest parameter; with TF32 products, as in training, and in float32",
)


class DrawnUpdate(Work):
    """What a training's update is: a batch drawn, and learned from."""

    def __init__(self, learner: Learner, replay: Replay, batch: int, context: int) -> None:
        self.learner, self.replay, self.shape = learner, replay, (batch, context)
        self.drawing = Generator(learner.device).manual_seed(0)

    def prepare(self) -> Hashable:
        """Nothing comes in; the places are always the same."""
        return None

    def generators(self) -> Sequence[Generator]:
        """Of drawing and of learning."""
        return [self.drawing, self.learner.learning]

    def run(self) -> Metrics:
        """One update."""
        return self.learner.update(self.replay.sample(*self.shape, generator=self.drawing))


def measure(
    task: Any, names: Sequence[str], seeds: Sequence[int], make_learner: Callable[..., Learner],
    seconds: float, compare: bool, peers: bool, table: dict[str, Any], save: Callable[[], None],
    rounds: int = ROUNDS[0],
) -> None:  # fmt: skip
    """Fill a table: updates/s of every encoder, eager and with so many seeds in one graph.

    Of several seeds, a graph has so many rounds of updates. With `compare`, graph and eager updates
    too; with `peers`, the peers. It is saved after every row.
    """
    device = torch.device("cuda")
    peaks = {"flops": product_speed(device), "bytes": copy_bandwidth(device, 1024)}
    rng = np.random.default_rng(0)
    replay = filled(task.sizes, np.full(task.batch, task.context), rng, device)

    def work(name: str) -> DrawnUpdate:
        return DrawnUpdate(make_learner(name, task, device), replay, task.batch, task.context)

    rows: list[dict[str, Any]] = []
    table |= {"task": task.name, "batch": task.batch, "context": task.context, "rows": rows}
    table |= {"peaks": peaks, "rounds_a_graph": rounds}
    batch = replay.sample(task.batch, task.context, generator=Generator(device).manual_seed(0))
    for name in names:
        eager = work(name)
        row: dict[str, Any] = {"name": name, "eager": rate(partial(run_eagerly, eager), seconds)}
        row["seeds"] = {}
        for n in seeds:
            together = GraphedUpdates([work(name) for _ in range(n)], device)
            times = rounds if n > 1 else 1
            for _ in range(WARM_UP + 1):
                together(times)
            if together.failed:
                row["seeds"][n] = None
                continue
            row["seeds"][n] = n * times * rate(partial(together, times), seconds)
            if n == 1:
                row |= looked_at(together, 60 if name == "vssm+kf" else 8)
                row["busy"] = row["microseconds_in_kernels"] * 1e-6 * row["seeds"][n]
        best = max((x for x in row["seeds"].values() if x is not None), default=0.0)
        layers = layers_of(eager.learner, batch)
        row["flop"] = 2 * sum(x.multiplications for x in layers)
        row["bytes"] = 4 * sum(x.numbers for x in layers)
        row["of_arithmetic"] = best * row["flop"] / peaks["flops"]
        row["of_memory"] = best * row["bytes"] / peaks["bytes"]
        if compare:
            row["agreement"] = agreement(work(name), work(name), device, tf32=True)
            row["agreement_float32"] = agreement(work(name), work(name), device, tf32=False)
        rows.append(row)
        save()
        _print_row(task.name, row)
    if not peers or task.sizes.action_mask:  # the peers know no masks
        return
    plain = PlainSAC(task.sizes, task.critic_hidden, device)
    table["plain_gru_eager"] = peer = rate(lambda: plain.update(batch), seconds)
    print(f"  plain PyTorch, nn.GRU, eager: {peer:,.0f} updates/s")
    table["jax_jit"] = {}
    for n in seeds:  # vmapped over them
        learners = [make_learner("vssm+kf", task, device) for _ in range(n)]
        found = jax_peer.measured(learners, [batch] * n, lambda run: rate(run, seconds))
        table["jax_jit"][n] = found
        print(f"  JAX, vssm+kf, one jit, {n} seeds: {jax_peer.in_words(found)}")
        save()


def product_speed(device: torch.device, side: int = 8192) -> float:
    """Operations a second of one large product with TF32 factors."""
    a, b = (torch.randn(side, side, device=device) for _ in range(2))
    products = torch.backends.cuda.matmul
    before, products.fp32_precision = products.fp32_precision, "tf32"
    watch = Stopwatch(lambda _: a @ b, 1, events=True)
    watch.calibrate(0.02)
    interleave([watch], 9)
    products.fp32_precision = before
    return 2 * side**3 / watch.median


def settle() -> None:
    """Wait for the GPU, where there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def rate(run: Callable[[], object], seconds: float) -> float:
    """Runs a second: the median of five stretches."""
    for _ in range(3):
        run()
    settle()
    began = time.perf_counter()
    for _ in range(5):
        run()
    settle()
    times = max(5, int(seconds / 5 / max((time.perf_counter() - began) / 5, 1e-6)))
    found = []
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(times):
            run()
        settle()
        found.append(times / (time.perf_counter() - began))
    return statistics.median(found)


def looked_at(run: Callable[[], object], most: int) -> dict[str, Any]:
    """Kernels of a run, the time in them, and the kernels that take most of it."""
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(5):
            run()
        torch.cuda.synchronize()
    spent = sorted(
        (
            (x.self_device_time_total / 5, x.count / 5, x.key)
            for x in seen.key_averages()
            if x.self_device_time_total > 0  # the rest are calls of the host
        ),
        reverse=True,
    )
    return {
        "kernels": round(sum(count for _, count, _ in spent)),
        "microseconds_in_kernels": sum(us for us, _, _ in spent),
        "longest": [[round(us, 1), round(n, 1), name[:120]] for us, n, name in spent[:most]],
    }


def agreement(eager: DrawnUpdate, other: DrawnUpdate, device: torch.device, *, tf32: bool) -> float:
    """How far 100 updates by graph lead from 100 eager ones, all on one stream."""
    eager.tf32 = other.tf32 = tf32
    eager.learner.streams = ForkedStreams(torch.device("cpu"), most=3)  # one after the other
    together = GraphedUpdates([other], device)
    for number in range(100):
        run_eagerly(eager)
        if number % ROUNDS[1] == 0:
            together(ROUNDS[1])
    a, b = eager.learner.optimizer.values, other.learner.optimizer.values
    return ((a - b).abs().max() / a.abs().max()).item()


def _print_row(task: str, row: dict[str, Any]) -> None:
    seeds = {n: "failed" if x is None else f"{x:,.0f}" for n, x in row["seeds"].items()}
    head = ["", "eager", *(f"{n} in a graph" for n in seeds)]
    head += ["kernels", "µs in them", "busy", "of arithmetic", "of memory", "agreement"]
    cells = [f"{task}, {row['name']}", f"{row['eager']:,.0f}", *seeds.values()]
    cells += [str(row.get("kernels", "")), f"{row.get('microseconds_in_kernels', 0):,.0f}"]
    cells += [f"{row.get(name, 0):.1%}" for name in ("busy", "of_arithmetic", "of_memory")]
    cells.append(f"{row['agreement']:.1e}" if "agreement" in row else "")
    print_table(head, [cells])
