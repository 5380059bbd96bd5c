"""From the name of a task to its experiment, and to the folder that a run of it has."""

import difflib
from pathlib import Path

from kalmanac.expect import expect_known
from kalmanac.experiment import AGENTS, Experiment, check_environment
from kalmanac.suites import PRESETS, TASKS, preset


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


def default_folder(task: str, experiment: Experiment, root: Path = Path("runs")) -> Path:
    """Different for different experiments."""
    name = f"{experiment.agent}-seed{experiment.seed}-{experiment.hash}"
    return Path(root, task.replace("/", "-").replace(":", "-"), name)
