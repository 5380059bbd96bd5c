"""Finished runs as small files: the evaluations of each, one table, one picture.

    kalmanac train best-arm --encoder gru --seed 0 --eval-every 25000 --folder runs/gru-seed0
    python benchmarks/learning.py runs/* --out results/best-arm

Nothing is left out and nothing is trained: a run that stays at chance has its row, and the columns
say what it does instead. Q and probability of an action are means over a batch of the replay.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from kalmanac.envs import bayes_threshold, environment
from kalmanac.runlog import read_experiment, read_metrics, read_summary, read_timing
from report import print_table

matplotlib.use("Agg")
import matplotlib.pyplot as plt

LOOKED_AT = ("eval/", "train/q_action", "train/policy_action", "train/gain", "train/posterior")
ALSO = ("step", "train/updates", "train/entropy", "train/q_mean", "train/critic_loss")
HEAD = (
    "",
    "status",
    "steps",
    "best in",
    "at",
    "last in",
    "out",
    "length",
    "wins",
    "ends: ask above below",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Read the runs, write their evaluations, print the table, draw the curves."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("runs", nargs="+", type=Path, help="run folders")
    parser.add_argument("--out", required=True, type=Path, help="folder for what is written")
    options = parser.parse_args(argv)
    runs = {folder.name: read(folder) for folder in options.runs if folder.is_dir()}
    options.out.mkdir(parents=True, exist_ok=True)
    for name, run in runs.items():
        write(run, options.out / f"{name}.jsonl")
    print_table(list(HEAD), [row(name, run) for name, run in runs.items()])
    draw(runs, options.out / "curves.png")
    print(f"written: {len(runs)} runs and curves.png to {options.out.name}")
    return 0


def read(folder: Path) -> dict[str, Any]:
    """One run: its description, how it ended, and its evaluations."""
    rows = [
        {key: value for key, value in row.items() if key in ALSO or key.startswith(LOOKED_AT)}
        for row in read_metrics(folder)
        if any(key.startswith("eval/") for key in row)
    ]
    return {
        "experiment": read_experiment(folder),
        "summary": read_summary(folder),
        "seconds": read_timing(folder)[-1]["time/elapsed"],
        "rows": rows,
    }


def write(run: Mapping[str, Any], file: Path) -> None:
    """The description in the first line, an evaluation in each of the others."""
    summary = run["summary"]
    first = {"experiment": run["experiment"], "seconds": round(run["seconds"], 1)}
    first |= {key: summary[key] for key in ("status", "step")}
    lines = [first, *({key: rounded(x) for key, x in row.items()} for row in run["rows"])]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def rounded(value: Any) -> Any:
    """Five digits: more say nothing about a mean of a hundred episodes."""
    return float(f"{value:.5g}") if isinstance(value, float) else value


def row(name: str, run: Mapping[str, Any]) -> list[str]:
    """A line of the table: the best evaluation by return, and the last one in full."""
    best = max(run["rows"], key=lambda r: r["eval/in/normalized"])
    last = run["rows"][-1]
    ends = " ".join(f"{last[f'eval/in/last_action_{i}']:.2f}" for i in range(3))
    return [
        name, run["summary"]["status"], f"{run['summary']['step']:,}",
        f"{best['eval/in/normalized']:.2f}", f"{best['step']:,}",
        f"{last['eval/in/normalized']:.2f}", f"{last['eval/out/normalized']:.2f}",
        f"{last['eval/in/length']:.0f}", f"{last['eval/in/win_rate']:.2f}", ends,
    ]  # fmt: skip


def draw(runs: Mapping[str, Mapping[str, Any]], file: Path) -> None:
    """Return in and out of distribution, and the length of an episode, over the training."""
    figure, axes = plt.subplots(1, 3, figsize=(13, 4.2), layout="constrained")
    colours = dict(zip(runs, plt.get_cmap("tab10")(np.arange(10)), strict=False))
    titles = {
        "eval/in/normalized": "normalised return, in distribution",
        "eval/out/normalized": "normalised return, out of distribution",
        "eval/in/length": "questions before the decision, in distribution",
    }
    for axis, (key, title) in zip(axes, titles.items(), strict=True):
        for name, run in runs.items():
            steps = [r["step"] / 1000 for r in run["rows"]]
            axis.plot(steps, [r[key] for r in run["rows"]], color=colours[name], label=name, lw=1.4)
        axis.set(title=title, xlabel="environment steps, thousands")
        axis.grid(alpha=0.3)
    axes[2].set_yscale("log")
    experiment = next(iter(runs.values()))["experiment"]
    spec = environment(experiment["env"])
    for axis, place in zip(axes, ("in", "out"), strict=False):
        settings = {**experiment["env_settings"], **spec.evaluations[place]}
        best = bayes_threshold(settings.pop("cost", 0.0), **settings).normalised_return
        axis.axhline(
            best, color="black", ls="--", lw=1, label="best fixed threshold on the posterior"
        )
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(file, dpi=90)
    plt.close(figure)


if __name__ == "__main__":
    sys.exit(main())
