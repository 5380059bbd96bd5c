"""The shoot-out: which memory stands missing readings, told of them and not?

    python benchmarks/dropout.py jobs --done results/dropout    # a line a training: NAME TASK FLAGS
    kalmanac train TASK FLAGS --folder runs/NAME          # for each of them, on any machine
    python benchmarks/learning.py runs/* --out results/dropout
    python benchmarks/dropout.py figure results/dropout --picture results/dropout/dropout.png

`kalmanac sweep dropout` trains the same. A run counts by the mean of its last five evaluations. The
claim that is tested: Transformers degrade less than recurrent and state-space memories (arXiv
2603.04648, which trains by PPO). It is judged by the share that is lost, where half of the readings
are missing, of what an agent gains with all of them over actions that are zero.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kalmanac._envs.registry import make_vector
from kalmanac._envs.sensors import Corruption
from kalmanac._envs.track import exact_filter
from kalmanac._lab.experiment import Experiment
from kalmanac._suites.dropout import AGENTS, BURST, PRESETS, RATES, SEEDS, TASKS, motor_runs, runs
from learning import LATE, score
from report import print_table

COLORS = {"vssm+kf": "#0072B2", "gru": "#D55E00", "transformer": "#009E73", "mamba": "#CC79A7"}
EXACT_EPISODES, IDLE_EPISODES = 500, 100


class Cell(NamedTuple):
    """What is compared."""

    task: str
    agent: str
    dropout: float
    told: bool


def name_of(run: Experiment) -> str:
    """The name of a training, which is its file's, too."""
    told = "told" if run.dropout_told else "blind"
    task = run.env.split("/")[-1]
    return f"{task}.{run.agent}.{run.dropout:g}-{told}-seed{run.seed}"


def job(run: Experiment, seeds: int = 1) -> str:
    """NAME TASK FLAGS; of several seeds from 0 on, the name is without one."""
    task = next(name for name, env in PRESETS.items() if env == run.env)
    which = f"--seed {run.seed}" if seeds == 1 else f"--seeds {seeds} --overlap"
    flags = [f"--encoder {run.agent}", which, f"--dropout {run.dropout:g}"]
    if not run.dropout:
        flags.append("--dropout-burst None")
    if not run.dropout_told:
        flags.append("--no-dropout-told")
    if not run.dropout_flag:
        flags.append("--no-dropout-flag")
    name = name_of(run) if seeds == 1 else name_of(run).rpartition("-")[0]
    return f"{name} {task} {' '.join(flags)}"


def read(folder: Path) -> dict[Cell, list[float]]:
    """The mean of the last evaluations of each run, from the files of learning.py."""
    found: dict[Cell, list[float]] = defaultdict(list)
    for file in sorted(folder.glob("*.jsonl")):
        first, *rows = map(json.loads, file.read_text().splitlines())
        run = first["experiment"]
        if run["env"] not in TASKS or not rows or run.get("privileged"):
            continue
        late = float(np.mean([score(row, "in") for row in rows[-LATE:]]))
        dropout = run["dropout"]
        for told in (True, False) if not dropout else (run["dropout_told"],):
            found[Cell(run["env"], run["encoder"], dropout, told)].append(late)
    return dict(found)


def exact_return(rate: float, episodes: int = EXACT_EPISODES) -> float:
    """Mean return of the exact filter in `track`, told of the same bursts."""
    bad = Corruption(dropout=rate, dropout_burst=BURST if rate else None)
    env = make_vector("track", episodes, corruption=bad)
    observation, infos = env.reset(seed=0)
    steps = []
    for _ in range(64):
        there = infos.get("observed", np.ones(episodes, np.bool_))
        steps.append([np.array(x) for x in (observation[:, 0], there, infos["privileged"][:, 0])])
        observation, *_, infos = env.step(np.zeros((episodes, 1), np.float32))
    reading, observed, truth = (np.stack(x, 1) for x in zip(*steps, strict=True))
    mean, _ = exact_filter(reading, observed)
    return -float(((mean - truth) ** 2).sum(1).mean())


@cache
def idle_return(task: str, episodes: int = IDLE_EPISODES) -> float:
    """Mean return of actions that are zero: no estimate, no voltage, no push."""
    env, total, going = make_vector(task, episodes), np.zeros(episodes), np.ones(episodes, np.bool_)
    env.reset(seed=0)
    while going.any():
        _, reward, terminated, truncated, _ = env.step(np.zeros((episodes, 1), np.float32))
        total += reward * going
        going &= ~(terminated | truncated)
    env.close()
    return float(total.mean())


def loss(found: Mapping[Cell, Sequence[float]], cell: Cell) -> float | None:
    """The share that is lost of what is gained with all readings; 1 is all of it."""
    whole, mine = found.get(cell._replace(dropout=0.0)), found.get(cell)
    if not whole or not mine:
        return None
    top = float(np.mean(whole))
    return (top - float(np.mean(mine))) / (top - idle_return(cell.task))


def table(found: Mapping[Cell, Sequence[float]]) -> list[list[str]]:
    """One row a task and agent: returns at every rate, told and not, and what is lost at most."""
    body = []
    for task in TASKS:
        for agent in dict.fromkeys([*AGENTS, *(cell.agent for cell in found)]):
            if not any((cell.task, cell.agent) == (task, agent) for cell in found):
                continue
            cells = []
            for told in (True, False):
                for rate in RATES:
                    late = found.get(Cell(task, agent, rate, told), ())
                    cells.append(f"{np.mean(late):.4g}" if late else "–")
                lost = loss(found, Cell(task, agent, max(RATES), told))
                cells.append("–" if lost is None else f"{lost:.1%}")
            body.append([f"{task}, {agent}", *cells])
    return body


def draw(found: Mapping[Cell, Sequence[float]], picture: Path) -> None:
    """A panel a task; a line an agent, whole where it is told and broken where it is not."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    style = {"axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False}
    with plt.rc_context(style):
        figure, panels = plt.subplots(1, len(TASKS), figsize=(13, 4), layout="constrained")
        for axes, task in zip(panels, TASKS, strict=True):
            for place, agent in enumerate(AGENTS):
                for told, dashes in ((True, "-"), (False, "--")):
                    _line(axes, found, task, agent, told, dashes, 0.006 * (place - 1.5))
            if task == "track":
                exact = [exact_return(rate) for rate in RATES]
                axes.plot(RATES, exact, ":", color="black", lw=1.2, label="exact filter, told")
            axes.set(title=task, xlabel="share of readings missing", xticks=RATES)
            axes.grid(axis="y", alpha=0.25)
        panels[0].set_ylabel(f"return, mean of the last {LATE} evaluations")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=8)
        picture.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(picture, dpi=110, metadata={"Software": None})
        plt.close(figure)


def _line(
    axes: Any, found: Mapping[Cell, Sequence[float]], task: str, agent: str, told: bool,
    dashes: str, shift: float,
) -> None:  # fmt: skip
    rates = [rate for rate in RATES if Cell(task, agent, rate, told) in found]
    late = [found[Cell(task, agent, rate, told)] for rate in rates]
    if not late:
        return
    means = [float(np.mean(x)) for x in late]
    reach = [[m - min(x) for m, x in zip(means, late, strict=True)],
             [max(x) - m for m, x in zip(means, late, strict=True)]]  # fmt: skip
    label = f"{agent}, {'told' if told else 'not told'}"
    places = [rate + shift for rate in rates]
    axes.errorbar(
        places, means, reach, ls=dashes, color=COLORS[agent], lw=1.6, capsize=2, label=label
    )


def _is_there(run: Experiment, folder: Path | None) -> bool:
    return folder is not None and (folder / f"{name_of(run)}.jsonl").is_file()


def main(argv: Sequence[str] | None = None) -> int:
    """Print the jobs, or draw what they left."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    jobs = verbs.add_parser("jobs", help="one line a training")
    jobs.add_argument("--only", nargs="*", choices=PRESETS, default=list(PRESETS), metavar="TASK")
    jobs.add_argument("--motor", action="store_true", help="the motor's other agents, too")
    jobs.add_argument("--done", type=Path, metavar="FOLDER", help="leave out what has a file there")
    jobs.add_argument("--together", action="store_true", help="all seeds in one process")
    figure = verbs.add_parser("figure", help="what the runs reached")
    figure.add_argument("folder", type=Path, help="files of benchmarks/learning.py")
    figure.add_argument("--picture", type=Path)
    options = parser.parse_args(argv)
    if options.verb == "jobs":
        chosen = [run for run in runs() if run.env in {PRESETS[name] for name in options.only}]
        every = {run.hash: run for run in [*chosen, *(motor_runs() if options.motor else ())]}
        left = [run for run in every.values() if not _is_there(run, options.done)]
        seeds = len(SEEDS) if options.together else 1
        lines = [job(run, seeds) for run in sorted(left, key=lambda run: run.seed)]
        print("\n".join(dict.fromkeys(lines)))
        return 0
    found = read(options.folder)
    if not found:
        print(f"dropout: {options.folder}: got no runs, expected files of learning.py")
        return 1
    told = [f"{how} {rate:.0%}" for how in ("told", "not") for rate in RATES]
    head = ["", *told[:3], "lost at 50%", *told[3:], "lost at 50%"]
    print_table(head, table(found))
    if options.picture is not None:
        draw(found, options.picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
