"""A yardstick for the learner: tasks, the defaults of before beside those of now, and rivals.

    python benchmarks/yardstick.py jobs now --seeds 3     # one line a training: NAME TASK FLAGS
    python benchmarks/yardstick.py jobs before --seeds 2
    python benchmarks/yardstick.py jobs clock --only bandit count-recall repeat-previous
    kalmanac train TASK FLAGS --folder runs/NAME          # for each of them, on any machine
    python benchmarks/learning.py runs/* --out results/yardstick
    python benchmarks/yardstick.py table results/yardstick --picture results/yardstick/curves.png

A task is judged by the mean of its last five evaluations, by its worst seed, and by the worst
evaluation of any seed in the second half of the run: a default that is good on average and falls
now and then is not a good default.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from learning import LATE, score
from report import print_table

# What the defaults were, as flags: the paper's objective, the newest weights in evaluations,
# windows that begin like episodes, truncation that never ends a task, observations as they come.
BEFORE = (
    "--actor-objective value --no-average-policy --no-true-previous-action --bootstrap-truncated "
    "--learning-starts 5000 --initial-ent-coef 1 --tau 0.005 --adam-betas 0.9 0.999 "
    "--no-normalize-observations"
)
# Rivals: no task starts at a temperature of its own.
REWARDS, FROM_1 = "--no-entropy-in-target", "--initial-ent-coef 1"
WHEN = {
    "before": BEFORE,
    "now": "",
    "clock": f"--critic-clock {REWARDS} {FROM_1}",
    "timed": f"--critic-clock {FROM_1}",
    "rewards": f"{REWARDS} {FROM_1}",
    "cold": "--initial-ent-coef 0.01",
}
DRAWN = {
    "before": ("defaults before", "#D55E00"),
    "now": ("defaults now", "#0072B2"),
    "clock": ("with a clock, values of rewards", "#009E73"),
    "timed": ("with a clock", "#CC79A7"),
    "rewards": ("values of rewards", "#E69F00"),
    "cold": ("temperature from 0.01", "#56B4E9"),
}


class Task(NamedTuple):
    """A task of the yardstick: what `kalmanac train` is told."""

    env: str
    steps: int
    flags: str = ""
    before: str = ""  # flags of its preset that were others


BEST_ARM, MANY = "--eval-every 10000 --eval-on-device", "--num-envs 64"
TASKS = {
    "best-arm": Task("best-arm", 500_000, f"--encoder vssm+kf {BEST_ARM}", MANY),
    "best-arm-oracle": Task("best-arm", 500_000, f"--encoder oracle {BEST_ARM}", MANY),
    "bandit": Task("popgym/MultiarmedBanditEasy", 150_000),
    "count-recall": Task("popgym/CountRecallEasy", 300_000),
    "mine-sweeper": Task("popgym/MineSweeperEasy", 400_000),
    "repeat-previous": Task("popgym/RepeatPreviousEasy", 300_000),
    "cart-pole": Task("popgym/NoisyPositionOnlyCartPoleHard", 300_000),
    "pendulum": Task("popgym/NoisyPositionOnlyPendulumHard", 150_000, "--eval-episodes 100"),
    "cheetah": Task("dmc/cheetah-run", 200_000),
    "novel-pendulum": Task("novel/Pendulum", 50_000, "--update-to-data 0.25"),
}
HEAD = ("task", "defaults", "seeds", f"last {LATE}", "worst seed", "worst, 2nd half", "best", "|Q|")


def main(argv: Sequence[str] | None = None) -> int:
    """Print the jobs, or the table of what they left."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    jobs = verbs.add_parser("jobs", help="one line a training")
    jobs.add_argument("when", choices=WHEN)
    jobs.add_argument("--seeds", type=int, default=3, help="seeds 0, 1, …; default: %(default)s")
    jobs.add_argument("--only", nargs="*", choices=TASKS, default=list(TASKS), metavar="TASK")
    table = verbs.add_parser("table", help="what the runs reached")
    table.add_argument("folder", type=Path, help="files of benchmarks/learning.py")
    table.add_argument("--picture", type=Path, help="also draw the curves")
    options = parser.parse_args(argv)
    if options.verb == "jobs":
        print("\n".join(lines(options.when, options.seeds, options.only)))
        return 0
    found = read(options.folder)
    if not found:
        print(f"yardstick: {options.folder}: got no runs, expected TASK.WHEN-seedN.jsonl")
        return 1
    print_table(list(HEAD), [row(*key, runs) for key, runs in sorted(found.items())])
    if options.picture is not None:
        draw(found, options.picture)
    return 0


def lines(when: str, seeds: int, only: Sequence[str]) -> list[str]:
    """NAME TASK FLAGS of every training, seed by seed."""
    return [
        f"{name}.{when}-seed{seed} {task.env} --steps {task.steps} --seed {seed} --overlap "
        f"{task.flags} {WHEN[when]} {task.before if when == 'before' else ''}".rstrip()
        for seed in range(seeds)
        for name, task in TASKS.items()
        if name in only
    ]


def read(folder: Path) -> dict[tuple[str, str], list[list[dict[str, Any]]]]:
    """(task, when) → the evaluations of every run."""
    found: dict[tuple[str, str], list[list[dict[str, Any]]]] = defaultdict(list)
    for file in sorted(folder.glob("*.*-seed*.jsonl")):
        name, _, rest = file.name.partition(".")
        if name in TASKS and (when := rest.rpartition("-seed")[0]) in WHEN:
            found[name, when].append(list(map(json.loads, file.read_text().splitlines()))[1:])
    return dict(found)


def row(name: str, when: str, runs: Sequence[Sequence[Mapping[str, Any]]]) -> list[str]:
    """A line of the table."""
    scores = [[score(evaluation, "in") for evaluation in run] for run in runs]
    late = [float(np.mean(mine[-LATE:])) for mine in scores]
    worst = min(min(mine[len(mine) // 2 :]) for mine in scores)
    values = [abs(float(x.get("train/q_mean", 0.0))) for run in runs for x in run]
    told = (np.mean(late), min(late), worst, max(map(max, scores)), max(values))
    return [name, when, str(len(runs)), *(f"{x:.3g}" for x in told)]


def draw(
    found: Mapping[tuple[str, str], Sequence[Sequence[Mapping[str, Any]]]], picture: Path
) -> None:
    """Every run as a line, a panel a task."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = [name for name in TASKS if any(name == key[0] for key in found)]
    columns = min(3, len(names))
    high = -(-len(names) // columns)
    style = {"axes.spines.top": False, "axes.spines.right": False}
    with plt.rc_context(style):
        size = (4.6 * columns, 3.1 * high)
        figure, panels = plt.subplots(high, columns, figsize=size, layout="constrained")
        for axes, name in zip(np.ravel(panels), names, strict=False):
            for when, (words, color) in DRAWN.items():
                for i, run in enumerate(found.get((name, when), ())):
                    steps = [evaluation["step"] / 1000 for evaluation in run]
                    label = words if i == 0 else None
                    scores = [score(evaluation, "in") for evaluation in run]
                    axes.plot(steps, scores, color=color, lw=1.2, alpha=0.8, label=label)
            title = TASKS[name].env.removeprefix("popgym/")
            title += ", Oracle" * name.endswith("oracle")
            axes.set(title=title, xlabel="steps (thousands)")
            axes.grid(axis="y", alpha=0.25)
            axes.legend(frameon=False, fontsize=8)
        for axes in np.ravel(panels)[len(names) :]:
            axes.set_axis_off()
        figure.savefig(picture, dpi=90, metadata={"Software": None})
        plt.close(figure)


if __name__ == "__main__":
    sys.exit(main())
