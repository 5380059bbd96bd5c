"""Small run folders: what is kept of a run, so that a report draws it as any other.

    python benchmarks/small_runs.py runs/* --out results/novel-published
    kalmanac report results/novel-published

A run folder, or the file that learning.py made of one, becomes a folder with its settings, its
evaluations (five digits), five moments of its clock, where it ran, and what was played after it;
models and checkpoints are left out. A folder is named TASK-AGENT-seedN, with the run's label and
what its sensors miss, and with a part of its settings' hash where another run has that name. A run
that is there already is refused, not overwritten.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from kalmanac._files.run_reader import (
    EVALUATIONS,
    EXPERIMENT,
    METRICS,
    PROVENANCE,
    SUMMARY,
    TIMING,
    is_run,
    read_experiment,
    read_metrics,
    read_provenance,
    read_summary,
    read_timing,
)
from learning import read as read_folder
from learning import rounded

DONE = ("finished", "diverged")
KEPT = (
    "step", "train/updates", "train/entropy", "train/q_mean", "train/critic_loss",
    "train/gain_mean", "train/posterior_variance_mean",
)  # fmt: skip


@dataclass(frozen=True)
class SmallRun:
    """One run, without its models."""

    source: Path
    experiment: Mapping[str, Any]
    status: str
    step: int
    clock: Sequence[Mapping[str, Any]]
    rows: Sequence[Mapping[str, Any]]
    provenance: Mapping[str, Any]

    @property
    def done(self) -> bool:
        """Whether it came to its end; one that diverged did."""
        return self.status in DONE

    @property
    def seconds(self) -> float:
        """On its clock, beside other runs."""
        return float(self.clock[-1]["time/elapsed"]) if self.clock else 0.0

    @property
    def updates(self) -> int:
        """Made when it was last evaluated."""
        return int(self.rows[-1].get("train/updates", 0)) if self.rows else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Write a small run folder for each run; 1 if one was refused."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path, help="run folders, files, or folders of them")
    parser.add_argument("--out", required=True, type=Path, help="folder for the small ones")
    options = parser.parse_args(argv)
    refused = 0
    try:
        found = list(sources(options.runs))
    except ValueError as error:
        parser.error(str(error))
    for source in found:
        try:
            run = read(source)
            write(run, place_for(run, options.out))
        except (ValueError, OSError) as error:
            refused += 1
            print(f"small_runs: {error}", file=sys.stderr)
    print(f"written: {len(found) - refused} runs to {options.out.name}, {refused} refused")
    return 1 if refused else 0


def place_for(run: SmallRun, out: Path) -> Path:
    """Its folder, which is not there yet; ValueError where the run is there already."""
    name = name_of(run.experiment)
    digest = sha256(json.dumps(run.experiment, sort_keys=True).encode()).hexdigest()[:8]
    for place in (out / name, out / f"{name}-{digest}"):
        if not is_run(place):
            return place
        if read_experiment(place) == run.experiment:
            raise ValueError(f"{run.source}: got the run of {place.name}, expected another one")
    raise ValueError(f"{run.source}: got {place.name}, expected a name that is free")


def name_of(told: Mapping[str, Any]) -> str:
    """TASK-AGENT-seedN, with a label and what its sensors miss."""
    agent = "oracle" if told.get("privileged") else told["encoder"].replace("+", "-")
    words = [told["env"].rpartition("/")[2], agent]
    if missing := told.get("dropout"):
        words.append(f"{missing:g}-{'told' if told.get('dropout_told', True) else 'blind'}")
    if label := told.get("label"):
        words.append(label)
    return "-".join([*words, f"seed{told['seed']}"])


def sources(paths: Iterable[Path]) -> Iterator[Path]:
    """Run folders and files of `learning.py`, in these places and below."""
    for path in paths:
        if path.is_file() or is_run(path):
            yield path
        elif path.is_dir():
            yield from sources(sorted(x for x in path.iterdir() if x.is_dir() or is_small(x)))
        else:
            raise ValueError(f"run: got {path}, expected a run folder or a file")


def is_small(path: Path) -> bool:
    """Whether a file may be one that `learning.py` left."""
    return path.suffix == ".jsonl"


def read(source: Path) -> SmallRun:
    """A run folder, or the file that `learning.py` made of one."""
    try:
        if source.is_dir():
            found = read_folder(source)
            first, rows = {**found, **found["summary"]}, found["rows"]
        else:
            first, *rows = map(json.loads, source.read_text().splitlines())
        name_of(first["experiment"])  # it has all that a name takes
        return SmallRun(
            source, first["experiment"], first["status"], first["step"], first["clock"],
            [kept(row) for row in rows], first.get("provenance", {}),
        )  # fmt: skip
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{source}: got what is no run, or none yet: {error!r}") from None


def kept(row: Mapping[str, Any]) -> dict[str, Any]:
    """Of an evaluation's row, what was evaluated; of shares of actions, time-outs in Best Arm."""
    told = {
        key: value
        for key, value in row.items()
        if key in KEPT
        or key.endswith("/last_action_0")
        or (key.startswith("eval/") and "action_" not in key)
    }
    return rounded(told)


def read_small(place: Path) -> SmallRun:
    """One that `write` left."""
    found = read_summary(place)
    return SmallRun(
        place, read_experiment(place), found["status"], found["step"], read_timing(place),
        read_metrics(place), read_provenance(place),
    )  # fmt: skip


def write(run: SmallRun, place: Path) -> None:
    """The folder that a report reads. Its description comes last: without it, it is no run."""
    place.mkdir(parents=True, exist_ok=True)
    _write_json(place / SUMMARY, {"status": run.status, "step": run.step})
    _write_json(place / PROVENANCE, run.provenance)
    _write_rows(place / METRICS, run.rows)
    _write_rows(place / TIMING, [rounded(row) for row in run.clock])
    for file in played(run):
        (place / EVALUATIONS).mkdir(exist_ok=True)
        shutil.copyfile(file, place / EVALUATIONS / file.name)
    _write_json(place / EXPERIMENT, run.experiment)


def played(run: SmallRun) -> list[Path]:
    """Files of what was played after a run: heat maps, and episodes of the first seed alone.

    A report draws one episode of an agent, and every step of it takes 1.5 kB.
    """
    files = sorted((run.source / EVALUATIONS).glob("*")) if run.source.is_dir() else []
    return [file for file in files if file.suffix == ".json" or run.experiment["seed"] == 0]


def _write_json(file: Path, content: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=2) + "\n")


def _write_rows(file: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
