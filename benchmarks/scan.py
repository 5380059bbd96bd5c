"""Time the scans: every usable backend, forward and with gradients, against its peers.

    python benchmarks/scan.py [--device cuda] [--sizes 32,64,128 …] [--out results/scan-cpu.json]

Ratios count, not times: all contenders get the same inputs in the same process, warm, with their
repetitions interleaved. A contender that disagrees with the float64 reference is not timed, and
the exit status is 1. On a GPU each Kalman contender compiles for about twenty seconds before its
first sample; `before_after.py` compares one of them in two checkouts.
"""

import argparse
import importlib.metadata
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import peers
from contenders import Contender, of_backends
from kalmanac._installation import versions
from plain_pytorch import plain_pytorch
from problem import Size
from race import Race, RaceRules
from record import on_record, save
from report import print_race, print_summary
from timing import copy_bandwidth, release_memory

PAPER_SIZES = (Size(32, 64, 128), Size(64, 256, 128))  # POPGym and Best Arm Identification
LARGE_SIZES = (Size(64, 1024, 512), Size(16, 16384, 1024), Size(1, 65536, 128))
QUICK = RaceRules(rounds=2, sample_seconds=0.001, patience=5.0)
THOROUGH = RaceRules(rounds=11, sample_seconds=0.1, patience=20.0)
NOTES = (
    "inputs: u, w and the noise are views of one (B, T, 3N) tensor; float32",
    "forward: without autograd; with gradients: forward, and the gradients of a, b, q, u, w and "
    "the noise for a random loss gradient of the posterior mean",
    "floor: the least traffic (Kalman 20 bytes per element forward, 56 with gradients; linear 8 "
    "and 20) at the measured copy bandwidth; data that stay in a cache can beat it",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Race at every size, print the tables, write JSON; 1 if a contender was refused."""
    words = list(sys.argv[1:] if argv is None else argv)
    options = _options(words)
    device = torch.device(options.device)
    if options.flush_denormals:
        torch.set_flush_denormal(True)  # before torch starts its threads: they inherit it
    rules = QUICK if options.quick else THOROUGH
    sizes = options.sizes or (
        [Size(4, 16, 8)] if options.quick else _default_sizes(device)
    )  # fmt: skip
    bandwidth = copy_bandwidth(
        device, 8 if options.quick else 1024 if device.type == "cuda" else 256
    )
    print(f"copy bandwidth on {device.type}: {bandwidth / 1e9:.0f} GB/s (read + written)")
    for note in NOTES:
        print(f"- {note}")

    document: dict[str, Any] = {
        **on_record("benchmarks/scan.py", words),
        "versions": versions() | _jax_version(),
        "device": device.type,
        "copy_bandwidth_bytes_per_second": bandwidth,
        "notes": NOTES,
        "races": [],
    }
    races: list[dict[str, Any]] = document["races"]
    for size in sizes:
        contenders, absent = _line_up(size, device, options.only)
        race = Race(size, device, rules, absent)
        race.run(contenders)
        races.append(race.result(bandwidth))
        print_race(races[-1])
        if options.out is not None:  # after every size: a long run that dies keeps what it has
            save(document, options.out)
        del race
        release_memory()
    print_summary(races)
    if options.out is not None:
        print(f"written: {options.out}")
    refused = [f"{r['size']} {name}: {why}" for r in races for name, why in r["refused"].items()]
    for line in refused:
        print(f"REFUSED {line}", file=sys.stderr)
    return 1 if refused else 0


def _line_up(
    size: Size, device: torch.device, only: Sequence[str] | None
) -> tuple[list[Contender], dict[str, str]]:
    contenders, absent = of_backends(device)
    contenders += [*plain_pytorch(), peers.gru(size, device)]
    jax_scan = peers.jax_scan(device) if only is None or "jax" in only else "not asked for"
    if isinstance(jax_scan, str):
        absent["JAX scan"] = jax_scan
    else:
        contenders.append(jax_scan)
    if only is not None:
        contenders = [c for c in contenders if any(word in c.name.lower() for word in only)]
    return contenders, absent


def _default_sizes(device: torch.device) -> list[Size]:
    return [*PAPER_SIZES, *(LARGE_SIZES if device.type == "cuda" else ())]


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks/scan.py", description=(__doc__ or "").splitlines()[0]
    )
    add = parser.add_argument
    best = "cuda" if torch.cuda.is_available() else "cpu"
    add("--device", choices=("cpu", "cuda"), default=best, help="default here: %(default)s")
    add("--sizes", nargs="+", type=_size, metavar="B,T,N", help="instead of the default sizes")
    add("--only", nargs="+", metavar="WORD", help="contenders whose name holds one of the words")
    add("--quick", action="store_true", help="a tiny size and few repetitions: a smoke test")
    add("--flush-denormals", action="store_true", help="help plain PyTorch over tiny numbers")
    add("--out", type=Path, metavar="FILE", help="write the results as JSON")
    options = parser.parse_args(words)
    if options.device == "cuda" and best != "cuda":
        parser.error("--device: got 'cuda', but torch finds no CUDA device here")
    return options


def _size(text: str) -> Size:
    try:
        size = Size(*(int(part) for part in text.split(",")))
    except (TypeError, ValueError):
        size = None
    if size is None or min(size) < 1:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected B,T,N such as 32,64,128")
    return size


def _jax_version() -> dict[str, str]:
    try:
        return {"jax": importlib.metadata.version("jax")}
    except importlib.metadata.PackageNotFoundError:
        return {"jax": "not installed"}


if __name__ == "__main__":
    sys.exit(main())
