"""The paper's experiments. A new family is its file and one row here."""

from kalmanac.suites import (
    best_arm,
    best_arm_heatmap,
    dmc,
    dmc_actions,
    dmc_design,
    dmc_noise,
    latent_rollouts,
    novel,
    popgym,
    popgym_ablation,
)
from kalmanac.suites.suite import Preset, Suite

SUITES: dict[str, Suite] = {
    "best-arm": best_arm.SUITE,
    "best-arm-heatmap": best_arm_heatmap.SUITE,
    "latent-rollouts": latent_rollouts.SUITE,
    "dmc": dmc.SUITE,
    "dmc-noise": dmc_noise.SUITE,
    "dmc-design": dmc_design.SUITE,
    "dmc-actions": dmc_actions.SUITE,
    "popgym": popgym.SUITE,
    "popgym-ablation": popgym_ablation.SUITE,
    "novel": novel.SUITE,
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


__all__ = ["PRESETS", "SUITES", "TASKS", "Preset", "Suite", "preset"]
