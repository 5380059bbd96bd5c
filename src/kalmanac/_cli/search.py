"""`kalmanac search TASK --vary NAME=LOW:HIGH …`: which values of a few settings do best.

Every trial is an ordinary run, or one for each seed, in the folder; a search that was stopped goes
on with the same call. All other settings are flags, as for `kalmanac train`.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kalmanac._cli.verb import Call, Verb, expect_at_least
from kalmanac._lab.active_run import CHECKPOINT_EVERY, StopSignals
from kalmanac._ops.device import check_device
from kalmanac._search.study import Study, read_space
from kalmanac._suites.registry import starting_point
from kalmanac._sweep.board import Board
from kalmanac._sweep.driving import drive, make_executor
from kalmanac._sweep.plan import Planned, refuse_missing
from kalmanac._sweep.record import Record

EXECUTION = ("jobs", "on", "ray_address", "device", "checkpoint_every", "tensorboard")


@dataclass(frozen=True)
class Options:
    """What to search for, and where."""

    vary: tuple[str, ...] = ()
    """NAME=LOW:HIGH, NAME=LOW:HIGH:log or NAME=A,B,C; also encoder_settings.d_state=32,64."""
    trials: int = 20
    """Of which as many as there are already need not be run."""
    seeds: int = 1
    """Runs of each trial; its value is their mean."""
    value: Literal["last", "best"] = "last"
    """Which evaluation counts."""
    folder: str | None = None
    """Where the runs go; None is search/TASK."""
    sampler_seed: int = 0
    """Decides the proposals."""
    jobs: int | None = None
    """Trials at a time; None is one for each core."""
    on: Literal["local", "ray"] = "local"
    """local: processes of this machine; ray: a Ray cluster whose machines share the folder."""
    ray_address: str | None = None
    """Of the cluster, or auto; None starts Ray on this machine."""
    device: str = "auto"
    """auto, cpu or cuda."""
    checkpoint_every: int = CHECKPOINT_EVERY
    """Environment steps between checkpoints."""
    tensorboard: bool = True
    """Write TensorBoard events."""


def run_search(call: Call) -> int:
    """The verb. 2: a call that cannot be understood; 1: trials failed; 130: stopped by Ctrl-C."""
    options: Options = call.options
    if not call.words:
        raise ValueError("task: got none, expected one as `kalmanac train` takes it")
    task = call.words[0]
    expect_at_least(1, options, "trials", "seeds", "jobs", "checkpoint_every")
    check_device(options.device, here=options.on == "local")
    root = Path(options.folder or Path("search", task.replace("/", "-").replace(":", "-")))
    root = root.absolute()  # what is imported from now on may change the working directory
    changes = {name: value for name, value in call.changes.items() if name != "encoder"}
    agent = call.changes.get("encoder", "vssm+kf")
    experiment = starting_point(task, agent).changed(changes)
    space = read_space(options.vary, experiment)
    refuse_missing([Planned(experiment, root)])
    study = Study(
        root, experiment, space, seeds=options.seeds, which=options.value,
        seed=options.sampler_seed,
    )  # fmt: skip
    label = f" ({experiment.label})" if experiment.label else ""
    names = ", ".join(varied.name for varied in space)
    print(
        f"{experiment.env} with {experiment.agent}{label}: {names}; {options.trials} trials, "
        f"{study.done} done already",
        flush=True,
    )
    stopped = _run(study, root, options)
    return _end(study, options.trials, stopped)


def _run(study: Study, root: Path, options: Options) -> int | None:
    """Returns the signal that ended it, if one did."""
    record = Record(root)
    # before the signals, since Ray has handlers of its own, and before anything is written, since
    # it may not be there
    executor, how = make_executor(record, **{name: getattr(options, name) for name in EXECUTION})
    record.plan([])
    with StopSignals() as stop:
        total, before = options.trials * options.seeds, study.done * options.seeds
        try:
            with Board(root, total, before) as board:
                works = study.works(options.trials)
                for done in drive(executor, works, record, board, stop, how.stop_file):
                    record.plan(done.work)
                    study.learn(done)
        except KeyboardInterrupt:  # the second one
            print("kalmanac search: killed; checkpoints are kept", file=sys.stderr)
        return stop.number


def _end(study: Study, trials: int, signal: int | None) -> int:
    best = study.best()
    if best is not None:
        value, values, folders = best
        settings = " ".join(f"{name}={number:.4g}" for name, number in values.items())
        print(f"best of {study.done}: {value:.4g} with {settings}: {', '.join(map(str, folders))}")
    if study.done < trials:
        print(f"{study.done} of {trials} trials are done; the same call goes on")
        return 1 if signal is None else 128 + signal
    return 0 if best is not None else 1


VERB = Verb(
    run_search,
    Options,
    "Search for settings with Optuna. TASK and settings are those of `kalmanac train`; every trial "
    "is an ordinary run in the folder, and the same call goes on with a search that was stopped.",
    words="TASK",
    most=1,
    settings=lambda words: starting_point("best-arm-demo", "vssm+kf"),
)
