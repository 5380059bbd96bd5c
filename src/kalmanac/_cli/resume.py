"""`kalmanac resume RUN …`: go on with runs from their last checkpoints, to another end if asked."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from kalmanac._cli.verb import Call, Verb, expect_at_least, our_fault
from kalmanac._envs.workers import TIMEOUT
from kalmanac._files.run_folder import refuse_in_use
from kalmanac._lab.active_run import Outcome, StopSignals
from kalmanac._lab.checkpointing import way_on
from kalmanac._lab.exit_status import print_outcomes
from kalmanac._lab.experiment import Experiment
from kalmanac._lab.factory import check_environment
from kalmanac._lab.failure import RunFailedError
from kalmanac._lab.run import resume, resume_together
from kalmanac._lab.trust import ask_on_terminal, read_trusted
from kalmanac._ops.device import check_device
from kalmanac._sac.progress import Progress


@dataclass(frozen=True)
class Options:
    """How to go on."""

    step: int | None = None
    """An earlier checkpoint than the newest."""
    steps: int | None = None
    """Another end for the run, in environment steps from its beginning."""
    device: str = "auto"
    """auto, cpu or cuda."""
    checkpoint_every: int | None = None
    """Environment steps between checkpoints; None is as before."""
    keep_checkpoint: bool = True
    """A finished run keeps its last one, from which it can be extended."""
    workers: int | Literal["auto"] = 0
    """Training environments that step at once in processes of their own; auto decides."""
    worker_timeout: float = TIMEOUT
    """Seconds until an environment that does not answer counts as hanging."""
    trust: bool = False
    """Run the code that a folder of somebody else names."""
    tensorboard: bool = True
    """Write TensorBoard events."""
    progress: bool = True
    """Show how the run gets on."""


def go_on(call: Call) -> int:
    """The verb."""
    options: Options = call.options
    # an environment may change the working directory
    folders = [Path(word).absolute() for word in call.words]
    check_device(options.device)
    if options.step is not None and len(folders) > 1:
        raise ValueError(f"--step: got it for {len(folders)} runs, expected one run")
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise ValueError("run: got the same folder twice, expected different ones")
    expect_at_least(1, options, "checkpoint_every")
    resumptions = [_resumption(folder, options) for folder in folders]
    with StopSignals() as stop:
        outcomes = _go_on(folders, options, resumptions, stop)
    with our_fault():
        return print_outcomes("resume", outcomes, [one.experiment for one in resumptions], stop)


class Resumption(NamedTuple):
    """A run's experiment as its folder has it, and as it goes on: its end may be another."""

    on_disk: Experiment
    experiment: Experiment


def _resumption(folder: Path, options: Options) -> Resumption:
    """Read what the run is and what it goes on as; refuse one that cannot go on here."""
    experiment = read_trusted(folder, options.trust, ask_on_terminal)
    check_environment(experiment)
    refuse_in_use(folder)
    on = way_on(folder, experiment, options.step, options.steps)
    print(f"{folder}: from step {on.step:,} of {on.experiment.total_steps:,}", flush=True)
    return Resumption(experiment, on.experiment)


def _go_on(
    folders: Sequence[Path], options: Options, resumptions: Sequence[Resumption], stop: StopSignals
) -> Sequence[Outcome | Exception]:
    how: dict[str, Any] = {
        "device": options.device,
        "progress": Progress(resumptions[0].experiment.total_steps) if options.progress else None,
        "events": options.tensorboard,
        "total_steps": options.steps,
        "checkpoint_every": options.checkpoint_every,
        "keep_checkpoint": options.keep_checkpoint,
        "stop": stop,
        "workers": options.workers,
        "worker_timeout": options.worker_timeout,
        "trust": [one.on_disk for one in resumptions],  # these, as they were read
    }
    if len(folders) > 1:
        return resume_together(folders, **how)
    try:
        return [resume(folders[0], step=options.step, **how)]
    except RunFailedError as error:
        return [error]


VERB = Verb(
    go_on,
    Options,
    "Go on with a run that was stopped, however it was, or extend one that is finished. On the "
    "CPU, the rest is the same as if it had never stopped. RUN is a folder that `train` has left; "
    "several go on together.",
    words="RUN …",
    least=1,
    most=math.inf,
)
