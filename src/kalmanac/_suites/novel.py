"""NoVel: agents × three classic control tasks without velocities × seeds. Not of the paper.

Steps are those of the published numbers of RL Baselines3 Zoo's ppo_lstm; all the rest are the
defaults, but that MountainCar, which actions that are drawn anew at every step hardly ever drive up
its hill, is explored by noise with a memory, and has one update for four steps.
"""

from collections.abc import Iterator
from functools import partial

from kalmanac._lab.experiment import Experiment
from kalmanac._suites.suite import Preset, Suite

AGENTS = ("vssm+kf", "vssm", "mamba", "gru", "transformer", "memoryless", "oracle")
STEPS = {"CartPole": 100_000, "Pendulum": 100_000, "MountainCarContinuous": 300_000}
OTHERWISE = {"MountainCarContinuous": {"exploration_correlation": 0.9, "update_to_data": 0.25}}
SEEDS = range(5)


def settings(agent: str = "vssm+kf", *, task: str = "Pendulum", seed: int = 0) -> Experiment:
    """Evaluated fifty times, 50 episodes each."""
    shared = Experiment(
        env=f"novel/{task}",
        total_steps=STEPS[task],
        seed=seed,
        num_envs=4,
        eval_every=STEPS[task] // 50,
        eval_episodes=50,
    )
    return shared.changed({"encoder": agent, **OTHERWISE.get(task, {})})


def runs() -> Iterator[Experiment]:
    """Three tasks."""
    for task in STEPS:
        for agent in AGENTS:
            for seed in SEEDS:
                yield settings(agent, task=task, seed=seed)


NOVEL = Suite(
    "three classic control tasks without velocities (not of the paper)",
    runs,
    {"novel": Preset("classic control without velocities: 100,000 steps", settings)},
    {
        f"novel/{task}": Preset(f"{steps:,} steps", partial(settings, task=task))
        for task, steps in STEPS.items()
    },
)
