"""`kalmanac resume RUN …`: go on with runs from their last checkpoints, to another end if asked."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import gymnasium

from kalmanac.envs.workers import TIMEOUT
from kalmanac.experiment import (
    Experiment,
    Outcome,
    Progress,
    RunFailedError,
    StopSignals,
    ask_on_terminal,
    check_device,
    check_environment,
    read_trusted,
    resume,
    resume_together,
    tell,
    way_on,
)
from kalmanac.printable import MESSAGE, one_line
from kalmanac.rollout import EnvironmentFailedError
from kalmanac.runlog import refuse_in_use


def main(argv: Sequence[str]) -> int:
    """The verb. Exit status 2 for a run that cannot be gone on with, in one line."""
    options = _options(argv)
    # an environment may change the working directory
    options.run = [folder.absolute() for folder in options.run]
    try:
        check_device(options.device)
        if options.step is not None and len(options.run) > 1:
            raise ValueError(f"--step: got it for {len(options.run)} runs, expected one run")
        if len({folder.resolve() for folder in options.run}) < len(options.run):
            raise ValueError("run: got the same folder twice, expected different ones")
        if options.checkpoint_every is not None and options.checkpoint_every < 1:
            raise ValueError(
                f"checkpoint_every: got {options.checkpoint_every}, expected at least 1"
            )
        looked = [_look(folder, options) for folder in options.run]
        experiments = [one.experiment for one in looked]
        with StopSignals() as stop:
            outcomes = _go_on(options, looked, stop)
    except (
        ValueError, TypeError, FileNotFoundError, ModuleNotFoundError, gymnasium.error.Error
    ) as error:  # fmt: skip
        print(f"kalmanac resume: {one_line(error, MESSAGE)}", file=sys.stderr)
        return 2
    except (EnvironmentFailedError, RunFailedError) as error:
        print(f"kalmanac resume: {one_line(error, MESSAGE)}", file=sys.stderr)
        return 1
    return tell("resume", outcomes, experiments, stop)


class Looked(NamedTuple):
    """A run's experiment as its folder has it, and as it goes on: its end may be another."""

    on_disk: Experiment
    experiment: Experiment


def _look(folder: Path, options: argparse.Namespace) -> Looked:
    """What the run is, and what it goes on as, if it can be gone on with here."""
    experiment = read_trusted(folder, options.trust, ask_on_terminal)
    check_environment(experiment)
    refuse_in_use(folder)
    on = way_on(folder, experiment, options.step, options.steps)
    print(f"{folder}: from step {on.step:,} of {on.experiment.total_steps:,}", flush=True)
    return Looked(experiment, on.experiment)


def _go_on(
    options: argparse.Namespace, looked: Sequence[Looked], stop: StopSignals
) -> Sequence[Outcome | Exception]:
    how = {
        "device": options.device,
        "progress": Progress(looked[0].experiment.total_steps) if options.progress else None,
        "events": options.tensorboard,
        "total_steps": options.steps,
        "checkpoint_every": options.checkpoint_every,
        "keep_checkpoint": options.keep_checkpoint,
        "stop": stop,
        "workers": options.workers,
        "worker_timeout": options.worker_timeout,
        "trust": [one.on_disk for one in looked],  # these, as they were looked at
    }
    if len(options.run) > 1:
        return resume_together(options.run, **how)
    try:
        return [resume(options.run[0], step=options.step, **how)]
    except RunFailedError as error:
        return [error]


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="kalmanac resume",
        description="Go on with a run that was stopped, however it was, or extend one that is "
        "finished. On the CPU, the rest is the same as if it had never stopped.",
    )
    parser.add_argument(
        "run", type=Path, metavar="RUN", nargs="+",
        help="a folder that `train` has left; several go on together",
    )  # fmt: skip
    parser.add_argument("--step", type=int, help="an earlier checkpoint than the newest")
    parser.add_argument(
        "--steps", type=int, metavar="N",
        help="another end for the run, in environment steps from its beginning",
    )  # fmt: skip
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument(
        "--checkpoint-every", type=int, metavar="STEPS",
        help="environment steps between checkpoints; default: as before",
    )  # fmt: skip
    parser.add_argument(
        "--no-keep-checkpoint", dest="keep_checkpoint", action="store_false",
        help="a finished run keeps none, and cannot be extended",
    )  # fmt: skip
    parser.add_argument(
        "--workers", type=lambda word: word if word == "auto" else int(word), default=0,
        help="training environments that step at once in processes of their own; auto decides",
    )  # fmt: skip
    parser.add_argument(
        "--worker-timeout", type=float, default=TIMEOUT, metavar="SECONDS",
        help="until an environment that does not answer counts as hanging",
    )  # fmt: skip
    parser.add_argument(
        "--trust", action="store_true", help="run the code that a folder of somebody else names"
    )
    parser.add_argument("--no-tensorboard", dest="tensorboard", action="store_false")
    parser.add_argument("--no-progress", dest="progress", action="store_false")
    return parser.parse_args(argv)
