"""Time whole trainings, part by part: who waits for whom.

    python benchmarks/training.py [--device cuda] [--seeds 3] [--overlap] [--eval-beside]
        [--out FILE]

One task of Best Arm, of POPGym and of DeepMind Control with the paper's settings, all seeds in one
process as `kalmanac train --seeds` runs them. The clock starts when updates are under way: kernels
are compiled and graphs recorded by then.
"""

import argparse
import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch

from kalmanac._lab.checkpointing import Checkpointer
from kalmanac._lab.experiment import Experiment
from kalmanac._lab.run import run_together
from kalmanac._lab.run_logger import RunLogger
from kalmanac._ops.transfer import Returning
from kalmanac._sac.collector import Collector
from kalmanac._sac.episode_streams import EpisodeStreams
from kalmanac._sac.loop import Member, TrainingLoop
from kalmanac._sac.recurrent_sac import RecurrentSAC
from kalmanac._sac.training import Training
from kalmanac._suites.registry import starting_point
from record import on_record, save
from report import print_table

TASKS = ("best-arm", "popgym/RepeatPreviousEasy", "dmc/cheetah-run")
STEPS = 20_000  # of each seed, behind the warm-up
WARM_UP, SETTLED = 1_000, 400  # steps without updates, and with the first of them: not counted
SMALL = {
    "batch_size": 4, "context_length": 8, "actor_hidden": (8,), "critic_hidden": (8,),
    "update_to_data": 0.25, "eval_episodes": 2, "eval_max_steps": 5,
}  # fmt: skip
# what a part is called, and the method whose time it is without that of parts inside it
PARTS: tuple[tuple[str, type, str], ...] = (
    ("asking for actions", Training, "ask"),
    ("asking for actions", TrainingLoop, "_ask_together"),
    ("waiting for actions", Returning, "array"),
    ("environments", EpisodeStreams, "step"),
    ("storing", Collector, "take"),
    ("updates", TrainingLoop, "_updates"),
    ("metrics", Member, "updated"),
    ("logging", Member, "settle"),
    ("saving models", RunLogger, "_save"),
    ("diagnostics", RecurrentSAC, "diagnostics"),
    ("evaluations", RunLogger, "_evaluation"),
    ("evaluations", RunLogger, "_take"),  # of a process beside: waiting for it
    ("checkpoints", Checkpointer, "_write"),
    ("the rest", TrainingLoop, "run"),
)
WHOLE = ("evaluations", "checkpoints")  # nothing inside them counts for itself
NOTES = (
    "parts: seconds of the host; on a GPU, updates and asking are launches, and waiting for "
    "actions is for all that the device had to do before them",
    "logging: rows, which wait for the device once in log_every steps; beside evaluations in "
    "processes, models are saved and diagnostics looked at (and compiled, the first time) by the "
    "training itself; in evaluations of its own, both are part of them",
    "device: seconds that the GPU was at work on recorded updates and on recorded acting",
    "evaluations and checkpoints come as often as in the paper's settings; times: how many there "
    "were, of all seeds",
    "row: the last one of the first seed's timing.jsonl, start-up included",
)


class Account:
    """Who has had how much of the host's time, and recorded graphs of the device's."""

    def __init__(self, counted_from: int) -> None:
        self.counted_from = counted_from  # the first member's step
        self.running = False
        self.seconds: dict[str, float] = defaultdict(float)
        self.times: dict[str, int] = defaultdict(int)
        self.device: dict[str, float] = defaultdict(float)
        self._stack: list[str] = []
        self._since = 0.0
        self._graphs: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = []

    def clocked(self, name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        """The same method, with its time on the account."""

        def counted(*given: Any, **named: Any) -> Any:
            if self._stack and self._stack[-1] in WHOLE:
                return work(*given, **named)
            self._turn()
            self._stack.append(name)
            self.times[name] += self.running
            try:
                return work(*given, **named)
            finally:
                self._turn()
                self._stack.pop()
                if name == "logging":
                    self._begin(given[0])

        return counted

    def replayed(self, replay: Callable[..., Any]) -> Callable[..., Any]:
        """A graph's replay, between two events."""

        def counted(graph: torch.cuda.CUDAGraph) -> None:
            name = self._stack[-1] if self._stack else "the rest"
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            replay(graph)
            end.record()
            if self.running:
                self._graphs.append((name, begin, end))
            if len(self._graphs) > 4000:
                self.read(keep=2000)

        return counted

    def read(self, keep: int = 0) -> None:
        """Add up the events, all but the last ones."""
        last = len(self._graphs) - keep
        done, self._graphs = self._graphs[:last], self._graphs[last:]
        for name, begin, end in done:
            end.synchronize()
            self.device[name] += begin.elapsed_time(end) * 1e-3

    def _turn(self) -> None:
        now = time.perf_counter()
        if self._stack and self.running:
            self.seconds[self._stack[-1]] += now - self._since
        self._since = now

    def _begin(self, member: Member) -> None:
        if not self.running and member.model.num_timesteps >= self.counted_from:
            if member.model.device.type == "cuda":
                torch.cuda.synchronize()
            self.running, self._since = True, time.perf_counter()


@contextmanager
def watching(account: Account) -> Iterator[None]:
    """While it is entered, every part is on the account."""
    before: list[tuple[type, str, Any]] = []

    def put(owner: type, method: str, wrap: Callable[[Any], Any]) -> None:
        before.append((owner, method, getattr(owner, method)))
        setattr(owner, method, wrap(before[-1][2]))

    for name, owner, method in PARTS:
        put(owner, method, partial(account.clocked, name))
    if torch.cuda.is_available():
        put(torch.cuda.CUDAGraph, "replay", account.replayed)
    try:
        yield
    finally:
        for owner, method, work in before:
            setattr(owner, method, work)


def measure(experiment: Experiment, options: argparse.Namespace) -> dict[str, Any]:
    """One training of all seeds."""
    seeds = [experiment.changed({"seed": seed}) for seed in range(options.seeds)]
    account = Account(WARM_UP + SETTLED if not options.quick else 20)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as place, watching(account):
        folders = [Path(place, str(one.seed)) for one in seeds]
        outcomes = run_together(
            seeds, folders, events=False, device=options.device, workers=options.workers,
            checkpoint_every=min(10_000, experiment.total_steps // 2),
            eval_beside=options.eval_beside,
        )  # fmt: skip
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome
        rows = (folders[0] / "timing.jsonl").read_text().splitlines()
    process = time.perf_counter() - began
    account.read()
    seconds = sum(account.seconds.values())
    steps = options.seeds * (experiment.total_steps - account.counted_from)
    return {
        "task": experiment.env,
        "encoder": experiment.encoder,
        "environments": experiment.num_envs,
        "seconds": seconds,
        "steps_per_second": steps / seconds,
        "updates_per_second": account.times["metrics"] / seconds,
        "parts": dict(sorted(account.seconds.items(), key=lambda part: -part[1])),
        "times": {name: account.times[name] for name in WHOLE},
        "device": dict(account.device),
        "process": process,
        "row": json.loads(rows[-1]),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Measure every task, print the tables, write JSON."""
    words = list(sys.argv[1:] if argv is None else argv)
    options = _options(words)
    tables: list[dict[str, Any]] = []
    for task in options.tasks:
        tables.append(measure(described(task, options), options))
        _print(tables[-1])
        if options.out is not None:
            names = ("device", "seeds", "overlap", "eval_beside", "workers")
            how = {name: getattr(options, name) for name in names}
            document = {**on_record("benchmarks/training.py", words), "notes": NOTES, **how}
            save({**document, "tables": tables}, options.out)
    if options.out is not None:
        print(f"written: {options.out.name}")
    return 0


def described(task: str, options: argparse.Namespace) -> Experiment:
    """The paper's settings, with a shorter end and warm-up."""
    steps = 60 if options.quick else WARM_UP + SETTLED + options.steps
    rows = {"eval_every": 30, "log_every": 10} if options.quick else {}
    start = 10 if options.quick else WARM_UP
    shorter = {"total_steps": steps, "learning_starts": start, "overlap": options.overlap}
    small = SMALL if options.quick else {}
    return starting_point(task, options.encoder).changed({**shorter, **rows, **small})


def _print(found: dict[str, Any]) -> None:
    print(
        f"\n{found['task']}, {found['encoder']}: {found['steps_per_second']:,.0f} steps/s, "
        f"{found['updates_per_second']:,.0f} updates/s of all seeds, {found['seconds']:.1f} s"
    )
    whole, times, device = found["seconds"], found["times"], found["device"]
    rows = [[name, f"{x:.2f} s", f"{x / whole:.0%}"] for name, x in found["parts"].items()]
    rows += [[f"device: {name}", f"{x:.2f} s", f"{x / whole:.0%}"] for name, x in device.items()]
    print_table(["", "", ""], rows)
    print("  " + ", ".join(f"{number} {name}" for name, number in times.items()))


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS))
    parser.add_argument("--encoder", default="vssm+kf")
    parser.add_argument("--seeds", type=int, default=1, help="that train together")
    parser.add_argument("--steps", type=int, default=STEPS, help="of each seed that are timed")
    parser.add_argument("--overlap", action="store_true", help="updates while environments step")
    parser.add_argument("--eval-beside", action="store_true", help="evaluations in processes")
    parser.add_argument("--workers", type=int, default=0, help="processes of the environments")
    parser.add_argument("--quick", action="store_true", help="small sizes, few steps")
    parser.add_argument("--out", type=Path, help="also write the numbers as JSON")
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
