"""Runs as small files: the evaluations of each, its clock, and one table.

    kalmanac train best-arm --encoder gru --seed 0 --eval-every 25000 --folder runs/gru-seed0
    python benchmarks/learning.py runs/* --out results/best-arm

Nothing is left out and nothing is trained: a run that stays at chance has its row, and the columns
say what it does instead. Q and probability of an action are means over a batch of the replay. Of
seeds that were trained together, each has the clock of all, in which its own evaluations took
`time/evaluating`, and the memory of all. The pictures are those of `kalmanac report`.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kalmanac._files.run_reader import (
    read_experiment,
    read_metrics,
    read_provenance,
    read_summary,
    read_timing,
)
from report import print_table

LOOKED_AT = ("eval/", "train/q_action", "train/policy_action", "train/gain", "train/posterior")
ALSO = ("step", "train/updates", "train/entropy", "train/q_mean", "train/critic_loss")
MOST_ACTIONS = 8  # of more, none is told apart: files stay small
MOMENTS = (0.05, 0.25, 0.5, 0.75, 1.0)  # of a run, at which its clock is told
LATE = 5  # evaluations at the end of a run that are averaged
HEAD = ("", "status", "steps", "best", "at", "last", f"last {LATE}", "length", "ends with action")


def main(argv: Sequence[str] | None = None) -> int:
    """Read the runs, write their evaluations, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("runs", nargs="+", type=Path, help="run folders")
    parser.add_argument("--out", required=True, type=Path, help="folder for what is written")
    options = parser.parse_args(argv)
    runs = {folder.name: read(folder) for folder in options.runs if folder.is_dir()}
    options.out.mkdir(parents=True, exist_ok=True)
    for name, run in runs.items():
        write(run, options.out / f"{name}.jsonl")
    print_table(list(HEAD), [row(name, run) for name, run in runs.items()])
    print(f"written: {len(runs)} runs to {options.out.name}")
    return 0


def read(folder: Path) -> dict[str, Any]:
    """One run: its description, how it ended, and its evaluations."""
    clock, metrics = read_timing(folder), read_metrics(folder)
    means = [q for row in metrics if (q := row.get("train/q_mean")) is not None]
    rows = [
        {key: value for key, value in row.items() if key in ALSO or key.startswith(LOOKED_AT)}
        for row in metrics
        if any(key.startswith("eval/") for key in row)
    ]
    return {
        "experiment": read_experiment(folder),
        "summary": read_summary(folder),
        "clock": [clock[max(round(share * len(clock)), 1) - 1] for share in MOMENTS],
        "q_mean": [min(means), max(means)] if means else None,
        "rows": [
            row if _action_count(row) <= MOST_ACTIONS else _without_actions(row) for row in rows
        ],
        "provenance": read_provenance(folder),
    }


def _action_count(row: Mapping[str, Any]) -> int:
    return sum(key.startswith("eval/in/action_") for key in row)


def _without_actions(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if "action_" not in key}


def write(run: Mapping[str, Any], file: Path) -> None:
    """The description in the first line, an evaluation in each of the others."""
    summary, clock = run["summary"], [rounded(row) for row in run["clock"]]
    first = {"experiment": run["experiment"], "seconds": clock[-1]["time/elapsed"]}
    first |= {key: summary[key] for key in ("status", "step")} | {"clock": clock}
    if run["q_mean"]:  # of all that was logged, evaluated or not
        first["q_mean"] = {"least": run["q_mean"][0], "largest": run["q_mean"][1]}
    first |= {"provenance": run["provenance"]}
    lines = [first, *(rounded(row) for row in run["rows"])]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def rounded(row: Mapping[str, Any]) -> dict[str, Any]:
    """Five digits: more say nothing about a mean of a hundred episodes."""
    return {k: float(f"{x:.5g}") if isinstance(x, float) else x for k, x in row.items()}


def row(name: str, run: Mapping[str, Any]) -> list[str]:
    """A line of the table: the best evaluation by return, and the last ones."""
    rows, last = run["rows"], run["rows"][-1]
    best = max(rows, key=lambda r: score(r, "in"))
    some = rows[-LATE:]
    late = [f"{sum(score(r, place) for r in some) / len(some):.3g}" for place in places(last)]
    told = (f"{last[key]:.2f}" for key in last if key.startswith("eval/in/last_action_"))
    return [
        name, run["summary"]["status"], f"{run['summary']['step']:,}",
        f"{score(best, 'in'):.3g}", f"{best['step']:,}", f"{score(last, 'in'):.3g}",
        " ".join(late), f"{last['eval/in/length']:.0f}", " ".join(told),
    ]  # fmt: skip


def score(row: Mapping[str, Any], place: str) -> float:
    """The return, divided by the task's own scale where it has one."""
    return float(row.get(f"eval/{place}/normalized", row[f"eval/{place}/mean_reward"]))


def places(row: Mapping[str, Any]) -> list[str]:
    """What was evaluated: in distribution, and out of it if the task knows such."""
    return [place for place in ("in", "out") if f"eval/{place}/mean_reward" in row]


if __name__ == "__main__":
    sys.exit(main())
