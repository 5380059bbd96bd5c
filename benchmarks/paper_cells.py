"""The runs of the reproduction, in the order in which they are made, as calls of `kalmanac train`.

Within a block the seed comes last: all agents and tasks have seed 0 before any of them has seed 1,
so that what there is can be compared at any time. Nobody chooses seeds: they are 0, 1, 2, ….
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from kalmanac._lab.experiment import Experiment
from kalmanac._settings import as_it_was
from kalmanac._suites.best_arm import COSTS
from kalmanac._suites.best_arm import paper as best_arm
from kalmanac._suites.dmc import TASKS as CONTROL
from kalmanac._suites.dmc import paper as dmc
from kalmanac._suites.popgym import TASKS as MEMORY
from kalmanac._suites.popgym import paper as popgym
from kalmanac._suites.registry import SUITES, preset

# How a GPU is kept busy; `docs/choices.md` says what each changes.
ON_A_GPU: dict[str, dict[str, Any]] = {
    "best-arm": {"overlap": True, "eval_on_device": True},
    "popgym": {"overlap": True},
    "dmc": {"overlap": True},
}
COMPARED = ("vssm+kf", "vssm", "gru")
SIX = (
    "MineSweeperEasy", "MultiarmedBanditEasy", "NoisyPositionOnlyCartPoleHard",
    "NoisyPositionOnlyPendulumHard", "RepeatFirstEasy", "CountRecallEasy",
)  # fmt: skip
WHERE_IT_MATTERS = ("CountRecallEasy", "MineSweeperEasy", "NoisyPositionOnlyCartPoleHard")
TWO = ("cheetah-run", "pendulum-swingup")
PLAIN = {"actor_objective": "value"}  # the paper's text
HALF, SHORT = {"total_steps": 500_000}, {"total_steps": 200_000}
CONTINUOUS = ("dmc", "popgym/NoisyPositionOnlyPendulumHard")


class Cell(NamedTuple):
    """One run: who wants it, where it goes, all but its seed in a word, and all its settings."""

    block: str
    suite: str
    what: str
    experiment: Experiment

    @property
    def name(self) -> str:
        """Letters, digits, dot, hyphen and underscore; different for different cells."""
        return f"{self.suite}.{self.what}-seed{self.experiment.seed}"

    @property
    def updates(self) -> int:
        """That the run makes in all."""
        one = self.experiment
        return int(one.update_to_data * max(one.total_steps - one.learning_starts, 0))

    @property
    def kind(self) -> str:
        """What decides how fast it is."""
        if self.experiment.env.startswith(CONTINUOUS):
            return "continuous"
        return "best-arm" if self.experiment.env == "best-arm" else "discrete"


class Block(NamedTuple):
    """Cells that belong together; `runs` gives those of one seed."""

    name: str
    what: str
    suite: str
    seeds: Iterable[int]
    runs: Callable[[int], Iterator[Experiment]]

    def cells(self) -> Iterator[Cell]:
        """Seed by seed."""
        for seed in self.seeds:
            for one in map(on_a_gpu, self.runs(seed)):
                yield Cell(self.name, self.suite, in_a_word(one), one)


def on_a_gpu(experiment: Experiment) -> Experiment:
    """As it is run there."""
    return experiment.changed(ON_A_GPU[experiment.env.partition("/")[0]])


def bandits(costs: Sequence[float], agents: Sequence[str], **changes: Any) -> Callable[..., Any]:
    """Best Arm at each of these costs."""

    def runs(seed: int) -> Iterator[Experiment]:
        for cost in costs:
            for agent in agents:
                yield best_arm(agent, cost=cost, seed=seed).changed(changes)

    return runs


def memory(tasks: Sequence[str], agents: Sequence[str], **changes: Any) -> Callable[..., Any]:
    """POPGym."""

    def runs(seed: int) -> Iterator[Experiment]:
        for task in tasks:
            for agent in agents:
                yield popgym(agent, task=task, seed=seed).changed(changes)

    return runs


def control(tasks: Sequence[str], agents: Sequence[str], **changes: Any) -> Callable[..., Any]:
    """Noisy DeepMind Control."""

    def runs(seed: int) -> Iterator[Experiment]:
        for task in tasks:
            for agent in agents:
                yield dmc(agent, task=task, seed=seed).changed(changes)

    return runs


def of_suite(name: str, **changes: Any) -> Callable[..., Any]:
    """A suite's own runs."""

    def runs(seed: int) -> Iterator[Experiment]:
        yield from (one.changed(changes) for one in _runs(name) if one.seed == seed)

    return runs


@cache
def _runs(suite: str) -> list[Experiment]:
    return list(SUITES[suite].runs())


def several(*parts: Callable[..., Any]) -> Callable[..., Any]:
    """One after the other."""

    def runs(seed: int) -> Iterator[Experiment]:
        for part in parts:
            yield from part(seed)

    return runs


THREE, FIVE, LATER = range(3), range(5), range(3, 5)
KEPT = ("vssm+kf", "vssm", "memoryless")  # in control
OTHERS = ("vssm+kf-u", "mamba", "transformer")
WEAK_AND_STRONG = ("oracle", "memoryless")
SIX_OF_POPGYM = several(memory(MEMORY, ["vssm+kf"], **HALF), memory(SIX, ["vssm", "gru"], **HALF))
BLOCKS = (
    Block(
        "a", "Best Arm, 500K, costs 0 and 0.1, five agents", "best-arm", FIVE,
        bandits((0.0, 0.1), (*COMPARED, *WEAK_AND_STRONG)),
    ),
    Block(
        "b", "POPGym, 500K of 1M: vssm+kf on twelve tasks, vssm and gru on six", "popgym", THREE,
        SIX_OF_POPGYM,
    ),
    Block(
        "c", "noisy control, 200K of 1M: two tasks, three agents", "dmc", THREE,
        control(TWO, KEPT, **SHORT),
    ),
    Block(
        "c-2", "Oracle in these two tasks, by which scores are divided", "dmc", THREE,
        control(TWO, ["oracle"], **SHORT),
    ),
    Block(
        "plain-1", "the paper's plain objective, Best Arm at cost 0", "best-arm", FIVE,
        bandits((0.0,), ["vssm+kf"], **PLAIN),
    ),
    Block(
        "plain-2", "the paper's plain objective, POPGym, 500K", "popgym", THREE,
        memory(WHERE_IT_MATTERS, ["vssm+kf"], **HALF, **PLAIN),
    ),
    Block(
        "d-1", "Best Arm: the other costs and agents", "best-arm", FIVE,
        several(
            bandits((0.05, 0.5), (*COMPARED, *WEAK_AND_STRONG)), bandits(COSTS, OTHERS)
        ),
    ),
    Block("d-2", "POPGym, 1M", "popgym", THREE, memory(MEMORY, COMPARED)),
    Block(
        "d-3", "noisy control, 200K: the other tasks", "dmc", THREE,
        control([task for task in CONTROL if task not in TWO], KEPT, **SHORT),
    ),
    Block(
        "d-4", "POPGym, 500K: oracle and memoryless", "popgym", THREE,
        memory(MEMORY, WEAK_AND_STRONG, **HALF),
    ),
    Block(
        "d-5", "POPGym, 500K: vssm and gru on the other six, mamba and transformer", "popgym",
        THREE,
        several(
            memory([task for task in MEMORY if task not in SIX], ["vssm", "gru"], **HALF),
            memory(MEMORY, ["mamba", "transformer"], **HALF),
        ),
    ),
    Block(
        "d-6", "noisy control, 200K: the other agents", "dmc", THREE,
        control(CONTROL, ["gru", *OTHERS, "oracle"], **SHORT),
    ),
    Block("d-7", "noise ablation, 200K", "dmc-noise", THREE, of_suite("dmc-noise", **SHORT)),
    Block("d-8", "design ablation, 200K", "dmc-design", THREE, of_suite("dmc-design", **SHORT)),
    Block(
        "d-9", "N × L ablation, 500K", "popgym-ablation", THREE,
        of_suite("popgym-ablation", **HALF),
    ),
    Block(
        "d-10", "noise on observations and actions, 200K", "dmc-actions", THREE,
        of_suite("dmc-actions", **SHORT),
    ),
    Block("d-11", "latent rollouts", "latent-rollouts", FIVE, of_suite("latent-rollouts")),
    Block("d-12", "seeds 3 and 4 of b", "popgym", LATER, SIX_OF_POPGYM),
    Block("d-13", "seeds 3 and 4 of c", "dmc", LATER, control(TWO, KEPT, **SHORT)),
)  # fmt: skip


@cache
def cells() -> Mapping[str, Cell]:
    """Hash of its experiment → the cell, in the queue's order; what two blocks want comes once."""
    found: dict[str, Cell] = {}
    for block in BLOCKS:
        for cell in block.cells():
            found.setdefault(cell.experiment.hash, cell)
    return found


@cache
def usual_of(task: str, agent: str) -> Experiment:
    """The task's preset."""
    return preset(task, task).experiment(agent)


def in_a_word(experiment: Experiment) -> str:
    """All that tells a cell from others of its suite, but for the seed."""
    words = [experiment.agent.replace("+", "-"), *_unusual(experiment)]
    if experiment.env == "best-arm":
        return "-".join([f"cost{experiment.env_settings['cost']:g}", *words])
    return "-".join([experiment.env.partition("/")[2], *words])


def call(experiment: Experiment) -> str:
    """TASK FLAGS of `kalmanac train` that makes this run: what differs from the task's preset."""
    task = experiment.env
    usual = as_it_was(usual_of(task, experiment.agent).to_data())
    words = [task, "--encoder", experiment.agent]
    for name, value in as_it_was(experiment.to_data()).items():
        flag = f"--{name.replace('_', '-')}"
        if name.endswith("_settings"):
            told = {key: x for key, x in value.items() if usual[name].get(key) != x}
            if told:
                words += [flag, *(f"{key}={json.dumps(x)}" for key, x in told.items())]
        elif value != usual[name] or name == "seed":
            words += _words(flag, value)
    return " ".join(words)


def _words(flag: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [flag if value else f"--no-{flag[2:]}"]
    return [flag, *map(str, value if isinstance(value, list) else [value])]


def _unusual(experiment: Experiment) -> Iterator[str]:
    """What tells a cell from others of the same task and agent."""
    usual = usual_of(experiment.env, experiment.agent)
    for name in ("noise", "action_noise", "actor_objective"):
        if (value := getattr(experiment, name)) != getattr(usual, name):
            yield f"{name}-{value:g}" if isinstance(value, float) else str(value)
    for name, value in experiment.encoder_settings.items():
        if usual.encoder_settings.get(name) != value:
            yield name if value is True else f"{name}-{value}"
    if experiment.total_steps != 500_000:
        yield f"{experiment.total_steps // 1000}K"
