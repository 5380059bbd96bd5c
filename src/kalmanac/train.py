"""`kalmanac train TASK …`: train an agent, evaluate it on the way, and leave all in a run folder.

TASK is a preset of `kalmanac.suites`, an environment that the paper has settings for, or any other
one with the default settings; `--preset NAME --env ENV` names both. What a configuration file says
goes before the preset, and what a flag says before both.
"""

import difflib
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import gymnasium

from kalmanac.envs.workers import TIMEOUT, WorkerError
from kalmanac.experiment import (
    AGENTS,
    Experiment,
    Outcome,
    Progress,
    check_device,
    check_environment,
    check_workers,
    estimate,
    evaluation_environment,
    make_model,
    run,
    training_environment,
)
from kalmanac.experiment.description import expect_known
from kalmanac.experiment.flags import read_config, read_flags, show_help
from kalmanac.experiment.progress import evaluation_line
from kalmanac.runlog import FolderTakenError, read_summary, refuse_taken
from kalmanac.suites import PRESETS, TASKS, preset

STATUS = {
    "finished": 0,
    "diverged": 1,
    "failed": 1,
    "interrupted": 130,
}  # 130: as shells report Ctrl-C


@dataclass(frozen=True)
class Options:
    """How to run it."""

    folder: str | None = None
    """Where the run goes; None is runs/TASK/AGENT-seedN-HASH."""
    config: str | None = None
    """A .toml or .json file of settings; --steps and --agent work here too."""
    preset: str | None = None
    """Settings to start from; None is those of TASK or of --env."""
    device: str = "auto"
    """auto, cpu or cuda."""
    workers: int | Literal["auto"] = 0
    """Training environments that step at once in processes of their own; 0 is none."""
    worker_timeout: float = TIMEOUT
    """Seconds until an environment that does not answer counts as hanging."""
    overwrite: bool = False
    """Start over where the folder holds this very experiment."""
    tensorboard: bool = True
    """Write TensorBoard events."""
    progress: bool = True
    """Show how the run gets on."""
    dry_run: bool = False
    """Only say what would be run, and what it would take."""


def main(argv: Sequence[str]) -> int:
    """The verb. Exit status 2 for a call that cannot be understood, in one line."""
    words = list(argv)
    task = words.pop(0) if words and not words[0].startswith("-") else None
    if {"-h", "--help"} & set(words) or (task is None and not words):
        return _help(task)
    try:
        options, experiment = read_call(task, words)
        folder = Path(options.folder or default_folder(task or experiment.env, experiment))
        refuse_taken(folder, experiment.to_data(), overwrite=options.overwrite)
        check_workers(experiment, options.workers)
        check_parts(experiment, options.device)
    except FolderTakenError as error:
        return _refuse(str(error).replace("or overwrite", "or --overwrite"))
    except (ValueError, TypeError, ModuleNotFoundError, gymnasium.error.Error) as error:
        return _refuse(str(error))
    try:
        return _train(experiment, folder, options)
    except WorkerError as error:
        print(f"kalmanac train: {error}", file=sys.stderr)
        return STATUS["failed"]


def read_call(task: str | None, words: Sequence[str]) -> tuple[Options, Experiment]:
    """What the words after `kalmanac train` ask for."""
    flags, changes = read_flags(words, Options, Experiment)
    options = Options(**flags)
    told = read_config(Path(options.config)) if options.config else {}
    agent = changes.get("encoder", told.get("encoder", "vssm+kf"))
    if options.preset is not None:
        expect_known("preset", options.preset, PRESETS)
        if task is not None:  # then it names the environment
            changes = {"env": task} | changes
    env = changes.get("env", told.get("env"))
    start = options.preset or task or env
    if start is None:
        raise ValueError(f"task: got none, expected one of {', '.join(PRESETS)}, or --env")
    experiment = starting_point(start, agent, env)
    for source in (told, changes):
        experiment = experiment.changed({k: v for k, v in source.items() if k != "encoder"})
    check_environment(experiment)
    return options, experiment


def starting_point(task: str, agent: str, env: str | None = None) -> Experiment:
    """The preset for this agent, or the defaults in an environment that has no preset."""
    expect_known("encoder", agent, AGENTS)
    if task in PRESETS or task in TASKS:
        return preset(task, env).experiment(agent)
    try:
        check_environment(Experiment(env=task))
    except ValueError:
        if difflib.get_close_matches(task, [*PRESETS, *TASKS]):
            expect_known("task", task, [*PRESETS, *TASKS])
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
    if options.progress or options.dry_run:
        print(estimate(experiment, device=options.device), flush=True)
    if options.dry_run:
        print(experiment.to_json())
        return 0
    outcome = run(
        experiment,
        folder,
        device=options.device,
        progress=Progress(experiment.total_steps) if options.progress else None,
        overwrite=options.overwrite,
        events=options.tensorboard,
        workers=options.workers,
        worker_timeout=options.worker_timeout,
    )
    print(_ending(outcome, experiment))
    return STATUS[outcome.status]


def _ending(outcome: Outcome, experiment: Experiment) -> str:
    told = {
        "finished": "finished",
        "interrupted": f"interrupted at step {outcome.step:,}; the last model is kept",
        "diverged": f"stopped at step {outcome.step:,}: losses or weights are not finite any more",
    }[outcome.status]
    lines = [
        f"{which}, step {found['step']:,}: {evaluation_line(_evaluations(found))}"
        for which in ("best", "last")
        if (found := read_summary(outcome.folder).get(which))
    ]
    label = f" ({experiment.label})" if experiment.label else ""
    return "\n".join([*lines, f"{told}{label}: {outcome.folder}"])


def _evaluations(found: Mapping[str, Any]) -> dict[str, float]:
    return {key: value for key, value in found.items() if key != "step"}


def _help(task: str | None) -> int:
    wide = max(map(len, PRESETS))
    tasks = "\n".join(f"  {name:<{wide}}  {preset.summary}" for name, preset in PRESETS.items())
    show_help(
        preset(task if task in PRESETS or task in TASKS else "best-arm").experiment("vssm+kf"),
        Options(),
        prog="kalmanac train TASK",
        description="Train an agent. --encoder takes oracle, too; --steps is short for "
        "--total-steps. TASK is an environment (`kalmanac envs` lists them), a Gymnasium id, "
        f"module:NAME of an environment, or a preset:\n{tasks}",
    )
    return 2


def _refuse(text: str) -> int:
    print(f"kalmanac train: {' '.join(text.split())}", file=sys.stderr)
    return 2
