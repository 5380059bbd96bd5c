"""`kalmanac demo`: four agents learn two tasks in minutes; one picture and one table come out."""

import sys
from dataclasses import dataclass
from pathlib import Path

import torch

from kalmanac._cli.verb import Call, RefusedError, Verb, expect_at_least, need
from kalmanac._demo import bandit, tracking
from kalmanac._files.run_reader import MODELS
from kalmanac._sac.recurrent_sac import RecurrentSAC

PICTURE, TABLE = "demo.png", "demo.md"


@dataclass(frozen=True)
class Options:
    """What to train, and where."""

    out: Path = Path("runs/demo")
    """A folder for the runs, the picture and the table."""
    seed: int = 0
    """Of all four agents."""
    steps: int | None = None
    """Of each agent; None is its own."""


def show(call: Call) -> int:
    """The verb. 130: interrupted; 1: an agent diverged, or nothing can be written."""
    options: Options = call.options
    expect_at_least(0, options, "seed")
    expect_at_least(1, options, "steps")
    need("matplotlib")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the tensors are too small for more: on a busy machine more is slower
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        return run_demo(options.out, options.seed, options.steps)
    except OSError as error:
        raise RefusedError(f"--out {options.out}: {error.strerror}", 1) from None
    except KeyboardInterrupt:
        print("\ninterrupted; finished runs are kept, and a second start goes on from there")
        return 130
    finally:
        torch.set_num_threads(threads)


def run_demo(folder: Path, seed: int, steps: int | None) -> int:
    """Train what is missing, then measure and draw. 130: interrupted; 1: diverged."""
    print("Four agents, one after the other, minutes in all; Ctrl-C keeps what is finished.")
    arms = [bandit.shortened(agent, seed) for agent in bandit.AGENTS]
    trained: list[bandit.Trained] = []
    for experiment in (*arms, tracking.tracking(seed)):
        changes = {} if steps is None else {"total_steps": steps}
        trained.append(bandit.train(experiment.changed(changes), folder))
        if trained[-1].status == "interrupted":
            raise KeyboardInterrupt
        if trained[-1].status != "finished":
            experiment, place, status = trained[-1]
            print(f"kalmanac demo: {experiment.agent} {status}: {place}", file=sys.stderr)
            return 1
    *agents, tracker = trained
    by_agent = dict(zip(bandit.AGENTS, agents, strict=True))
    table = write_results(folder, by_agent, tracking.track(tracker))
    print(f"\n{table}\npicture: {folder / PICTURE}\ntable:   {folder / TABLE}")
    return 0


def write_results(
    folder: Path, arms: dict[str, bandit.Trained], tracked: tracking.TrackingResult
) -> str:
    """Measure the agents, draw the picture and write the table, which is returned."""
    from kalmanac._demo.picture import draw  # matplotlib is slow to come

    experiment, place, _ = arms["vssm+kf"]
    title = bandit.title_of(experiment)
    rows = {agent: bandit.measure(arms[agent]) for agent in reversed(bandit.AGENTS)}
    ceilings = {name: bandit.threshold(experiment, name) for name in bandit.PLACES}
    model = RecurrentSAC.load(place / MODELS["last"], device="cpu")
    played = bandit.play_shown(model, experiment)
    draw(title, arms, ceilings["in"], played, tracked, folder / PICTURE)
    table = f"{bandit.as_table(title, rows, ceilings)}\n{tracking.as_lines(tracked)}"
    (folder / TABLE).write_text(table, encoding="utf-8")
    return table


VERB = Verb(
    show,
    Options,
    "Train vssm+kf, oracle and memoryless on the shortened Best Arm, and vssm+kf on a noisy signal "
    f"with gaps, in minutes; leave one picture ({PICTURE}) and one table. Runs that are finished "
    "are kept: a second start goes on with the first that is not.",
)
