"""`kalmanac train TASK …`: train an agent, evaluate it on the way, and leave all in a run folder.

TASK is a preset of `kalmanac.suites`, or any environment with the default settings. What a
configuration file says goes before the preset, and what a flag says before both.
"""

import difflib
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import gymnasium

from kalmanac.experiment import (
    AGENTS,
    CHECKPOINT_EVERY,
    Experiment,
    Progress,
    RunFailedError,
    StopSignals,
    check_device,
    check_environment,
    ending,
    estimate,
    evaluation_environment,
    exit_status,
    make_model,
    run,
    training_environment,
)
from kalmanac.experiment.description import expect_known
from kalmanac.experiment.flags import read_config, read_flags, show_help
from kalmanac.rollout import EnvironmentFailedError
from kalmanac.runlog import FolderTakenError, refuse_taken
from kalmanac.suites import PRESETS


@dataclass(frozen=True)
class Options:
    """How to run it."""

    folder: str | None = None
    """Where the run goes; None is runs/TASK/AGENT-seedN-HASH."""
    config: str | None = None
    """A .toml or .json file of settings; --steps and --agent work here too."""
    device: str = "auto"
    """auto, cpu or cuda."""
    overwrite: bool = False
    """Start over where the folder holds this very experiment."""
    tensorboard: bool = True
    """Write TensorBoard events."""
    progress: bool = True
    """Show how the run gets on."""
    checkpoint_every: int = CHECKPOINT_EVERY
    """Environment steps between checkpoints, from which `kalmanac resume` goes on."""
    dry_run: bool = False
    """Only say what would be run, and what it would take."""


def main(argv: Sequence[str]) -> int:
    """The verb. Exit status 2 for a call that cannot be understood, in one line."""
    words = list(argv)
    task = words.pop(0) if words and not words[0].startswith("-") else None
    if {"-h", "--help"} & set(words) or (task is None and not words):
        return _help(task)
    try:
        if task is None:
            raise ValueError(f"task: got none, expected one of {', '.join(PRESETS)}")
        options, experiment = read_call(task, words)
        folder = Path(options.folder or default_folder(task, experiment))
        refuse_taken(folder, experiment.to_data(), overwrite=options.overwrite)
        check_parts(experiment, options.device)
        if options.checkpoint_every < 1:
            every = options.checkpoint_every
            raise ValueError(f"checkpoint_every: got {every}, expected at least 1")
    except FolderTakenError as error:
        return _refuse(str(error).replace("or overwrite", "or --overwrite"))
    except (ValueError, TypeError, ModuleNotFoundError, gymnasium.error.Error) as error:
        return _refuse(str(error))
    return _train(experiment, folder, options)


def read_call(task: str, words: Sequence[str]) -> tuple[Options, Experiment]:
    """What the words after `kalmanac train` ask for."""
    flags, changes = read_flags(words, Options, Experiment)
    options = Options(**flags)
    told = read_config(Path(options.config)) if options.config else {}
    agent = changes.get("encoder", told.get("encoder", "vssm+kf"))
    experiment = starting_point(task, agent)
    for source in (told, changes):
        experiment = experiment.changed({k: v for k, v in source.items() if k != "encoder"})
    check_environment(experiment)
    return options, experiment


def starting_point(task: str, agent: str) -> Experiment:
    """The preset for this agent, or the defaults in an environment that has no preset."""
    expect_known("encoder", agent, AGENTS)
    if task in PRESETS:
        return PRESETS[task].experiment(agent)
    try:
        check_environment(Experiment(env=task))
    except ValueError:
        if difflib.get_close_matches(task, PRESETS):
            expect_known("task", task, PRESETS)
        raise
    return Experiment(env=task).changed({"encoder": agent})


def check_parts(experiment: Experiment, device: str) -> None:
    """Build environments and agent once, so that what does not fit is said before the run."""
    check_device(device)
    with closing(training_environment(experiment)) as env:
        make_model(experiment, env, device)
    for name in experiment.evaluations:
        evaluation_environment(experiment, name).close()


def default_folder(task: str, experiment: Experiment) -> Path:
    """Different for different experiments."""
    name = f"{experiment.agent}-seed{experiment.seed}-{experiment.hash}"
    return Path("runs", task.replace("/", "-").replace(":", "-"), name)


def _train(experiment: Experiment, folder: Path, options: Options) -> int:
    label = f", {experiment.label}" if experiment.label else ""
    print(
        f"{experiment.env} with {experiment.agent}, seed {experiment.seed}{label}: "
        f"{experiment.total_steps:,} steps"
    )
    try:
        if options.progress or options.dry_run:
            print(estimate(experiment, device=options.device), flush=True)
        if options.dry_run:
            print(experiment.to_json())
            return 0
        with StopSignals() as stop:
            outcome = run(
                experiment,
                folder,
                device=options.device,
                progress=Progress(experiment.total_steps) if options.progress else None,
                overwrite=options.overwrite,
                events=options.tensorboard,
                checkpoint_every=options.checkpoint_every,
                stop=stop,
            )
    except (RunFailedError, EnvironmentFailedError) as error:  # the latter: in the estimate
        print(f"kalmanac train: {error}", file=sys.stderr)
        return 1
    print(ending(outcome, experiment))
    return exit_status(outcome, stop.number)


def _help(task: str | None) -> int:
    wide = max(map(len, PRESETS))
    tasks = "\n".join(f"  {name:<{wide}}  {preset.summary}" for name, preset in PRESETS.items())
    show_help(
        PRESETS[task if task in PRESETS else "best-arm"].experiment("vssm+kf"),
        Options(),
        prog="kalmanac train TASK",
        description="Train an agent. --encoder takes oracle, too; --steps is short for "
        "--total-steps. TASK is a Gymnasium id, module:NAME of an environment, or a preset:\n"
        f"{tasks}",
    )
    return 2


def _refuse(text: str) -> int:
    print(f"kalmanac train: {' '.join(text.split())}", file=sys.stderr)
    return 2
