"""What each run is: a task of the paper or another one, an agent, and the seeds that go together.

Runs are one group where they differ by the seed alone. Environment, its settings, encoder, its
settings, privileged and label make the name; runs of one name that differ in anything else are kept
apart as variants, so that nothing is averaged that was not trained alike.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kalmanac._files.json import expect_number
from kalmanac._files.run_reader import EXPERIMENT
from kalmanac._messages import one_line
from kalmanac._report.published import popgym_table
from kalmanac._report.runs import Run
from kalmanac._settings import NEUTRAL, agent_of

BEST_ARM, DMC, POPGYM, OTHER = "best-arm", "dmc", "popgym", "other"

# The paper's nine tasks in its order, the noise of their observations, and one of appendix H.
DMC_NOISE = {
    "finger-spin": 0.3,
    "cheetah-run": 0.3,
    "pendulum-swingup": 0.1,
    "walker-run": 0.3,
    "reacher-easy": 0.3,
    "point_mass-easy": 0.1,
    "cartpole-swingup": 0.3,
    "ball_in_cup-catch": 0.3,
    "walker-walk": 0.3,
    "quadruped-walk": 0.3,
}
POPGYM_TASKS = tuple(popgym_table().scores)

# Of the paper's legend, in its order; whoever else is there comes after.
AGENT_NAMES = {
    "vssm": "vSSM",
    "vssm+kf": "vSSM+KF",
    "vssm+kf-u": "vSSM+KF-u",
    "mamba": "Mamba",
    "gru": "GRU",
    "transformer": "vTransformer",
    "oracle": "Oracle",
    "memoryless": "Memoryless",
}
NAMED = (
    "env", "env_settings", "encoder", "encoder_settings", "privileged", "label", "seed",
    *NEUTRAL,
)  # fmt: skip
# Of encoders: a run of the paper's tasks with another value is a variant of the agent.
PAPERS: Mapping[str, Mapping[str, Any]] = {"transformer": {"dropout": 0.1}}
UNSAID = "not said"  # by a run of another version
ALWAYS: Mapping[str, Mapping[str, float]] = {  # numbers that a family's figures go by
    BEST_ARM: {"cost": 0.0},
    DMC: {"noise": 0.0, "action_noise": 0.0},
}
MOST_OF_A_LEVEL = 1e30
WORDS, LONG = 40, 160  # characters of a name, and of several, in figures and tables
NO_CONDITION = ("task", "truth")  # settings of an environment that do not change its task
HARMLESS = ("log_every", "evaluations")  # decide what is written, not what is learned or scored


@dataclass(frozen=True)
class Group:
    """One agent in one task: the runs of all its seeds. `variant` is empty for the usual one."""

    family: str
    task: str
    conditions: tuple[tuple[str, Any], ...]  # settings of the environment, by name
    label: str
    agent: str
    variant: str
    runs: tuple[Run, ...]

    @property
    def main(self) -> bool:
        """Whether the paper's figures show it under the agent's bare name."""
        return not self.variant

    @property
    def encoder_settings(self) -> Mapping[str, Any]:
        """The encoder's settings, the same for all runs."""
        return self.runs[0].experiment["encoder_settings"]

    @property
    def task_title(self) -> str:
        """The task with its conditions and its label."""
        parts = [self.task, *(f"{name} {_short(value)}" for name, value in self.conditions)]
        return one_line(", ".join(parts), LONG) + (f" ({self.label})" if self.label else "")

    @property
    def agent_title(self) -> str:
        """The agent as the paper's legend has it, with its variant and its label."""
        marks = [mark for mark in (self.variant, self.label) if mark]
        return agent_name(self.agent) + (f" ({', '.join(marks)})" if marks else "")

    def condition(self, name: str, default: Any = None) -> Any:
        """One setting of the environment."""
        return dict(self.conditions).get(name, default)


def agent_name(agent: str) -> str:
    """The agent's name in the paper's legend."""
    return AGENT_NAMES.get(agent, agent)


def agent_order(agent: str) -> tuple[int, str]:
    """A key that sorts agents as the paper's legend does."""
    known = list(AGENT_NAMES)
    return (known.index(agent) if agent in known else len(known), agent)


def make_groups(runs: Sequence[Run], notices: list[str]) -> list[Group]:
    """All groups, in the paper's order; variants are named in `notices`."""
    alike: dict[str, list[Run]] = defaultdict(list)
    for run in _described(runs, notices):
        named = {k: v for k, v in run.experiment.items() if k in NAMED and k != "seed"}
        alike[json.dumps(named, sort_keys=True)].append(run)
    known = [run for same in alike.values() for run in same]
    differing = _differing_settings(known)
    groups = [group for same in alike.values() for group in _variants(same, differing, notices)]
    return sorted(groups, key=_order)


def _described(runs: Sequence[Run], notices: list[str]) -> Iterator[Run]:
    """Yield the runs whose conditions figures can show; name the others."""
    for run in runs:
        try:
            family, _ = family_and_task(run.experiment)
            for name, value in _conditions(family, run.experiment):
                if name in ALWAYS.get(family, {}):
                    expect_number(name, value)
                    if not abs(value) < MOST_OF_A_LEVEL:
                        raise ValueError(f"{name}: got {value}, expected less in size")
        except ValueError as error:
            notices.append(f"{run.name}: left out: {EXPERIMENT}: {error}")
        else:
            yield run


def family_and_task(experiment: Mapping[str, Any]) -> tuple[str, str]:
    """The family of the paper that an environment belongs to, and the task's name in it."""
    env, settings = experiment["env"], experiment["env_settings"]
    if env == BEST_ARM:
        return BEST_ARM, BEST_ARM
    full_name = f"{env} {settings.get('task', '')}"
    for family, tasks in ((POPGYM, POPGYM_TASKS), (DMC, tuple(DMC_NOISE))):
        for task in sorted(tasks, key=len, reverse=True):
            if task in full_name or task.replace("_", "-") in full_name.replace("_", "-"):
                return family, task
    return OTHER, one_line(env, WORDS)


def _conditions(family: str, experiment: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Settings of the environment, and how it is corrupted; what figures go by is always there."""
    corruption = {
        name: experiment[name]
        for name, usual in NEUTRAL.items()
        if experiment.get(name, usual) != usual
    }
    settings = {**ALWAYS.get(family, {}), **experiment["env_settings"], **corruption}
    return tuple((k, _plain(v)) for k, v in sorted(settings.items()) if k not in NO_CONDITION)


def _agent(experiment: Mapping[str, Any]) -> str:
    encoder = one_line(experiment["encoder"], WORDS)
    return agent_of(encoder, experiment.get("privileged", False))


def _differing_settings(runs: Sequence[Run]) -> dict[tuple[str, str], set[str]]:
    """The encoder's settings that differ between runs, for each family and agent."""
    by_agent: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for run in runs:
        family, _ = family_and_task(run.experiment)
        by_agent[family, _agent(run.experiment)].append(run.experiment["encoder_settings"])
    return {
        key: {
            name
            for name in {name for settings in all_settings for name in settings}
            if len({json.dumps(settings.get(name)) for settings in all_settings}) > 1
        }
        for key, all_settings in by_agent.items()
    }


def _variants(
    runs: list[Run], differing: Mapping[tuple[str, str], set[str]], notices: list[str]
) -> list[Group]:
    """Runs of one name, split where anything but the seed differs."""
    split: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        rest = {k: v for k, v in run.experiment.items() if k not in (*NAMED, *HARMLESS)}
        split[json.dumps(rest, sort_keys=True)].append(run)
    usual, *others = sorted(split, key=lambda key: (-len(split[key]), split[key][0].name))
    experiment = runs[0].experiment
    family, task = family_and_task(experiment)
    agent = _agent(experiment)
    papers = PAPERS.get(agent, {}) if family != OTHER else {}
    settings = experiment["encoder_settings"]
    own = {
        name: value
        for name, value in settings.items()
        if (value != papers[name] if name in papers else name in differing[family, agent])
    }
    unlike = {name: value for name, value in own.items() if name in papers}
    groups = []
    for key in (usual, *others):
        base, mine = json.loads(usual), json.loads(key)
        other = {
            name: mine.get(name, UNSAID)
            for name in {**base, **mine}
            if _text(mine.get(name, UNSAID)) != _text(base.get(name, UNSAID))
        }
        groups.append(
            Group(
                family=family,
                task=task,
                conditions=_conditions(family, experiment),
                label=one_line(experiment.get("label", ""), WORDS),
                agent=agent,
                variant=_settings_text({**own, **other}),
                runs=tuple(sorted(split[key], key=lambda run: run.seed)),
            )
        )
        if family != OTHER and (other or unlike):
            usual_ones = f"the usual {_runs(split[usual])}" if other else "the paper's"
            notices.append(
                f"{groups[-1].task_title}: {_runs(split[key])} of {agent_name(agent)} with "
                f"{_settings_text({**unlike, **other})} kept apart from {usual_ones}: on the page "
                "and in the tables, not in the paper's figures"
            )
    return groups


def _order(group: Group) -> Any:
    families = [BEST_ARM, DMC, POPGYM, OTHER]
    tasks = [*DMC_NOISE, *POPGYM_TASKS]
    place = tasks.index(group.task) if group.task in tasks else len(tasks)
    where = (families.index(group.family), group.label, place, group.task, str(group.conditions))
    return (*where, agent_order(group.agent), group.variant)


def _runs(runs: Sequence[Run]) -> str:
    return f"{len(runs)} run{'s' * (len(runs) != 1)}"


def _settings_text(settings: Mapping[str, Any]) -> str:
    return one_line(", ".join(_setting_text(*item) for item in settings.items()), LONG)


def _setting_text(name: str, value: Any) -> str:
    name = one_line(name, WORDS)
    return name if value is True else f"{name}={_short(value)}"


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else one_line(value, WORDS)


def _plain(value: Any) -> Any:
    """What can be compared and looked up: lists as tuples, settings within settings as text."""
    if isinstance(value, dict):
        return _text(value)
    return tuple(map(_plain, value)) if isinstance(value, list) else value


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def labels(groups: Sequence[Group]) -> list[str]:
    """All labels, the empty one first."""
    return sorted(Counter(group.label for group in groups))
