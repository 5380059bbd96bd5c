"""Time and bytes of a checkpoint at a small and at a large replay, and of going on from it.

    python benchmarks/checkpoint.py [--quick] [--out results/checkpoint-cpu.json]

Best Arm at the paper's size with random actions and one update, so that only the replay grows: a
checkpoint every 10,000 steps, as `kalmanac train` writes them, each timed from the question whether
one is due to the last fsync. Random episodes are short, the worst case for the table of episodes.
The large run and a new small one take turns, so that what else the machine does meets both. Going
on is timed from the files to an agent that is ready for its next step.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import torch

from kalmanac._files.run_folder import RunFolder
from kalmanac._files.run_reader import CHECKPOINTS, checkpoint_file
from kalmanac._lab.checkpointing import Checkpointer
from kalmanac._lab.experiment import Experiment
from kalmanac._lab.factory import make_model, training_environment
from kalmanac._lab.run import read_checkpoint
from kalmanac._lab.run_logger import RunLogger
from kalmanac._sac.callbacks import Callback
from kalmanac._sac.recurrent_sac import RecurrentSAC
from kalmanac._suites.registry import PRESETS
from record import on_record, save
from report import print_table

NOTES = (
    "time: median over the rounds, of which a part is the processor's; spread: (largest − "
    "smallest) / median; × small: median over the rounds of the ratio to the small run's",
    "file: the checkpoint's own; replay grew by: what it appended to the replay's segments",
    "on disk: the last two checkpoints and all segments",
)
Row = dict[str, float]


class Trial(Callback):
    """A run whose checkpoints are written and timed one by one."""

    def __init__(self, experiment: Experiment, folder: Path, every: int) -> None:
        self._open = ExitStack()
        env = self._open.enter_context(closing(training_environment(experiment)))
        self.model = make_model(experiment, env, "cpu")
        learn_once(self.model, experiment)
        written = self._open.enter_context(RunFolder(folder, experiment.to_data(), events=False))
        logger = self._open.enter_context(closing(RunLogger(experiment, written)))
        self.checkpointer = Checkpointer(logger, [], every=every)
        self.rows: list[Row] = []
        self._segments = 0
        steps: Any = self.model.advance(experiment.total_steps, [logger, self])
        self._steps = self._open.enter_context(closing(steps))

    def next_checkpoint(self) -> Row:
        """Train until one is written."""
        before = len(self.rows)
        while len(self.rows) == before:
            next(self._steps)
        return self.rows[-1]

    def close(self) -> None:
        """End the run."""
        self._open.close()

    def on_start(self, model: RecurrentSAC) -> None:
        """The first checkpoint, of nothing."""
        self.checkpointer.on_start(model)
        self._segments = self._replay_bytes()

    def on_step(self, model: RecurrentSAC) -> None:
        """The others."""
        step = model.num_timesteps
        file = checkpoint_file(self.checkpointer.checkpoints.run, step)
        began, busy = time.perf_counter(), time.process_time()
        self.checkpointer.on_step(model)
        seconds, busy = time.perf_counter() - began, time.process_time() - busy
        if not file.is_file():
            return
        grown = self._replay_bytes()
        self.rows.append({
            "step": step,
            "episodes": model.replay.episodes,
            "seconds": seconds,
            "cpu_seconds": busy,
            "file_bytes": file.stat().st_size,
            "replay_bytes": grown - self._segments,
            "disk_bytes": sum(path.stat().st_size for path in file.parent.iterdir()),
        })  # fmt: skip
        self._segments = grown

    def _replay_bytes(self) -> int:
        folder = self.checkpointer.checkpoints.run / CHECKPOINTS
        return sum(path.stat().st_size for path in folder.glob("*.segment"))


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print the table, write JSON."""
    words = list(sys.argv[1:] if argv is None else argv)
    options = _options(words)
    before = torch.get_num_threads()
    torch.set_num_threads(options.threads)
    try:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            small, large = measure(options, Path(folder))
    finally:
        torch.set_num_threads(before)
    table = [summary(small, small), summary(large, small)]
    _print(table)
    if options.out is not None:
        document = {
            **on_record("benchmarks/checkpoint.py", words),
            "notes": NOTES,
            "table": table,
            "rounds": {"small": small, "large": large},
        }
        save(document, options.out)
        print(f"written: {options.out.name}")
    return 0


def measure(options: argparse.Namespace, folder: Path) -> tuple[list[Row], list[Row]]:
    """The checkpoints of new runs and of one that has been going on for long, in turns."""
    experiment = PRESETS["best-arm"].experiment(options.encoder).changed({
        "total_steps": 2 * options.steps, "learning_starts": 2 * options.steps,
        "eval_every": 2 * options.steps, "log_every": options.every,
        "buffer_size": options.buffer_size,
    })  # fmt: skip
    large = Trial(experiment, folder / "large", options.every)
    while large.next_checkpoint()["step"] < options.steps - options.rounds * options.every:
        pass
    rows: tuple[list[Row], list[Row]] = ([], [])
    for number in range(options.rounds):
        small = Trial(experiment, folder / f"small{number}", options.every)
        for trial, into in ((small, rows[0]), (large, rows[1])):
            row = trial.next_checkpoint()
            into.append(
                row | {"resume_seconds": going_on(trial.checkpointer.logger, int(row["step"]))}
            )
        small.close()
    large.close()
    return rows


def learn_once(model: RecurrentSAC, experiment: Experiment) -> None:
    """One update, on a batch of another agent, so that Adam's memory is part of what is kept."""
    env = training_environment(experiment)
    other = make_model(experiment, env, "cpu").learn(experiment.num_envs)
    model.learner.update(
        other.replay.sample(
            experiment.batch_size,
            experiment.context_length,
            generator=torch.Generator().manual_seed(0),
            packed=True,
        )
    )
    env.close()


def going_on(logger: RunLogger, step: int) -> float:
    """Seconds from a folder to an agent that is ready for its next step."""
    experiment = logger.experiment
    env = training_environment(experiment)
    began = time.perf_counter()
    model = make_model(experiment, env, "cpu")
    checkpoint = read_checkpoint(logger.folder.path, step, experiment)
    Checkpointer(RunLogger(experiment, logger.folder), [], every=1).restore(model, checkpoint)
    seconds = time.perf_counter() - began
    env.close()
    return seconds


def summary(rows: Sequence[Row], small: Sequence[Row]) -> dict[str, float]:
    """One line of the table."""
    times = [row["seconds"] for row in rows]
    found = {name: statistics.median(row[name] for row in rows) for name in rows[-1]}
    found |= {name: rows[-1][name] for name in ("step", "episodes", "disk_bytes")}
    ratios = [row["seconds"] / other["seconds"] for row, other in zip(rows, small, strict=True)]
    busy = [r["cpu_seconds"] / other["cpu_seconds"] for r, other in zip(rows, small, strict=True)]
    return found | {
        "spread": (max(times) - min(times)) / found["seconds"],
        "times_small": statistics.median(ratios),
        "cpu_times_small": statistics.median(busy),
    }


def _print(table: Sequence[dict[str, float]]) -> None:
    for note in NOTES:
        print(f"- {note}")
    head = [
        "replay, steps", "episodes", "time", "× small", "processor", "× small", "file",
        "replay grew by", "on disk", "going on",
    ]  # fmt: skip
    body = [
        [
            f"{row['step']:,.0f}",
            f"{row['episodes']:,.0f}",
            f"{row['seconds'] * 1e3:.3g} ms ± {row['spread']:.0%}",
            f"{row['times_small']:.2f}",
            f"{row['cpu_seconds'] * 1e3:.3g} ms",
            f"{row['cpu_times_small']:.2f}",
            f"{row['file_bytes'] / 1e3:,.0f} kB",
            f"{row['replay_bytes'] / 1e3:,.0f} kB",
            f"{row['disk_bytes'] / 1e6:,.1f} MB",
            f"{row['resume_seconds']:.2g} s",
        ]
        for row in table
    ]
    print_table(head, body)


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--encoder", default="vssm+kf")
    parser.add_argument("--steps", type=int, default=1_000_000, help="the largest replay")
    parser.add_argument("--every", type=int, default=10_000, help="steps between checkpoints")
    parser.add_argument("--rounds", type=int, default=9, help="samples per number")
    parser.add_argument("--buffer-size", type=int, help="transitions kept; default: all")
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch")
    parser.add_argument("--folder", type=Path, help="on which disk; default: the system's own")
    parser.add_argument("--quick", action="store_true", help="a small replay")
    parser.add_argument("--out", type=Path, help="also write the numbers as JSON")
    options = parser.parse_args(words)
    if options.quick:
        options.steps, options.every, options.rounds = 2_000, 200, 3
    return options


if __name__ == "__main__":
    sys.exit(main())
