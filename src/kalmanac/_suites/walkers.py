"""Walkers with positions or velocities alone: agents × eight tasks of MuJoCo × seeds.

Not of the paper. PyBullet's walkers, which have published numbers, are presets and no suite: 1.5
million steps each.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from kalmanac._envs.walkers import TASKS
from kalmanac._lab.experiment import Experiment
from kalmanac._suites.suite import TRANSFORMER_DROPOUT, Preset, Suite

AGENTS = ("vssm+kf", "gru", "memoryless", "oracle")
SEEDS = range(3)
STEPS = {"mujoco": 300_000, "bullet": 1_500_000}  # the latter as published
# of the memory, beside the observation: as in pomdp-baselines, whose numbers are published
INPUTS: dict[str, Any] = {"previous_action": True, "previous_reward": True}
ENCODER_SETTINGS: dict[str, dict[str, Any]] = {
    **{agent: {"norm": True} for agent in ("vssm", "vssm+kf", "vssm+kf-u")},
    "transformer": {"dropout": TRANSFORMER_DROPOUT},
}


def settings(agent: str = "vssm+kf", *, task: str = "mujoco/Hopper-P", seed: int = 0) -> Experiment:
    """Speeds and angles have other sizes: observations are normalized, as by default."""
    shared = Experiment(
        env=task,
        total_steps=STEPS[task.partition("/")[0]],
        seed=seed,
        learning_starts=5_000,
        update_to_data=0.5,
        eval_every=10_000,
        eval_episodes=10,
        **INPUTS,
    )
    own = ENCODER_SETTINGS.get(agent, {})
    return shared.changed({"encoder": agent, "encoder_settings": own})


def runs() -> Iterator[Experiment]:
    """MuJoCo's four machines, positions or velocities."""
    for task in TASKS:
        if task.startswith("mujoco/"):
            for agent in AGENTS:
                for seed in SEEDS:
                    yield settings(agent, task=task, seed=seed)


WALKERS = Suite(
    "MuJoCo's walkers with positions or velocities alone (not of the paper)",
    runs,
    {"walkers": Preset("walkers with positions or velocities alone: 300,000 steps", settings)},
    {
        task: Preset(f"{STEPS[task.partition('/')[0]]:,} steps", partial(settings, task=task))
        for task in TASKS
    },
    in_all=False,
)
