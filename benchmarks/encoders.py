"""Time every history encoder at the paper's sizes: training sequences, and one step of acting.

    python benchmarks/encoders.py [--device cuda] [--quick] [--out results/encoders-cpu.json]

One table per size: forward and backward of a padded batch, one step of the batch, and one step of a
single environment after 10 and after 10,000 steps of history. All encoders run in one process, with
their repetitions interleaved; on CUDA also as replayed graphs. An encoder whose steps disagree with
its forward is not timed, and the exit status is 1.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kalmanac._encoders.contract import HistoryEncoder
from kalmanac._encoders.parameters import (
    BEST_ARM,
    WALKER_RUN,
    count_parameters,
    rule_as_text,
    ten_percent_rule,
)
from kalmanac._encoders.registry import ENCODERS, encoder_settings, make_encoder
from kalmanac._ops.device import keep_freed_memory
from record import on_record, save
from report import print_table
from timing import Stopwatch, capture, interleave, release_memory

D_MODEL = 16
PAPER_SIZES = ((32, 64), (64, 256))  # (batch, context): DMC and POPGym, Best Arm Identification
HISTORIES = (10, 10_000)
NOTES = (
    "on the CPU, freed memory stays with the process, as in training (`keep_freed_memory`): else "
    "the contenders' turns make the system take back and zero every large tensor's pages",
    "sequence: forward and backward with gradients of h and all parameters; row lengths between "
    "half and all of T; float32",
    "step: one step of the whole batch, no gradients; step @ n: one step of one environment after "
    "n steps of its episode, no gradients",
    "window of the Transformer: T; every other setting as in the paper",
)
COLUMNS = ("sequence", "step", *(f"step @ {n}" for n in HISTORIES))


@dataclass(frozen=True)
class Rules:
    """How long to measure."""

    rounds: int
    sample_seconds: float


def main(argv: Sequence[str] | None = None) -> int:
    """Measure at every size, print the tables, write JSON; 1 if an encoder was refused."""
    words = list(sys.argv[1:] if argv is None else argv)
    options = _options(words)
    device = torch.device(options.device)
    rules = Rules(2, 0.002) if options.quick else Rules(options.rounds, 0.05)
    sizes = ((4, 8),) if options.quick else PAPER_SIZES
    for note in NOTES:
        print(f"- {note}")
    if device.type == "cpu":
        keep_freed_memory(torch.device("cpu"))
    tables: list[dict[str, Any]] = []
    refused: dict[str, str] = {}
    for batch, steps in sizes:
        table, bad = measure(options.only or list(ENCODERS), batch, steps, device, rules)
        refused |= bad
        tables.append({"batch": batch, "steps": steps, "rows": table})
        _print(batch, steps, table)
        release_memory()
    for name, why in refused.items():
        print(f"REFUSED {name}: {why}")
    rule = {"walker-run": ten_percent_rule(WALKER_RUN), "best arm": ten_percent_rule(BEST_ARM)}
    for task, shares in rule.items():
        print(f"\nThe paper's 10 % rule, agents of {task}, relative to vssm")
        print(rule_as_text(shares))
    if options.out is not None:
        document = {
            **on_record("benchmarks/encoders.py", words),
            "device": device.type,
            "notes": NOTES,
            "tables": tables,
            "refused": refused,
            "ten_percent_rule": {t: [s._asdict() for s in shares] for t, shares in rule.items()},
        }
        save(document, options.out)
        print(f"written: {options.out.name}")
    return 1 if refused else 0


def measure(
    names: Sequence[str], batch: int, steps: int, device: torch.device, rules: Rules
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Rows of medians in seconds, and why encoders were left out."""
    rows: list[dict[str, Any]] = []
    refused: dict[str, str] = {}
    watches: dict[tuple[str, str], Stopwatch] = {}
    for name in names:
        torch.manual_seed(0)
        settings = {"d_model": D_MODEL}
        if "window" in encoder_settings(name):
            settings["window"] = steps
        encoder = make_encoder(name, **settings).to(device)
        why = disagreement(encoder, device)
        if why is not None:
            refused[name] = why
            continue
        rows.append({"name": name, "parameters": count_parameters(encoder), "seconds": {}})
        for column, run in workloads(encoder, batch, steps, device).items():
            watches[name, f"{column} eager"] = Stopwatch(run, 1, device.type == "cuda")
            if device.type == "cuda":
                replay = capture(run, 1)
                watches[name, f"{column} graph"] = Stopwatch(replay, 1, True)
    for watch in watches.values():
        watch.calibrate(rules.sample_seconds)
    interleave(list(watches.values()), rules.rounds)
    for row in rows:
        for (name, column), watch in watches.items():
            if name == row["name"]:
                row["seconds"][column] = {"median": watch.median, "spread": watch.spread}
    return rows, refused


def workloads(
    encoder: HistoryEncoder, batch: int, steps: int, device: torch.device
) -> dict[str, Callable[[int], Any]]:
    """What is timed, by column."""
    draw = torch.Generator().manual_seed(1)
    h = torch.randn(batch, steps, D_MODEL, generator=draw).to(device).requires_grad_()
    lengths = torch.randint(steps // 2, steps + 1, (batch,), generator=draw).to(device)
    pull = torch.randn(batch, steps, D_MODEL, generator=draw).to(device)
    into = [h, *encoder.parameters()]

    def sequence(_: int) -> Any:
        z, _state = encoder(h, lengths=lengths)
        return torch.autograd.grad((z,), into, (pull,))

    found: dict[str, Callable[[int], Any]] = {"sequence": sequence}
    h_t = h[:, 0].detach().contiguous()
    found["step"] = _one_step(encoder, h_t, 1)
    for history in HISTORIES:
        found[f"step @ {history}"] = _one_step(encoder, h_t[:1], history)
    return found


def _one_step(encoder: HistoryEncoder, h_t: Tensor, history: int) -> Callable[[int], Any]:
    """One step from the state after `history` steps."""
    steps = min(history, getattr(encoder, "window", history))  # earlier ones leave no trace
    with torch.no_grad():
        state = encoder.initial_state(len(h_t))
        for begin in range(0, steps, 500):
            n = min(500, steps - begin)
            _, state = encoder(torch.randn(len(h_t), n, D_MODEL, device=h_t.device), state)
    kept = state

    @torch.no_grad()
    def run(_: int) -> Any:
        return encoder.step(h_t, kept)

    return run


@torch.no_grad()
def disagreement(encoder: HistoryEncoder, device: torch.device) -> str | None:
    """Why the encoder must not be timed: its steps do not give what its forward gives."""
    h = torch.randn(2, 6, D_MODEL, device=device)
    exact = torch.backends.cudnn.flags(enabled=True, allow_tf32=False)
    with exact if device.type == "cuda" else nullcontext():
        z, _ = encoder(h)
        state = encoder.initial_state(2)
        for t in range(6):
            z_t, state = encoder.step(h[:, t], state)
            off = float((z_t - z[:, t]).abs().max())
            if not off < 1e-4 * max(1.0, float(z.abs().max())):
                return f"step {t} is off its forward by {off:.2g}"
    return None


def _print(batch: int, steps: int, table: Sequence[dict[str, Any]]) -> None:
    print(f"\n(B, T) = ({batch}, {steps}), E = {D_MODEL}: median ± spread")
    columns = list(dict.fromkeys(c for row in table for c in row["seconds"]))
    columns.sort(key=lambda c: c.endswith("graph"))
    several = any(c.endswith("graph") for c in columns)
    titles = [c if several else c.removesuffix(" eager") for c in columns]
    body = [
        [row["name"], f"{row['parameters']:,}", *(_cell(row["seconds"].get(c)) for c in columns)]
        for row in table
    ]
    print_table(["", "parameters", *titles], body)


def _cell(found: dict[str, float] | None) -> str:
    if found is None:
        return "–"
    t = found["median"]
    number = f"{t * 1e6:.3g} µs" if t < 1e-3 else f"{t * 1e3:.3g} ms"
    return f"{number} ± {found['spread']:.0%}"


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--only", nargs="+", choices=list(ENCODERS), help="these encoders alone")
    parser.add_argument("--rounds", type=int, default=9, help="samples per number")
    parser.add_argument("--quick", action="store_true", help="a small size and few repetitions")
    parser.add_argument("--out", type=Path, help="also write the numbers as JSON")
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
