"""The suites of experiments by name, their presets, and where a run of a task starts from.

A new family is its file and one row here.
"""

import difflib
from pathlib import Path

from kalmanac._lab.experiment import AGENTS, Experiment
from kalmanac._lab.factory import check_environment
from kalmanac._messages import expect_known
from kalmanac._suites import best_arm, dmc, dropout, novel, popgym, walkers
from kalmanac._suites.suite import Preset, Suite

SUITES: dict[str, Suite] = {
    "best-arm": best_arm.BEST_ARM,
    "best-arm-heatmap": best_arm.HEATMAP,
    "latent-rollouts": best_arm.LATENT_ROLLOUTS,
    "dmc": dmc.DMC,
    "dmc-noise": dmc.NOISE_ABLATION,
    "dmc-design": dmc.DESIGN_ABLATION,
    "dmc-actions": dmc.ACTION_NOISE,
    "popgym": popgym.POPGYM,
    "popgym-ablation": popgym.SIZE_ABLATION,
    "popgym-all": popgym.POPGYM_ALL,
    "novel": novel.NOVEL,
    "walkers": walkers.WALKERS,
    "motor": dropout.MOTOR,
    "dropout": dropout.DROPOUT,
}
"""The paper's experiments, and some more, by name. A suite of your own may be added.

Examples:
    >>> from kalmanac import SUITES
    >>> SUITES["popgym"].summary
    'twelve tasks that need memory'
    >>> len(list(SUITES["popgym"].runs()))
    480
"""
PRESETS: dict[str, Preset] = {
    name: preset for suite in SUITES.values() for name, preset in suite.presets.items()
}
"""Named starting points, as `kalmanac train` takes them.

Examples:
    >>> from kalmanac import PRESETS
    >>> experiment = PRESETS["best-arm"].experiment("vssm+kf")
    >>> experiment.env, experiment.total_steps
    ('best-arm', 500000)
"""
TASKS: dict[str, Preset] = {
    env: preset for suite in SUITES.values() for env, preset in suite.tasks.items()
}


def preset(name: str, env: str | None = None) -> Preset:
    """The preset `name`; where its family has settings of their own for `env`, those."""
    for suite in SUITES.values():
        if name in suite.presets:
            return suite.tasks.get(env or "", suite.presets[name])
    return TASKS[name]


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
