"""`kalmanac sweep SUITE …`: the runs of the paper's suites, each once, however often it is called.

What is finished is skipped, what was stopped goes on from its checkpoint, what failed is tried
again. Any setting of an experiment can be changed for all runs: `--total-steps 100000`.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kalmanac._cli.verb import Call, Verb, expect_at_least, listed
from kalmanac._lab.active_run import CHECKPOINT_EVERY, StopSignals
from kalmanac._ops.device import check_device, on_cpu
from kalmanac._suites.registry import SUITES
from kalmanac._sweep.board import Board
from kalmanac._sweep.driving import drive, make_executor
from kalmanac._sweep.plan import Planned, Selection, batches, make_plan, refuse_missing
from kalmanac._sweep.record import Record

EXECUTION = (
    "jobs", "on", "ray_address", "gpus_per_job", "device", "threads", "checkpoint_every",
    "tensorboard",
)  # fmt: skip


@dataclass(frozen=True)
class Options:
    """What to run, and where."""

    folder: str = "runs"
    """Where the runs go, each in a folder of its own, and what is known of them."""
    preset: Literal["paper", "quick"] = "paper"
    """quick: two seeds and a few updates of each setting, labeled so; to see that all works."""
    agents: tuple[str, ...] = ()
    """Only these agents."""
    tasks: tuple[str, ...] = ()
    """Only environments whose names hold one of these words."""
    seeds: int | None = None
    """Of each setting the first so many seeds; None is all."""
    jobs: int | None = None
    """Runs at a time; None is one for each core, on a GPU one setting with all its seeds."""
    on: Literal["local", "ray"] = "local"
    """local: processes of this machine; ray: a Ray cluster whose machines share the folder."""
    ray_address: str | None = None
    """Of the cluster, or auto; None starts Ray on this machine."""
    gpus_per_job: float = 0.25
    """With Ray, the share of a GPU that a job takes."""
    device: str = "auto"
    """auto, cpu or cuda."""
    threads: int | None = None
    """Of each job; None is the cores by the jobs."""
    checkpoint_every: int = CHECKPOINT_EVERY
    """Environment steps between checkpoints."""
    tensorboard: bool = True
    """Write TensorBoard events."""
    dry_run: bool = False
    """Only say what would be run."""


def run_sweep(call: Call) -> int:
    """The verb. 2: a call that cannot be understood; 1: runs failed; 130: stopped by Ctrl-C."""
    options: Options = call.options
    expect_at_least(1, options, "jobs", "threads", "checkpoint_every")
    selection = Selection(
        call.words, options.preset, options.agents, options.tasks, options.seeds, call.changes
    )
    check_device(options.device, here=options.on == "local")
    root = Path(options.folder)
    plan = make_plan(selection, root)
    refuse_missing(plan)
    due = [planned for planned in plan if not planned.done]
    print(describe(selection, plan, due), flush=True)
    if options.dry_run:
        for planned in due:
            print(planned.folder.relative_to(root.resolve()))
        return 0
    return sweep(plan, due, root, options)


def describe(selection: Selection, plan: Sequence[Planned], due: Sequence[Planned]) -> str:
    """One line: how many runs, of which steps, and how many are left."""
    steps = sorted({planned.experiment.total_steps for planned in plan})
    labels = sorted({planned.experiment.label for planned in plan} - {""})
    marks = f" ({', '.join(labels)})" if labels else ""
    long = " or ".join(f"{number:,}" for number in steps)
    return (
        f"{', '.join(selection.names)}{marks}: {len(plan):,} runs of {long} steps, "
        f"{len(plan) - len(due):,} done already"
    )


def sweep(plan: Sequence[Planned], due: Sequence[Planned], root: Path, options: Options) -> int:
    """Run what is due; returns the exit status."""
    record = Record(root)
    # before the signals, since Ray has handlers of its own, and before anything is written, since
    # it may not be there
    executor, how = make_executor(record, **{name: getattr(options, name) for name in EXECUTION})
    record.plan(plan)
    with StopSignals() as stop:
        works = batches(due, together=not on_cpu(how.device))
        failed = 0
        try:
            with Board(root, len(plan), len(plan) - len(due)) as board:
                for done in drive(executor, works, record, board, stop, how.stop_file):
                    failed += sum(ended.status in ("failed", "diverged") for ended in done.ended)
        except KeyboardInterrupt:  # the second one
            print("kalmanac sweep: killed; checkpoints are kept", file=sys.stderr)
        return _end(plan, root, failed, stop.number)


def _end(plan: Sequence[Planned], root: Path, failed: int, signal: int | None) -> int:
    left = sum(not planned.done for planned in plan)
    line = f"{len(plan) - left:,} of {len(plan):,} runs are done"
    if failed:
        line += f"; {failed:,} failed or diverged: `kalmanac status {root}` says why"
    if left:
        line += "; the same call goes on"
    print(f"{line}. `kalmanac report {root}` draws them")
    if signal is not None and left:
        return 128 + signal
    return 1 if failed or left else 0


VERB = Verb(
    run_sweep,
    Options,
    "Run whole suites of the paper, or all of them. What is finished is skipped, what was stopped "
    "goes on. Settings of experiments that are given here change all runs. SUITE is all, or some "
    f"of:\n{listed(SUITES)}",
    words="SUITE …",
    most=math.inf,
    settings=lambda words: SUITES["popgym"].presets["popgym"].experiment("vssm+kf"),
)
