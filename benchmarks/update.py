"""Time a whole update of the agent with every history encoder, beside its matrix products alone.

    python benchmarks/update.py [--device cuda] [--quick] [--out results/update-cpu.json]

The paper's sizes of Best Arm, POPGym and DeepMind Control, POPGym's with continuous actions, with
action masks and with twice the channels too, each with the episodes of a Best Arm replay and with
full windows. An update is what training does with a sampled batch: losses, gradients, Adam, target;
sampling is timed apart. An encoder whose update gives a number that is not finite is not timed, and
the exit status is 1. On CUDA, see gpu_updates.py.
"""

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

import gpu_updates
from experience import LONGEST, LONGEST_MEAN, MEAN, episode_lengths, filled
from kalmanac._encoders import layers
from kalmanac._encoders.registry import ENCODERS
from kalmanac._observation import Sizes
from kalmanac._ops import rms_norm, sac_losses
from kalmanac._ops.squashed_gaussian import Draw, Draws, Range, draw
from kalmanac._replay.sampling import Batch
from kalmanac._sac import learner as learning
from kalmanac._sac.config import AgentSettings
from kalmanac._sac.learner import Learner
from kalmanac._sac.loop import ROUNDS
from kalmanac._suites.best_arm import ENCODER_SETTINGS as BEST_ARM
from kalmanac._suites.dmc import ENCODER_SETTINGS as DMC
from products import layers_of, products
from record import on_record, save
from report import print_table
from timing import Stopwatch, interleave, release_memory

NOTES = (
    f"best-arm episodes: geometric lengths, their means log-uniform between 1 and {LONGEST_MEAN:g}:"
    f" {MEAN} steps on average, at most {LONGEST}; full windows: every window has T steps",
    "batches are drawn by the rule `episodes`; packed on the CPU, as in training",
    "products: the update's matrix products alone, valid tokens only, as bare calls: linear "
    "layers, recurrent weights and heads; not those of attention, no scan, nothing elementwise",
    "× products: median over the rounds of the update's time by theirs in the same round",
)


@dataclass(frozen=True)
class Task:
    """A size of the paper."""

    name: str
    batch: int
    context: int
    sizes: Sizes
    actor_hidden: tuple[int, ...]
    critic_hidden: tuple[int, ...]


WIDE = ((256, 256), (256, 256))
TASKS = (
    Task("Best Arm", 64, 256, Sizes(1, 3, True), (128,), (256,)),
    Task("POPGym", 32, 64, Sizes(8, 5, True), *WIDE),
    Task("POPGym, masked", 32, 64, Sizes(8, 5, True, action_mask=True), *WIDE),
    Task("POPGym, continuous", 32, 64, Sizes(8, 5, False), *WIDE),
    Task("DMC", 32, 64, Sizes(24, 6, False), *WIDE),
    Task("POPGym, N = 256", 32, 64, Sizes(8, 5, True), *WIDE),
)
ENCODERS_OF = {  # their settings; else as they are
    "Best Arm": BEST_ARM,
    "DMC": DMC,
    "POPGym, N = 256": {name: {"d_state": 256} for name in ("vssm", "vssm+kf", "vssm+kf-u", "gru")},
}
SMALL = Task("small", 4, 8, Sizes(2, 3, True), (8,), (8, 8))


def plain_draws(parameters: Tensor, noise: Tensor, limits: Range) -> Draws:
    """Compute `fused_draws` by plain operations."""
    here = draw(parameters[:, :-1], noise[1], limits)
    later = draw(parameters.detach()[:, 1:], noise[0], limits)
    return Draws(
        Draw(F.pad(here.entropy, (0, 1)), F.pad(here.action, (0, 0, 0, 1))),
        Draw(F.pad(later.entropy, (1, 0)), F.pad(later.action, (0, 0, 1, 0))),
    )


def _nowhere(*tensors: Tensor) -> bool:
    """Triton kernels take no tensors."""
    return False


# what makes a form plain: a name of a module, and what it is then
PLAIN: dict[str, tuple[Any, str, Any]] = {
    "losses": (sac_losses, "fused", _nowhere),
    "draws": (learning, "fused_draws", plain_draws),
    "hold": (layers, "holds_beside", _nowhere),
    "norm": (rms_norm, "fused", _nowhere),
}


@dataclass(frozen=True)
class Rules:
    """How long to measure, and with how many batches in turn."""

    rounds: int
    sample_seconds: float
    batches: int


def main(argv: Sequence[str] | None = None) -> int:
    """Measure every size, print the tables, write JSON; 1 if an encoder was refused."""
    words = list(sys.argv[1:] if argv is None else argv)
    options = _options(words)
    device = torch.device(options.device)
    before, patches = torch.get_num_threads(), ExitStack()
    torch.set_num_threads(options.threads)
    try:
        rules = Rules(2, 0.002, 2) if options.quick else Rules(options.rounds, 0.1, 4)
        notes: tuple[str, ...] = gpu_updates.NOTES if device.type == "cuda" else NOTES
        for form in options.plain:
            notes += (f"{form}: plain operations, on CUDA too",)
            patches.enter_context(patch.object(*PLAIN[form]))
        for note in notes:
            print(f"- {note}")
        tables: list[dict[str, Any]] = []
        chosen = [x for x in TASKS if not options.tasks or x.name in options.tasks]
        for task in (SMALL,) if options.quick else chosen:
            if device.type == "cuda":
                names = options.only or list(ENCODERS)
                tables.append({})
                gpu_updates.measure(
                    task, names, options.seeds, make_learner, options.seconds, options.compare,
                    options.peers, tables[-1],
                    lambda: _write(options, words, notes, tables, finished=False),
                    options.rounds_a_graph,
                )  # fmt: skip
                continue
            for full in (False, True):
                tables.append(measure(options.only or list(ENCODERS), task, full, device, rules))
                _print(tables[-1])
                _write(options, words, notes, tables, finished=False)
                release_memory()
    finally:
        torch.set_num_threads(before)
        patches.close()
    if options.out is not None:
        _write(options, words, notes, tables, finished=True)
        print(f"written: {options.out.name}")
    return 1 if any(table.get("refused") for table in tables) else 0


def measure(
    names: Sequence[str], task: Task, full: bool, device: torch.device, rules: Rules
) -> dict[str, Any]:
    """One table: updates and products of every encoder in turns, all on the same batches."""
    rng = np.random.default_rng(0)
    lengths = np.full(task.batch, task.context) if full else episode_lengths(rng, 512)
    replay = filled(task.sizes, lengths, rng, device)
    draw = torch.Generator(device).manual_seed(0)
    events, packed = device.type == "cuda", device.type == "cpu"

    def sample(_: int) -> Batch:
        return replay.sample(task.batch, task.context, generator=draw, packed=packed)

    batches = [sample(i) for i in range(rules.batches)]
    sampling = Stopwatch(sample, 1, events)
    timed({"sampling": sampling}, rules)
    rows, refused = [], dict[str, str]()
    for name in names:  # one agent at a time, as in a training: the others would take its memory
        learner = make_learner(name, task, device)
        wrong = [k for k, x in learner.update(batches[0]).items() if not x.isfinite()]
        if wrong:
            refused[name] = f"{wrong[0]} is not finite"
            continue
        watches = {
            column: Stopwatch(run, len(batches), events)
            for column, run in workloads(learner, batches).items()
        }
        timed(watches, rules)
        rows.append({"name": name, **_row(watches)})
    return {
        "task": task.name,
        "batch": task.batch,
        "context": task.context,
        "episodes": "full windows" if full else "best-arm episodes",
        "tokens": statistics.mean(int(b.lengths.sum()) for b in batches),
        "sampling_seconds": sampling.median,
        "rows": rows,
        "refused": refused,
    }


def timed(watches: dict[str, Stopwatch], rules: Rules) -> None:
    """Measure these in turns."""
    for watch in watches.values():
        watch.calibrate(rules.sample_seconds)
        watch.runs = -(-watch.runs // watch.sets) * watch.sets  # every batch equally often
    interleave(list(watches.values()), rules.rounds)


def make_learner(name: str, task: Task, device: torch.device) -> Learner:
    """The paper's agent."""
    settings = AgentSettings(
        encoder=name,
        encoder_settings=ENCODERS_OF.get(task.name, {}).get(name, {}),
        context_length=task.context,
        actor_hidden=task.actor_hidden,
        critic_hidden=task.critic_hidden,
        ent_coef=0.1 if task.name == "Best Arm" else "auto",
        actor_objective="value",  # what the peers do too
    )
    return Learner(settings, task.sizes, device=device)


def workloads(learner: Learner, batches: Sequence[Batch]) -> dict[str, Callable[[int], Any]]:
    """What is timed, by column."""
    bare = [products(layers_of(learner, batch), learner.device) for batch in batches]
    found: dict[str, Callable[[int], Any]] = {"eager": lambda i: learner.update(batches[i])}
    return found | {"products": lambda i: bare[i](0)}


def _row(watches: dict[str, Stopwatch]) -> dict[str, Any]:
    floor = watches["products"].samples
    return {
        column: {
            "median": watch.median,
            "spread": watch.spread,
            "best": min(watch.samples),
            "times_products": statistics.median(
                t / least for t, least in zip(watch.samples, floor, strict=True)
            ),
        }
        for column, watch in watches.items()
    }


def _print(table: dict[str, Any]) -> None:
    size, sampled = (table["batch"], table["context"]), table["sampling_seconds"] * 1e3
    print(f"\n{table['task']}, (B, T) = {size}, {table['episodes']}: ", end="")
    print(f"{table['tokens']:,.0f} tokens a batch, sampled in {sampled:.2g} ms")
    columns = [c for c in ("eager", "captured") if any(c in row for row in table["rows"])]
    head = ["", *(x for c in columns for x in (f"{c}, updates/s", "× products")), "products"]
    body = []
    for row in table["rows"]:
        cells = [row["name"]]
        for column in columns:
            found = row[column]
            cells.append(f"{1 / found['median']:,.3g} ± {found['spread']:.0%}")
            cells.append(f"{found['times_products']:.2f}")
        body.append([*cells, f"{row['products']['median'] * 1e3:.3g} ms"])
    print_table(head, body)
    for name, why in table["refused"].items():
        print(f"  REFUSED {name}: {why}")


def _write(
    options: argparse.Namespace, words: Sequence[str], notes: Sequence[str], tables: list[Any], *,
    finished: bool,
) -> None:  # fmt: skip
    """What has been measured so far."""
    if options.out is None:
        return
    document = {
        **on_record("benchmarks/update.py", words),
        "device": options.device,
        "threads": options.threads,
        "notes": notes,
        "finished": finished,
        "tables": tables,
    }
    save(document, options.out)


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--only", nargs="+", choices=list(ENCODERS), help="these encoders alone")
    parser.add_argument("--tasks", nargs="+", choices=[x.name for x in TASKS], help="these alone")
    parser.add_argument("--threads", type=int, default=2, help="of PyTorch and of the scans")
    parser.add_argument("--rounds", type=int, default=9, help="samples per number")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 5, 10], help="on CUDA")
    parser.add_argument(
        "--rounds-a-graph", type=int, default=ROUNDS[0], help="of updates of several seeds, on CUDA"
    )
    parser.add_argument("--seconds", type=float, default=0.5, help="per number, on CUDA")
    parser.add_argument(
        "--compare", action=argparse.BooleanOptionalAction, default=True,
        help="on CUDA, also compare graph and eager updates",
    )  # fmt: skip
    parser.add_argument(
        "--plain", nargs="+", choices=list(PLAIN), default=[],
        help="these by plain operations; without fused losses, draws are plain, too",
    )  # fmt: skip
    parser.add_argument(
        "--peers", action=argparse.BooleanOptionalAction, default=True,
        help="on CUDA, also time plain PyTorch and JAX",
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="a small size and few repetitions")
    parser.add_argument("--out", type=Path, help="also write the numbers as JSON")
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
