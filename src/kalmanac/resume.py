"""`kalmanac resume RUN`: go on with a run that was stopped, from its last checkpoint."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import gymnasium

from kalmanac.experiment import (
    Experiment,
    Progress,
    RunFailedError,
    StopSignals,
    check_device,
    check_environment,
    ending,
    exit_status,
    resume,
)
from kalmanac.runlog import read_experiment, refuse_in_use, resumable


def main(argv: Sequence[str]) -> int:
    """The verb. Exit status 2 for a run that cannot be gone on with, in one line."""
    options = _options(argv)
    try:
        check_device(options.device)
        experiment = Experiment.from_data(read_experiment(options.run))
        check_environment(experiment)
        refuse_in_use(options.run)
        step = resumable(options.run) if options.step is None else options.step
        if step is not None:
            print(f"{options.run}: from step {step:,} of {experiment.total_steps:,}", flush=True)
        with StopSignals() as stop:
            outcome = resume(
                options.run,
                step=options.step,
                device=options.device,
                progress=Progress(experiment.total_steps) if options.progress else None,
                events=options.tensorboard,
                checkpoint_every=options.checkpoint_every,
                stop=stop,
            )
    except RunFailedError as error:
        print(f"kalmanac resume: {error}", file=sys.stderr)
        return 1
    except (
        ValueError, TypeError, FileNotFoundError, ModuleNotFoundError, gymnasium.error.Error
    ) as error:  # fmt: skip
        print(f"kalmanac resume: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    print(ending(outcome, experiment))
    return exit_status(outcome, stop.number)


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="kalmanac resume",
        description="Go on with a run that was stopped, however it was. On the CPU, the rest is "
        "the same as if it had never stopped.",
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="a folder that `train` has left")
    parser.add_argument("--step", type=int, help="an earlier checkpoint than the newest")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument(
        "--checkpoint-every", type=int, metavar="STEPS",
        help="environment steps between checkpoints; default: as before",
    )  # fmt: skip
    parser.add_argument("--no-tensorboard", dest="tensorboard", action="store_false")
    parser.add_argument("--no-progress", dest="progress", action="store_false")
    return parser.parse_args(argv)
