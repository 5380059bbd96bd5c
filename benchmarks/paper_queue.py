"""The queue of the reproduction: which runs come next, and what has been taken in.

    python benchmarks/paper_queue.py next --seconds 500 > jobs.txt    # NAME TASK FLAGS, a line each
    kalmanac train TASK FLAGS --folder runs/NAME                      # for each of them, at once
    python benchmarks/paper_queue.py play runs/*                      # heat maps and examples
    python benchmarks/paper_queue.py take runs --seconds 540          # or files of learning.py
    kalmanac report results/paper
    python benchmarks/paper_verdict.py                                # docs/verdicts.md

`next` goes through the queue (`paper_cells.py`) in its order and stops where the seconds are used
up. A cell that is longer than that is marked: keep its run folder, and name the folder of such
folders with --checkpoints next time, which gives lines "NAME resume FOLDER", to be called as
`kalmanac resume FOLDER`. With --together 3, up to three seeds of a cell are one line, `--seeds 3`:
each is what it would be alone, and six such lines at once keep a GPU busy. Best Arm's stay alone:
it has an update in four steps, so that a process of several seeds waits for its host.

`take` makes each run a small run folder, results/paper/SUITE/NAME: its settings, its evaluations
and what was played after it, without models and checkpoints. `kalmanac report` reads these as any
other. A run belongs to the cell whose settings it has, all of them; nothing else is taken, no seed
before the ones below it, nothing in place of a finished run. Then queue.md is written anew.
"""

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from kalmanac._files.run_reader import is_run, resumable
from kalmanac._lab.experiment import Experiment
from kalmanac._lab.post_training import run_post_training
from kalmanac._settings import as_it_was
from kalmanac._suites.registry import SUITES
from paper_cells import Cell, call, cells
from paper_page import write_page
from paper_runs import Results, read_speeds
from small_runs import SmallRun, read, sources

RESULTS = Path(__file__).parents[1] / "results" / "paper"
HEAT_MAPS = "best-arm-heatmap"


def main(argv: Sequence[str] | None = None) -> int:
    """One of the verbs."""
    options = _options(argv)
    try:
        return {"next": following, "play": play, "take": take, "page": page}[options.verb](options)
    except (OSError, ValueError) as error:
        print(f"paper_queue: {error}", file=sys.stderr)
        return 2


def following(options: argparse.Namespace) -> int:
    """Print the job file."""
    speeds = read_speeds(options.results)
    for told in options.rate:
        kind, _, rate = told.partition("=")
        if kind not in speeds.rates or not rate.isdecimal() or int(rate) == 0:
            kinds = ", ".join(speeds.rates)
            raise ValueError(f"--rate: got {told}, expected KIND=NUMBER, KIND one of {kinds}")
        speeds.rates[kind] = int(rate)
    results = Results(options.results)
    used, lines, passed = 0.0, 0, set[str]()
    most = options.seconds / speeds.runs_that_fill_it  # that one line can use
    for cell in cells().values():
        if results.finished(cell) or cell.name in passed:
            continue
        folder, begun = checkpoint_of(cell, options.checkpoints)
        seeds = [cell] if begun else together(cell, results, options)
        share = 1 - begun / cell.experiment.total_steps
        needed = share * speeds.seconds(cell)
        while len(seeds) > 1 and len(seeds) * needed > most:
            seeds.pop()
        needed *= len(seeds)
        if needed > most and options.whole:
            continue
        if lines == options.at_once or used + min(needed, most) > options.seconds:
            break
        passed |= {one.name for one in seeds}
        if not begun and (there := results.run(cell)) is not None:
            print(f"# {cell.name}: begins anew; step {there.step:,} was reached before")
        if needed > most:
            print(f"# {cell.name}: about {most / needed:.0%} of what is left; keep its folder")
        if begun:
            print(f"{cell.name} resume {folder}")
        elif len(seeds) > 1:
            name = f"{cell.name}-to-{seeds[-1].experiment.seed}"
            print(f"{name} {call(cell.experiment)} --seeds {len(seeds)}")
        else:
            print(f"{cell.name} {call(cell.experiment)}")
        used, lines = used + min(needed, most), lines + 1
    print(f"# {lines} runs, about {used:.0f} s of {options.seconds:.0f} s")
    return 0


def checkpoint_of(cell: Cell, checkpoints: Path | None) -> tuple[Path | None, int]:
    """The run folder from which a cell can go on, and the step of its checkpoint, or 0."""
    if checkpoints is None:
        return None, 0
    seed = cell.experiment.seed
    alone = [checkpoints / cell.name]
    in_groups = sorted(checkpoints.glob(f"{cell.suite}.{cell.what}-seed*-to-*/seed{seed}"))
    for folder in filter(is_run, alone + in_groups):
        if begun := resumable(folder):
            return folder, begun
    return None, 0


def together(cell: Cell, results: Results, options: argparse.Namespace) -> list[Cell]:
    """The cell and its next seeds, without a gap, that its block wants and nobody has begun."""
    seeds = {
        one.experiment.seed: one
        for one in cells().values()
        if (one.block, one.suite, one.what) == (cell.block, cell.suite, cell.what)
    }
    most = 1 if cell.kind == "best-arm" else options.together
    found, number = [cell], cell.experiment.seed + 1
    while len(found) < most and number in seeds and not results.finished(seeds[number]):
        if checkpoint_of(seeds[number], options.checkpoints)[1]:
            break
        found.append(seeds[number])
        number += 1
    return found


def play(options: argparse.Namespace) -> int:
    """Let the models of finished runs leave what figures are drawn from."""
    for folder in filter(is_run, sources(options.runs)):
        run = read(folder)
        if not run.done:
            continue
        cell = cell_of(run)
        free = cell.suite == "best-arm" and cell.experiment.env_settings["cost"] == 0
        names = [cell.suite, HEAT_MAPS] if free else [cell.suite]
        due = [one for name in names for one in SUITES[name].post_training(cell.experiment)]
        run_post_training(folder, tuple(due))
        print(f"{cell.name}: {len(due)} evaluations", flush=True)
    return 0


def take(options: argparse.Namespace) -> int:
    """Take runs in, and write the page. What is refused is told, and stops no other."""
    results = Results(options.results)
    found: list[tuple[Cell, SmallRun]] = []
    taken: list[str] = []
    refused = 0

    def refuse(error: Exception) -> None:
        nonlocal refused
        refused += 1
        print(f"paper_queue: {error}", file=sys.stderr)

    for source in sources(options.runs):
        try:
            run = read(source)
            found.append((cell_of(run), run))
        except (OSError, ValueError) as error:
            refuse(error)
    for cell, run in sorted(found, key=lambda pair: pair[0].experiment.seed):
        try:
            if results.take(cell, run):
                taken.append(cell.name)
        except ValueError as error:
            refuse(error)
    if options.seconds is not None:
        date = datetime.now(UTC).date().isoformat()
        results.note_call({"date": date, "seconds": options.seconds, "runs": taken})
    write_page(options.results)
    print(f"{len(taken)} runs taken in, {refused} refused")
    return 1 if refused else 0


def page(options: argparse.Namespace) -> int:
    """Write queue.md anew."""
    write_page(options.results)
    return 0


def cell_of(run: SmallRun) -> Cell:
    """The cell whose settings it has."""
    try:
        experiment = Experiment.from_data(run.experiment)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{run.source}: {error}") from None
    if (cell := cells().get(experiment.hash)) is not None:
        return cell
    raise ValueError(f"{run.source}: {_nearest(experiment)}")


def _nearest(experiment: Experiment) -> str:
    """What keeps it from being one of the queue's."""
    mine = as_it_was(experiment.to_data())

    def other(cell: Cell) -> dict[str, str]:
        theirs = as_it_was(cell.experiment.to_data())
        return {k: f"{mine[k]!r}, expected {theirs[k]!r}" for k in mine if mine[k] != theirs[k]}

    differing = min((other(cell) for cell in cells().values()), key=len)
    told = "; ".join(f"{name}: got {words}" for name, words in list(differing.items())[:4])
    return f"no cell of the queue has its settings; of the nearest one: {told}"


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    after = verbs.add_parser("next", help="print the job file of the cells that come next")
    after.add_argument("--seconds", type=float, required=True, help="of training")
    after.add_argument("--at-once", type=int, default=16, help="lines at most; %(default)s")
    after.add_argument(
        "--rate", action="append", default=[], metavar="KIND=UPDATES",
        help="updates a second, of all runs of a kind together; default: speeds.json",
    )  # fmt: skip
    after.add_argument("--together", type=int, default=1, help="seeds a line; %(default)s")
    after.add_argument("--checkpoints", type=Path, help="folder of run folders that can go on")
    after.add_argument("--whole", action="store_true", help="only cells that can be finished")
    played = verbs.add_parser("play", help="leave heat maps and episodes in finished run folders")
    played.add_argument("runs", nargs="+", type=Path)
    taken = verbs.add_parser("take", help="take runs in")
    taken.add_argument("runs", nargs="+", type=Path, help="run folders, files, or folders of them")
    taken.add_argument("--seconds", type=float, help="for which the GPU was held")
    verbs.add_parser("page", help="write queue.md anew")
    for verb in verbs.choices.values():
        verb.add_argument("--results", type=Path, default=RESULTS, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
