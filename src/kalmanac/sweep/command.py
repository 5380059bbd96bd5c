"""`kalmanac sweep SUITE …`: the runs of the paper's suites, each once, however often it is called.

What is finished is skipped, what was stopped goes on from its checkpoint, what failed is tried
again. Any setting of an experiment can be changed for all runs: `--total-steps 100000`.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kalmanac.experiment import CHECKPOINT_EVERY, Experiment, StopSignals, check_device
from kalmanac.experiment.flags import read_flags, show_help
from kalmanac.ops.device import gpus
from kalmanac.printable import MESSAGE, one_line
from kalmanac.suites import SUITES
from kalmanac.sweep.board import Board
from kalmanac.sweep.driving import drive, new_stop_file
from kalmanac.sweep.executor import Executor
from kalmanac.sweep.local import LocalProcesses, cores
from kalmanac.sweep.on_ray import OnRay
from kalmanac.sweep.plan import Planned, Selection, batches, make_plan, refuse_missing
from kalmanac.sweep.record import Record
from kalmanac.sweep.work import How


@dataclass(frozen=True)
class Options:
    """What to run, and where."""

    folder: str = "runs"
    """Where the runs go, each in a folder of its own, and what is known of them."""
    preset: Literal["paper", "quick"] = "paper"
    """quick: two seeds and a few updates of each setting, labelled so; to see that all works."""
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


def main(argv: Sequence[str]) -> int:
    """The verb. 2: a call that cannot be understood; 1: runs failed; 130: stopped by Ctrl-C."""
    words = list(argv)
    suites = []
    while words and not words[0].startswith("-"):
        suites.append(words.pop(0))
    if {"-h", "--help"} & set(words):
        return _help()
    try:
        options, selection = read_call(suites, words)
        check_device("cpu" if options.on == "ray" else options.device)
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
    except (ValueError, TypeError, ModuleNotFoundError, OSError) as error:
        print(f"kalmanac sweep: {one_line(error, MESSAGE)}", file=sys.stderr)
        return 2


def read_call(suites: Sequence[str], words: Sequence[str]) -> tuple[Options, Selection]:
    """What the words after `kalmanac sweep` ask for."""
    flags, changes = read_flags(words, Options, Experiment)
    options = Options(**flags)
    for name in ("jobs", "threads", "checkpoint_every"):
        if (number := getattr(options, name)) is not None and number < 1:
            raise ValueError(f"{name}: got {number}, expected at least 1")
    selection = Selection(
        suites, options.preset, options.agents, options.tasks, options.seeds, changes
    )
    return options, selection


def describe(selection: Selection, plan: Sequence[Planned], due: Sequence[Planned]) -> str:
    """One line: how many runs, of which steps, and how many are left."""
    steps = sorted({planned.experiment.total_steps for planned in plan})
    labels = sorted({planned.experiment.label for planned in plan} - {""})
    told = f" ({', '.join(labels)})" if labels else ""
    long = " or ".join(f"{number:,}" for number in steps)
    return (
        f"{', '.join(selection.names)}{told}: {len(plan):,} runs of {long} steps, "
        f"{len(plan) - len(due):,} done already"
    )


def sweep(plan: Sequence[Planned], due: Sequence[Planned], root: Path, options: Options) -> int:
    """Run what is due; returns the exit status."""
    record = Record(root)
    record.plan(plan)
    executor, how = make_executor(options, record)  # before: Ray has handlers of its own
    with StopSignals() as stop:
        works = batches(due, together=how.device != "cpu")
        failed = 0
        try:
            with Board(root, len(plan), len(plan) - len(due)) as board:
                for done in drive(executor, works, record, board, stop, how.stop_file):
                    failed += sum(ended.status in ("failed", "diverged") for ended in done.ended)
        except KeyboardInterrupt:  # the second one
            print("kalmanac sweep: killed; checkpoints are kept", file=sys.stderr)
        return _end(plan, root, failed, stop.number)


def make_executor(options: Options, record: Record) -> tuple[Executor, How]:
    """Cores are shared: each job has as many threads as there are cores for it."""
    gpu = options.device.startswith("cuda") or (
        options.device == "auto" and options.on == "local" and bool(gpus())
    )
    jobs = options.jobs or (1 if gpu else cores())
    threads = options.threads or (1 if options.on == "ray" else max(1, cores() // jobs))
    how = How(
        new_stop_file(record),
        device="cuda" if gpu and options.device == "auto" else options.device if gpu else "cpu",
        threads=threads,
        events=options.tensorboard,
        checkpoint_every=options.checkpoint_every,
    )
    if options.on == "local":
        return LocalProcesses(jobs, how, record.folder), how
    executor = OnRay(
        how, device=options.device, address=options.ray_address, gpus=options.gpus_per_job,
        jobs=options.jobs,
    )  # fmt: skip
    return executor, executor.how


def _end(plan: Sequence[Planned], root: Path, failed: int, signal: int | None) -> int:
    left = sum(not planned.done for planned in plan)
    told = f"{len(plan) - left:,} of {len(plan):,} runs are done"
    if failed:
        told += f"; {failed:,} failed or diverged: `kalmanac status {root}` says why"
    if left:
        told += "; the same call goes on"
    print(f"{told}. `kalmanac report {root}` draws them")
    if signal is not None and left:
        return 128 + signal
    return 1 if failed or left else 0


def _help() -> int:
    wide = max(map(len, SUITES))
    suites = "\n".join(f"  {name:<{wide}}  {suite.summary}" for name, suite in SUITES.items())
    show_help(
        SUITES["popgym"].presets["popgym"].experiment("vssm+kf"),
        Options(),
        prog="kalmanac sweep SUITE …",
        description="Run whole suites of the paper, or all of them. What is finished is skipped, "
        "what was stopped goes on. Settings of experiments that are given here change all runs. "
        f"SUITE is all, or some of:\n{suites}",
    )
    return 2
