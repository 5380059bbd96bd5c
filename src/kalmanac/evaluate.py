"""`kalmanac eval RUN`: play new episodes with a trained agent and print what came out."""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import gymnasium

from kalmanac.experiment import (
    Experiment,
    Progress,
    ask_on_terminal,
    check_device,
    check_environment,
    evaluate,
    evaluation_environment,
    most_steps,
    read_trusted,
)
from kalmanac.printable import MESSAGE, one_line
from kalmanac.rollout import EnvironmentFailedError, closed
from kalmanac.runlog import MODELS, read_summary
from kalmanac.sac import RecurrentSAC

SEED = 1_000_003  # apart from the seeds of training and its evaluations


def main(argv: Sequence[str]) -> int:
    """The verb. Exit status 2 for a call that cannot be understood, 1 without a model."""
    parser = argparse.ArgumentParser(
        prog="kalmanac eval",
        description="Play new episodes with a trained agent, without exploration, and print "
        "normalised return, length and win rate.",
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="a folder that `train` has left")
    parser.add_argument("--episodes", type=int, metavar="N", help="default: as in the training")
    parser.add_argument("--which", choices=tuple(MODELS), default="best", help="which model")
    parser.add_argument("--env", metavar="NAME", help="one evaluation only, such as in or out")
    parser.add_argument("--seed", type=int, default=SEED, help="of the episodes")
    parser.add_argument(
        "--max-steps", type=int, metavar="N",
        help="an episode that is not over after so many steps is cut; default: as in the training",
    )  # fmt: skip
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument(
        "--trust", action="store_true", help="run the code that a folder of somebody else names"
    )
    options = parser.parse_args(argv)
    try:
        if options.episodes is not None and options.episodes < 1:
            raise ValueError(f"episodes: got {options.episodes}, expected at least 1")
        check_device(options.device)
        experiment = read_trusted(options.run, options.trust, ask_on_terminal)
        options.run = options.run.absolute()  # an environment may change the working directory
        if options.max_steps is not None:
            experiment = experiment.changed({"eval_max_steps": options.max_steps})
        file = options.run / MODELS[options.which]
        if not file.is_file():
            raise FileNotFoundError(f"run: got {options.run}, expected one with {file.name}")
        names = [options.env] if options.env else list(check_environment(experiment).evaluations)
        summary = read_summary(options.run)
        model = RecurrentSAC.load(file, device=options.device)
        rows = {
            name: _row(model, experiment, name, options.episodes, options.seed) for name in names
        }
    except (
        ValueError, TypeError, FileNotFoundError, ModuleNotFoundError, gymnasium.error.Error
    ) as error:  # fmt: skip
        print(f"kalmanac eval: {one_line(error, MESSAGE)}", file=sys.stderr)
        return 2
    except EnvironmentFailedError as error:
        print(f"kalmanac eval: {one_line(error, MESSAGE)}", file=sys.stderr)
        return 1
    label = f", {experiment.label}" if experiment.label else ""
    print(
        f"{experiment.env} with {experiment.agent}, seed {experiment.seed}{label}: "
        f"{options.which} model, step {model.num_timesteps:,} "
        f"({summary.get('status', 'unknown')}), {options.episodes or experiment.eval_episodes} "
        "episodes each"
    )
    print(table(rows))
    return 0


def table(rows: dict[str, dict[str, float]]) -> str:
    """One line for each environment, one column for each number."""
    keys = list(dict.fromkeys(key for found in rows.values() for key in found))
    head = ["", *(key.replace("_", " ") for key in keys)]
    body = [
        [name, *(f"{found[key]:.3f}" if key in found else "" for key in keys)]
        for name, found in rows.items()
    ]
    wide = [max(map(len, column)) for column in zip(head, *body, strict=True)]
    lines = ("  ".join(c.rjust(n) for c, n in zip(row, wide, strict=True)) for row in [head, *body])
    return "\n".join(line.rstrip() for line in lines)


def _row(
    model: RecurrentSAC, experiment: Experiment, name: str, episodes: int | None, seed: int
) -> dict[str, float]:
    env = evaluation_environment(experiment, name, episodes)
    found = evaluate(
        model,
        env,
        episodes or experiment.eval_episodes,
        seed=seed,
        normaliser=check_environment(experiment).normaliser,
        max_steps=most_steps(experiment, name),
        each_step=partial(Progress(0, sys.stderr).evaluating, name),
    )
    closed(env)
    return found
