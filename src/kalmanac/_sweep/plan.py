"""Which runs a sweep stands for, where each lies, and what it leaves after its training."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from kalmanac._envs.extras import missing
from kalmanac._files.run_reader import find_run_folders, read_experiment, read_summary
from kalmanac._lab.experiment import AGENTS, Experiment
from kalmanac._lab.factory import check_environment
from kalmanac._lab.post_training import PostTraining
from kalmanac._messages import expect_known
from kalmanac._suites.registry import SUITES, default_folder
from kalmanac._suites.suite import QUICK, QUICK_SEEDS, quick, quick_evaluation

EVERYTHING = "all"
FIXED = {"seed": "--seeds", "encoder": "--agents", "env": "--tasks", "privileged": "--agents"}


class Planned(NamedTuple):
    """One run: what is trained, in which folder, what it is evaluated by, who asked for it."""

    experiment: Experiment
    folder: Path
    post_training: tuple[PostTraining, ...] = ()
    suites: tuple[str, ...] = ()

    @property
    def done(self) -> bool:
        """Whether nothing is left to do: it is finished and evaluated, or has diverged."""
        try:
            status = read_summary(self.folder).get("status")
        except (OSError, ValueError):
            return False  # its worker says what is the matter with it
        if status == "finished":
            return all(evaluation.is_left(self.folder) for evaluation in self.post_training)
        return status == "diverged"  # and would do so again


Work = tuple[Planned, ...]  # runs that one worker does at once


@dataclass(frozen=True)
class Selection:
    """What of which suites to run, and what to change about it."""

    suites: Sequence[str]
    preset: Literal["paper", "quick"] = "paper"
    agents: Sequence[str] = ()  # none: all
    tasks: Sequence[str] = ()  # words of which one is in an environment's name; none: all
    seeds: int | None = None  # of each setting the first so many; None: all of the preset
    changes: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for suite in self.suites:
            expect_known("suite", suite, [*SUITES, EVERYTHING])
        if not self.suites:
            raise ValueError(f"suite: got none, expected some of {', '.join(SUITES)}, all")
        for agent in self.agents:
            expect_known("agents", agent, AGENTS)
        for name in self.changes:
            if name in FIXED:
                raise ValueError(f"{name}: got it for a whole sweep, expected {FIXED[name]}")
        if self.seeds is not None and self.seeds < 1:
            raise ValueError(f"seeds: got {self.seeds}, expected at least 1")

    @property
    def names(self) -> list[str]:
        """Return the names of the suites, each once."""
        everything = [name for name, suite in SUITES.items() if suite.in_all]
        return everything if EVERYTHING in self.suites else list(dict.fromkeys(self.suites))


def make_plan(selection: Selection, root: Path) -> list[Planned]:
    """Plan every run once, however many suites it is in.

    A run that lies somewhere below `root` already keeps its folder, whatever that is called.
    """
    root = root.resolve()
    existing = existing_runs(root)
    plan: dict[str, Planned] = {}
    for suite in selection.names:
        for run, evaluations in select_runs(selection, suite):
            run_hash = run.hash
            before = plan.get(run_hash)
            if before is None:
                folder = existing.get(run_hash) or default_folder(run.env, run, root)
                plan[run_hash] = Planned(run, folder, evaluations, (suite,))
            else:
                both = tuple(dict.fromkeys((*before.post_training, *evaluations)))
                plan[run_hash] = before._replace(post_training=both, suites=(*before.suites, suite))
    if not plan:
        raise ValueError(
            f"agents, tasks: got {' '.join([*selection.agents, *selection.tasks])}, "
            f"expected some that {', '.join(selection.names)} has runs of"
        )
    return list(plan.values())


def select_runs(
    selection: Selection, suite: str
) -> Iterator[tuple[Experiment, tuple[PostTraining, ...]]]:
    """Yield the selected runs of one suite, each with its evaluations after the training."""
    short = selection.preset == QUICK
    seeds = selection.seeds or (QUICK_SEEDS if short else None)
    taken: Counter[str] = Counter()
    for run in SUITES[suite].runs():
        wanted = not selection.agents or run.agent in selection.agents
        if not wanted or not _named(run.env, selection.tasks):
            continue
        if seeds is not None:
            taken[setting := setting_of(run)] += 1
            if taken[setting] > seeds:
                continue
        evaluations = SUITES[suite].post_training(run)
        if short:
            run, evaluations = quick(run), tuple(map(quick_evaluation, evaluations))
        yield run.changed(selection.changes) if selection.changes else run, evaluations


def setting_of(experiment: Experiment) -> str:
    """Return a hash that is the same for runs that differ by their seeds alone."""
    return experiment.changed({"seed": 0}).hash


def batches(plan: Iterable[Planned], *, together: bool) -> Iterator[Work]:
    """Group runs as workers take them; `together`, all seeds of a setting are one work."""
    if not together:
        yield from ((planned,) for planned in plan)
        return
    settings: dict[str, list[Planned]] = {}
    for planned in plan:
        settings.setdefault(setting_of(planned.experiment), []).append(planned)
    yield from map(tuple, settings.values())


def refuse_missing(plan: Iterable[Planned]) -> None:
    """Raise ModuleNotFoundError before any run begins if an environment cannot be made here."""
    extras = {check_environment(planned.experiment).extra for planned in plan}
    for extra in sorted(filter(None, extras)):
        if (trouble := missing(extra)) is not None:
            raise ModuleNotFoundError(trouble)


def existing_runs(root: Path) -> dict[str, Path]:
    """Find the runs at and below `root` by their hashes; of two, the finished one."""
    folders: dict[str, Path] = {}
    for path in find_run_folders(root) if root.is_dir() else ():
        with suppress(OSError, ValueError, TypeError):  # not ours, or of another version
            run_hash = Experiment.from_data(read_experiment(path)).hash
            if run_hash not in folders or read_summary(path).get("status") == "finished":
                folders[run_hash] = path
    return folders


def _named(env: str, words: Sequence[str]) -> bool:
    return not words or any(word in env for word in words)
