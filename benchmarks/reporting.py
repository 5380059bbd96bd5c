"""A report on a thousand runs: seconds and memory.

    python benchmarks/reporting.py            # 1,000 runs with as many rows as real ones have
    python benchmarks/reporting.py --rows 0   # evaluations alone: quickly written

The runs are made up and written by the real writer, in the proportions of the paper: five seeds of
eight agents in Best Arm at four costs, in nine tasks of control and in twelve of POPGym. The report
runs in a process of its own, as a user would call it.
"""

import argparse
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kalmanac._files.run_folder import RunFolder
from kalmanac._lab.experiment import Experiment
from kalmanac._report.groups import DMC_NOISE, POPGYM_TASKS
from kalmanac._suites import best_arm

EVALUATIONS = 100  # a run
ROWS = 1_000  # of training metrics, a run
TRAINING = {f"train/metric_{i}": math.pi * i for i in range(14)}


class Cost(NamedTuple):
    """Of one report."""

    seconds: float
    processor_seconds: float  # all of its processes together
    megabytes: float  # of its largest process
    processes: int


def experiments() -> Iterator[tuple[Experiment, dict[str, Any], float, float]]:
    """Experiment, further settings, lowest and highest return; 1,000 of them, seed by seed."""
    for seed, agent in itertools.product(range(5), best_arm.AGENTS):
        for cost in best_arm.COSTS:
            yield best_arm.paper(agent, cost=cost, seed=seed), {}, -10.0, 10.0
        for task, noise in list(DMC_NOISE.items())[:9]:
            what = Experiment(env=f"dmc/{task}", seed=seed).changed({"encoder": agent})
            yield what, {"noise": noise, "action_noise": 0.0}, 0.0, 1000.0
        for task in POPGYM_TASKS:
            what = Experiment(env=f"popgym/{task}", seed=seed).changed({"encoder": agent})
            yield what, {}, -1.0, 1.0


def write_runs(root: Path, count: int, rows: int) -> int:
    """The first `count` of them; bytes written."""
    written = 0
    for number, (what, also, low, high) in enumerate(itertools.islice(experiments(), count)):
        folder = root / f"{number:04d}"
        write_run(folder, what.to_data() | also, low, high, rows)
        written += sum(file.stat().st_size for file in folder.iterdir())
    return written


def write_run(folder: Path, data: dict[str, Any], low: float, high: float, rows: int) -> None:
    """A run that climbs half-way up, noisily, with `rows` rows between its evaluations."""
    rng = np.random.default_rng([data["seed"], len(data["encoder"])])
    total = data["total_steps"]
    every = total // EVALUATIONS
    with RunFolder(folder, data | {"eval_every": every}, events=False) as run:
        for step in range(every, total + 1, every):
            for between in range(rows // EVALUATIONS):
                at = step - every + between
                run.log(at, TRAINING)
                run.log_time(at, {"time/elapsed": at / 1000, "time/fps": 1000.0})
            found = {}
            for place in data["evaluations"]:
                share = 0.5 * step / total + 0.05 * rng.normal()
                found[f"eval/{place}/mean_reward"] = low + (high - low) * share
                found[f"eval/{place}/normalized"] = (low + (high - low) * share) / 10
                found[f"eval/{place}/length"] = 10 + 20 * rng.random()
            run.log(step, found)
        run.summarize(status="finished", step=total)


# Linux counts the memory of whoever started a process as the process's own, so that a small one has
# to start the report, and to say what its children took.
STARTER = """
import json, resource, subprocess, sys
code = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([used.ru_utime + used.ru_stime, used.ru_maxrss]))
sys.exit(code)
"""


def measure(root: Path, out: Path) -> Cost:
    """One report on the runs in `root`."""
    words = [sys.executable, "-m", "kalmanac", "report", str(root), "--out", str(out)]
    began = time.perf_counter()
    starter = [sys.executable, "-c", STARTER, *words]
    told = subprocess.run(starter, check=True, stdout=subprocess.PIPE, text=True).stdout
    seconds = time.perf_counter() - began
    processor, largest = json.loads(told)
    unit = 1 if sys.platform == "darwin" else 1024
    return Cost(seconds, processor, largest * unit / 1e6, 3)


def main(argv: Sequence[str] | None = None) -> int:
    """Write, report, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=ROWS, help="of training metrics, a run")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "runs")
        size = write_runs(root, options.runs, options.rows)
        cost = measure(root, Path(folder, "out"))
    print(f"{options.runs:,} runs, {size / 1e6:,.0f} MB of files")
    print(
        f"{cost.seconds:.1f} s on the clock, {cost.processor_seconds:.1f} s of processor time in "
        f"up to {cost.processes} processes, of which the largest held {cost.megabytes:.0f} MB"
    )
    print(f"{os.cpu_count()} processors; load of the machine {os.getloadavg()[0]:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
