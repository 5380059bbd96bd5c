"""`kalmanac train TASK …`: train an agent, evaluate it on the way, and leave all in a run folder.

TASK is a preset of `kalmanac._suites`, an environment that the paper has settings for, or any other
one with the default settings; `--preset NAME --env ENV` names both. What a configuration file says
goes before the preset, and what a flag says before both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from kalmanac._cli.flags import read_config
from kalmanac._cli.verb import Call, Verb, expect_at_least, listed, our_fault
from kalmanac._envs.workers import TIMEOUT
from kalmanac._files.run_folder import FolderTakenError, refuse_taken
from kalmanac._files.run_reader import EXPERIMENT, is_run
from kalmanac._lab.active_run import CHECKPOINT_EVERY, StopSignals
from kalmanac._lab.exit_status import print_outcomes
from kalmanac._lab.experiment import Experiment
from kalmanac._lab.factory import (
    check_environment,
    check_workers,
    evaluation_environment,
    make_model,
    training_environment,
)
from kalmanac._lab.resources import check_memory, estimate
from kalmanac._lab.run import run_together
from kalmanac._lab.trust import ask_on_terminal, require_trust
from kalmanac._messages import expect_known
from kalmanac._ops.device import check_device
from kalmanac._sac.environment_failure import EnvironmentFailedError, closed
from kalmanac._sac.progress import Progress
from kalmanac._settings import as_it_was
from kalmanac._suites.registry import PRESETS, TASKS, default_folder, preset, starting_point


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
    threads: int | None = None
    """Of PyTorch on a CPU; None measures how many are fastest here. The run keeps them."""
    eval_beside: bool = False
    """Evaluate in a process of its own, on the CPU, while the training goes on."""
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
    checkpoint_every: int = CHECKPOINT_EVERY
    """Environment steps between checkpoints, from which `kalmanac resume` goes on."""
    keep_checkpoint: bool = True
    """A finished run keeps its last one, from which `kalmanac resume RUN --steps N` extends it."""
    seeds: int = 1
    """Runs with so many seeds at once, from --seed on, each in a folder of its own."""
    dry_run: bool = False
    """Only say what would be run, and what it would take."""
    trust: bool = False
    """Run the code that a configuration file of somebody else names as its environment."""


def train(call: Call) -> int:
    """The verb."""
    options: Options = call.options
    experiment = experiment_from(call)
    expect_at_least(1, options, "checkpoint_every", "seeds", "threads")
    task = next(iter(call.words), experiment.env)
    runs = {
        folder.absolute(): one  # an environment may change the working directory
        for folder, one in runs_by_folder(task, experiment, options).items()
    }
    try:
        for folder, one in runs.items():
            refuse_taken(folder, one.to_data(), overwrite=options.overwrite)
    except FolderTakenError as error:
        raise ValueError(str(error).replace("or overwrite", "or --overwrite")) from None
    check_workers(experiment, options.workers)
    check_parts(experiment, options.device, options.seeds)
    return _train(runs, options)


def runs_by_folder(task: str, experiment: Experiment, options: Options) -> dict[Path, Experiment]:
    """Return the runs by their folders; several seeds lie side by side in the named folder."""
    seeds = range(experiment.seed, experiment.seed + options.seeds)
    many = [experiment.changed({"seed": seed}) for seed in seeds]
    if options.folder is None:
        return {default_folder(task, one): one for one in many}
    if len(many) == 1:
        return {Path(options.folder): experiment}
    return {Path(options.folder, f"seed{one.seed}"): one for one in many}


def experiment_from(call: Call) -> Experiment:
    """Build the experiment that a call asks for."""
    task, options, changes = next(iter(call.words), None), call.options, call.changes
    settings = _read_settings(Path(options.config)) if options.config else {}
    agent = changes.get("encoder", settings.get("encoder", "vssm+kf"))
    if options.preset is not None:
        expect_known("preset", options.preset, PRESETS)
        if task is not None:  # then it names the environment
            changes = {"env": task, **changes}
    env = changes.get("env", settings.get("env"))
    if isinstance(env, str) and env not in (task, changes.get("env")):  # nobody has typed it
        env_settings = {"env_settings": settings.get("env_settings", {})}
        require_trust(
            f"config: got {options.config}", env, env_settings, options.trust, ask_on_terminal
        )
    start = options.preset or task or env
    if start is None:
        raise ValueError(
            "task: got none, expected kalmanac train TASK, such as best-arm; `kalmanac envs` lists "
            "tasks, `kalmanac train --help` presets and every setting"
        )
    experiment = starting_point(start, agent, env)
    for source in (settings, changes):
        experiment = experiment.changed({k: v for k, v in source.items() if k != "encoder"})
    check_environment(experiment)
    return experiment


def _read_settings(config: Path) -> dict[str, Any]:
    """Read the settings in a file; those of an older run are what it did then."""
    settings = read_config(config)
    of_a_run = config.name == EXPERIMENT and is_run(config.parent)
    return as_it_was(settings) if of_a_run else settings


def check_parts(experiment: Experiment, device: str, seeds: int = 1) -> None:
    """Build environments and agent once, so that what does not fit is said before the run."""
    check_device(device)
    env = training_environment(experiment)
    try:
        check_memory(experiment, make_model(experiment, env, device).learner, seeds)
    finally:
        closed(env)
    for name in experiment.evaluations:
        closed(evaluation_environment(experiment, name))


def _train(runs: Mapping[Path, Experiment], options: Options) -> int:
    experiment, *others = runs.values()
    label = f", {experiment.label}" if experiment.label else ""
    last = f" to {others[-1].seed}" if others else ""
    print(
        f"{experiment.env} with {experiment.agent}, seed {experiment.seed}{last}{label}: "
        f"{experiment.total_steps:,} steps"
    )
    if options.progress or options.dry_run:
        of_each = ", each seed" if others else ""
        try:
            print(f"{estimate(experiment, device=options.device)}{of_each}", flush=True)
        except EnvironmentFailedError:
            if options.dry_run:
                raise
            # the run will tell it, and leave a folder that has the whole story
    if options.dry_run:
        print(f"a dry run: nothing is trained; it would go to {', '.join(map(str, runs))}")
        return 0
    with our_fault(), StopSignals() as stop:
        outcomes = run_together(
            list(runs.values()),
            list(runs),
            device=options.device,
            progress=Progress(experiment.total_steps) if options.progress else None,
            overwrite=options.overwrite,
            events=options.tensorboard,
            checkpoint_every=options.checkpoint_every,
            keep_checkpoint=options.keep_checkpoint,
            stop=stop,
            workers=options.workers,
            worker_timeout=options.worker_timeout,
            threads=options.threads,
            eval_beside=options.eval_beside,
        )
        return print_outcomes("train", outcomes, list(runs.values()), stop)


def _defaults(words: Sequence[str]) -> Experiment:
    task = next(iter(words), "")
    return preset(task if task in PRESETS or task in TASKS else "best-arm").experiment("vssm+kf")


VERB = Verb(
    train,
    Options,
    "Train an agent. --encoder takes oracle, too; --steps is short for --total-steps. TASK is an "
    "environment (`kalmanac envs` lists them), a Gymnasium id, module:NAME of an environment, or a "
    f"preset:\n{listed(PRESETS)}",
    words="TASK",
    most=1,
    settings=_defaults,
)
