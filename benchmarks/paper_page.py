"""queue.md: what of the reproduction is done, what is under way, and what comes next."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from paper_cells import BLOCKS, Cell, cells
from paper_runs import Results, Speeds, read_speeds
from small_runs import SmallRun

PAGE = "queue.md"
SHOWN = 24  # cells that come next
INTRO = """# The queue of the reproduction

`python benchmarks/paper_queue.py` writes this page when it takes runs in; the top of that file says
how the next ones are made. Every run here is a small run folder, SUITE/NAME: experiment.json with
all settings, metrics.jsonl with its evaluations (five digits; of the shares of actions only
`last_action_0`, which in Best Arm is a time-out), summary.json, provenance.json, five moments of
its clock in timing.jsonl, and what was played after it in evaluations/ (heat maps; episodes of seed
0 alone). Models and checkpoints are not kept. `kalmanac report results/paper` draws the paper's
figures from these folders as from any runs.

Seeds are 0, 1, 2, … in turn, and none is left out: a run that diverged is done, one that was
stopped goes on from its checkpoint, or from the beginning where that is lost.
"""


def write_page(results: Path) -> None:
    """Write it anew."""
    (results / PAGE).write_text("\n".join(page(Results(results), read_speeds(results))) + "\n")


def page(results: Results, speeds: Speeds) -> Iterator[str]:
    """Its lines."""
    every = list(cells().values())
    pairs = [(cell, run) for cell in every if (run := results.run(cell)) is not None]
    done = [(cell, run) for cell, run in pairs if run.done]
    under_way = [(cell, run) for cell, run in pairs if not run.done]
    yield INTRO
    yield from blocks(every, done, under_way, speeds)
    calls = results.calls()
    held = sum(call["seconds"] for call in calls) / 60
    rates = ", ".join(f"{kind} {rate:,.0f}" for kind, rate in speeds.rates.items())
    yield f"\nGPU minutes so far: {held:.0f}, in {len(calls)} calls. What is left is counted with"
    yield f"these updates a second, of all runs at once: {rates}.\n"
    yield "## Done\n"
    yield from table(done)
    yield "\n## Under way\n"
    yield from (
        f"- {cell.name}: {run.status}, step {run.step:,} of {cell.experiment.total_steps:,}"
        for cell, run in under_way
    )
    if not under_way:
        yield "None."
    yield "\n## Next\n"
    ready = {cell.name for cell, _ in done}
    yield from following([cell for cell in every if cell.name not in ready])


Pairs = Sequence[tuple[Cell, SmallRun]]


def blocks(every: Sequence[Cell], done: Pairs, begun: Pairs, speeds: Speeds) -> Iterator[str]:
    """One row each."""
    yield "| block | what | runs | done | under way | GPU minutes left |"
    yield "|---|---|---|---|---|---|"
    for block in BLOCKS:
        mine = [cell for cell in every if cell.block == block.name]
        ready = [cell for cell, _ in done if cell.block == block.name]
        running = sum(cell.block == block.name for cell, _ in begun)
        left = (sum(map(speeds.seconds, mine)) - sum(map(speeds.seconds, ready))) / 60
        counts = f"{len(mine)} | {len(ready)} | {running} | {left:.0f}"
        yield f"| {block.name} | {block.what} | {counts} |"


def table(done: Pairs) -> Iterator[str]:
    """One row for the seeds of a setting."""
    if not done:
        yield "No run has been taken in yet."
        return
    yield "| suite | what | steps | seeds | of these diverged | minutes on their clocks |"
    yield "|---|---|---|---|---|---|"
    alike: dict[tuple[str, str], list[tuple[Cell, SmallRun]]] = defaultdict(list)
    for cell, run in done:
        alike[cell.suite, cell.what].append((cell, run))
    for (suite, what), pairs in alike.items():
        seeds = " ".join(str(cell.experiment.seed) for cell, _ in pairs)
        steps = pairs[0][0].experiment.total_steps
        lost = sum(run.status == "diverged" for _, run in pairs)
        minutes = " ".join(f"{run.seconds / 60:.1f}" for _, run in pairs)
        yield f"| {suite} | {what} | {steps:,} | {seeds} | {lost} | {minutes} |"


def following(left: Sequence[Cell]) -> Iterator[str]:
    """The first few."""
    if not left:
        yield "Nothing: the queue is empty."
    for cell in left[:SHOWN]:
        yield f"- {cell.block}: {cell.name}, {cell.updates:,} updates"
    if len(left) > SHOWN:
        yield f"- and {len(left) - SHOWN:,} more"
