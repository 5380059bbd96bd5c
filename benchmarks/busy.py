"""Time a training alone and beside a program that keeps every core busy, with no variable set.

    python benchmarks/busy.py [--before] [--quick] [--out results/busy-cpu.json]

Both take turns, so that what else the machine does meets both alike. With `--before` there is a
third kind, with threads that spin, as they did before kalmanac told them to sleep. The exit status
is 1 where the training beside others is more than `LIMIT` times slower.
"""

import argparse
import json
import multiprocessing
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from record import on_record, save
from report import print_table

LIMIT = 2.5
NOTES = (
    "seconds: of the training itself, evaluations included (timing.jsonl); process: of all of the "
    "command, imports and the measurement of threads included; processor: seconds of all its "
    "threads, in which nobody else's work is counted",
    "times slower: median over the rounds of busy / alone, in the same round",
    "load: of the machine in the last minute, as the command begins; above 0, others were at work "
    "beside what is called alone, and a program more or less costs less than on a quiet machine",
    "spinning: GOMP_SPINCOUNT=300000, libgomp's own default, and as many threads as cores",
)
THREADS = ("OMP_", "GOMP_", "KMP_", "MKL_", "NUMBA_")  # variables that begin so are taken away
SPINNING = {"GOMP_SPINCOUNT": "300000"}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, write JSON; 1 where the limit is passed."""
    words = list(sys.argv[1:] if argv is None else argv)
    options = _options(words)
    cores = len(os.sched_getaffinity(0))
    kinds = {"alone": False, "busy": True}
    samples: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    spinning: dict[str, Any] = {}
    for _ in range(options.rounds):
        for kind, busy in kinds.items():
            with busy_cores(cores if busy else 0):
                samples[kind].append(training(options))
    slower = {
        clock: statistics.median(
            busy[clock] / alone[clock]
            for alone, busy in zip(samples["alone"], samples["busy"], strict=True)
        )
        for clock in ("seconds", "process", "processor")
    }
    if options.before:
        for kind, busy in kinds.items():
            with busy_cores(cores if busy else 0):
                spinning[kind] = training(options, SPINNING, ["--threads", str(cores)])
    rows = [(kind, one) for kind in kinds for one in samples[kind]]
    rows += [(f"{kind}, spinning", one) for kind, one in spinning.items()]
    head = ["", *rows[0][1]]
    print_table(head, [[name, *(f"{x:.3g}" for x in one.values())] for name, one in rows])
    print(
        f"times slower: {slower['seconds']:.2f}, all of the command {slower['process']:.2f}, "
        f"its processor time {slower['processor']:.2f}"
    )
    if options.out is not None:
        found = {"busy_cores": cores, "times_slower": slower, **samples, "spinning": spinning}
        save({**on_record("benchmarks/busy.py", words), "notes": NOTES, **found}, options.out)
        print(f"written: {options.out.name}")
    return int(slower["seconds"] > LIMIT)


def training(
    options: argparse.Namespace, variables: dict[str, str] | None = None, flags: Sequence[str] = ()
) -> dict[str, float]:
    """One `kalmanac train` in a process of its own, without variables about threads but these."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(THREADS)}
    load, processor = os.getloadavg()[0], _processor_seconds()
    with tempfile.TemporaryDirectory() as place:
        run = Path(place, "run")
        began = time.perf_counter()
        subprocess.run(
            [
                sys.executable, "-m", "kalmanac", "train", options.task, "--device=cpu",
                f"--total-steps={options.steps}", f"--log-every={options.steps}",
                "--learning-starts=500",
                f"--eval-every={options.steps}", "--eval-episodes=4", "--no-progress",
                "--no-tensorboard", "--no-keep-checkpoint", f"--folder={run}", *flags,
            ],
            env=inherited | (variables or {}), check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        process = time.perf_counter() - began
        timing = json.loads((run / "timing.jsonl").read_text().splitlines()[-1])
        provenance = json.loads((run / "provenance.json").read_text())
    return {
        "seconds": timing["time/elapsed"],
        "process": process,
        "processor": _processor_seconds() - processor,
        "threads": int(provenance["threads"]),
        "load": load,
    }


def _processor_seconds() -> float:
    """Of all processes that were started here and have ended."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


@contextmanager
def busy_cores(number: int) -> Iterator[None]:
    """So many processes that do nothing but count."""
    processes = [multiprocessing.Process(target=_count, daemon=True) for _ in range(number)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


def _count() -> None:
    while True:
        pass


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--task", default="best-arm")
    parser.add_argument("--steps", type=int, default=2500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--before", action="store_true", help="also with threads that spin")
    parser.add_argument("--quick", action="store_true", help="few steps, one round")
    parser.add_argument("--out", type=Path, help="also write the numbers as JSON")
    options = parser.parse_args(words)
    if options.quick:
        options.steps, options.rounds = 64, 1
    return options


if __name__ == "__main__":
    sys.exit(main())
