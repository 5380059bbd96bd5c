"""Time and bytes of a checkpoint as the replay grows, and of going on from it.

    python benchmarks/checkpoint.py [--quick] [--out results/checkpoint-cpu.json]

One run of Best Arm at the paper's size, with random actions and few updates, so that only the
replay grows: a checkpoint every 10,000 steps, as `kalmanac train` writes them, each timed from the
question whether one is due to the last fsync. Random episodes are short, the worst case for the
table of episodes. Going on is timed from the files to an agent that is ready for its next step.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from kalmanac.doctor import machine, versions
from kalmanac.experiment import Experiment, make_model, training_environment
from kalmanac.experiment.keeping import Keeper
from kalmanac.experiment.recording import Recorder
from kalmanac.experiment.running import read_checkpoint
from kalmanac.runlog import CHECKPOINTS, RunFolder, checkpoint_file
from kalmanac.sac import Callback, RecurrentSAC
from kalmanac.suites import PRESETS
from report import command_on_record, print_table

NOTES = (
    "bytes: the checkpoint's own file, and what the replay's segments grew by",
    "medians over five checkpoints, the last of them at each size, or the first five; "
    "spread: (largest − smallest) / median",
    "on disk: the last two checkpoints and all segments",
)
AROUND = 5  # checkpoints in a median


class Watched(Callback):
    """Times a keeper, and looks at its files."""

    def __init__(self, keeper: Keeper, sizes: Sequence[int]) -> None:
        self.keeper, self.sizes = keeper, sizes
        self.rows: list[dict[str, float]] = []
        self.resumed: dict[int, float] = {}
        self._segments = 0

    def on_start(self, model: RecurrentSAC) -> None:
        """The first checkpoint."""
        self.keeper.on_start(model)
        self._segments = self._replay_bytes()

    def on_step(self, model: RecurrentSAC) -> None:
        """The others."""
        step = model.num_timesteps
        file = checkpoint_file(self.keeper.checkpoints.run, step)
        began, busy = time.perf_counter(), time.process_time()
        self.keeper.on_step(model)
        seconds, busy = time.perf_counter() - began, time.process_time() - busy
        if not file.is_file():
            return
        grown = self._replay_bytes()
        self.rows.append({
            "step": step,
            "seconds": seconds,
            "cpu_seconds": busy,
            "file_bytes": file.stat().st_size,
            "replay_bytes": grown - self._segments,
            "disk_bytes": sum(path.stat().st_size for path in file.parent.iterdir()),
            "episodes": model.replay.episodes,
        })  # fmt: skip
        self._segments = grown
        for size in self.sizes:
            if size not in self.resumed and step >= size:
                self.resumed[size] = going_on(self.keeper.recorder, step)

    def _replay_bytes(self) -> int:
        folder = self.keeper.checkpoints.run / CHECKPOINTS
        return sum(path.stat().st_size for path in folder.glob("*.segment"))


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print the table, write JSON."""
    words = list(sys.argv[1:] if argv is None else argv)
    options = _options(words)
    before = torch.get_num_threads()
    torch.set_num_threads(options.threads)
    try:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            watched = measure(options, Path(folder) / "run")
    finally:
        torch.set_num_threads(before)
    table = [summary(watched, size) for size in watched.sizes]
    _print(table)
    if options.out is not None:
        document = {
            "command": command_on_record("benchmarks/checkpoint.py", words),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": versions(),
            "machine": machine(),
            "notes": NOTES,
            "table": table,
            "checkpoints": watched.rows,
        }
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(document, indent=1) + "\n")
        print(f"written: {options.out.name}")
    return 0


def measure(options: argparse.Namespace, folder: Path) -> Watched:
    """One run with all its checkpoints."""
    largest, every = options.steps, options.every
    sizes = sorted({every, every * 10, largest})
    experiment = PRESETS["best-arm"].experiment(options.encoder).changed({
        "total_steps": largest, "learning_starts": 2 * largest,
        "eval_every": 10 * largest, "log_every": every, "buffer_size": options.buffer_size,
    })  # fmt: skip
    env = training_environment(experiment)
    model = make_model(experiment, env, "cpu")
    with RunFolder(folder, experiment.to_data(), events=False) as written:
        recorder = Recorder(experiment, written)
        keeper = Keeper(recorder, [], every=every)
        watched = Watched(keeper, [size for size in sizes if size <= largest])
        learn_once(model, experiment)
        model.learn(largest, callback=[recorder, watched])
        recorder.close()
    env.close()
    return watched


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


def going_on(recorder: Recorder, step: int) -> float:
    """Seconds from a folder to an agent that is ready for its next step."""
    experiment = recorder.experiment
    env = training_environment(experiment)
    began = time.perf_counter()
    model = make_model(experiment, env, "cpu")
    checkpoint = read_checkpoint(recorder.folder.path, step, experiment)
    Keeper(Recorder(experiment, recorder.folder), [], every=1).restore(model, checkpoint)
    seconds = time.perf_counter() - began
    env.close()
    return seconds


def summary(watched: Watched, size: int) -> dict[str, Any]:
    """One row of the table."""
    at = next(i for i, row in enumerate(watched.rows) if row["step"] >= size)
    first = max(at + 1 - AROUND, 0)
    rows, last = watched.rows[first : first + AROUND], watched.rows[at]
    times = [row["seconds"] for row in rows]
    return {
        "replay_steps": last["step"],
        "episodes": last["episodes"],
        "checkpoints": len(rows),
        "seconds": statistics.median(times),
        "spread": (max(times) - min(times)) / statistics.median(times),
        "cpu_seconds": statistics.median(row["cpu_seconds"] for row in rows),
        "file_bytes": statistics.median(row["file_bytes"] for row in rows),
        "replay_bytes": statistics.median(row["replay_bytes"] for row in rows),
        "disk_bytes": last["disk_bytes"],
        "resume_seconds": watched.resumed[size],
    }


def _print(table: Sequence[dict[str, Any]]) -> None:
    for note in NOTES:
        print(f"- {note}")
    head = [
        "replay, steps", "episodes", "time", "of it CPU", "file", "replay grew by", "on disk",
        "going on",
    ]  # fmt: skip
    body = [
        [
            f"{row['replay_steps']:,.0f}",
            f"{row['episodes']:,.0f}",
            f"{row['seconds'] * 1e3:.3g} ms ± {row['spread']:.0%}",
            f"{row['cpu_seconds'] * 1e3:.3g} ms",
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
    parser.add_argument("--buffer-size", type=int, help="transitions kept; default: all")
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch")
    parser.add_argument("--folder", type=Path, help="on which disk; default: the system's own")
    parser.add_argument("--quick", action="store_true", help="a small replay")
    parser.add_argument("--out", type=Path, help="also write the numbers as JSON")
    options = parser.parse_args(words)
    if options.quick:
        options.steps, options.every = 2_000, 200
    return options


if __name__ == "__main__":
    sys.exit(main())
