"""`kalmanac resume RUN …`: go on with runs from their last checkpoints, to another end if asked."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import gymnasium

from kalmanac.envs.workers import TIMEOUT
from kalmanac.experiment import (
    Experiment,
    Outcome,
    Progress,
    RunFailedError,
    StopSignals,
    check_device,
    check_environment,
    resume,
    resume_together,
    tell,
    way_on,
)
from kalmanac.rollout import EnvironmentFailedError
from kalmanac.runlog import read_experiment, refuse_in_use


def main(argv: Sequence[str]) -> int:
    """The verb. Exit status 2 for a run that cannot be gone on with, in one line."""
    options = _options(argv)
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
        experiments = [_look(folder, options.step, options.steps) for folder in options.run]
        with StopSignals() as stop:
            outcomes = _go_on(options, experiments[0].total_steps, stop)
    except (
        ValueError, TypeError, FileNotFoundError, ModuleNotFoundError, gymnasium.error.Error
    ) as error:  # fmt: skip
        print(f"kalmanac resume: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except EnvironmentFailedError as error:
        print(f"kalmanac resume: {error}", file=sys.stderr)
        return 1
    return tell("resume", outcomes, experiments, stop)


def _look(folder: Path, step: int | None, total_steps: int | None) -> Experiment:
    """The run's experiment, if it can be gone on with here."""
    experiment = Experiment.from_data(read_experiment(folder))
    check_environment(experiment)
    refuse_in_use(folder)
    experiment, step = way_on(folder, experiment, step, total_steps)
    print(f"{folder}: from step {step:,} of {experiment.total_steps:,}", flush=True)
    return experiment


def _go_on(
    options: argparse.Namespace, total: int, stop: StopSignals
) -> Sequence[Outcome | Exception]:
    how = {
        "device": options.device,
        "progress": Progress(total) if options.progress else None,
        "events": options.tensorboard,
        "total_steps": options.steps,
        "checkpoint_every": options.checkpoint_every,
        "keep_checkpoint": options.keep_checkpoint,
        "stop": stop,
        "workers": options.workers,
        "worker_timeout": options.worker_timeout,
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
    parser.add_argument("--no-tensorboard", dest="tensorboard", action="store_false")
    parser.add_argument("--no-progress", dest="progress", action="store_false")
    return parser.parse_args(argv)
