"""Noisy DeepMind Control (paper, section 5.3, Table 1): agents × nine tasks × seeds."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from kalmanac._envs.dmc import NOISE
from kalmanac._lab.experiment import Experiment
from kalmanac._suites.suite import TRANSFORMER_DROPOUT, Preset, Suite

AGENTS = ("vssm", "vssm+kf", "vssm+kf-u", "mamba", "gru", "transformer", "memoryless", "oracle")
TASKS = tuple(task for task in NOISE if task != "quadruped-walk")
SEEDS = range(5)
ENCODER_SETTINGS: dict[str, dict[str, Any]] = {
    **{agent: {"norm": True} for agent in ("vssm", "vssm+kf", "vssm+kf-u")},  # Table 1: an RMSNorm
    "transformer": {"dropout": TRANSFORMER_DROPOUT},
}


def paper(agent: str = "vssm+kf", *, task: str = "cheetah-run", seed: int = 0) -> Experiment:
    """Table 1, with the task's noise. 8 environments, warm-up and evaluation rhythm are choices."""
    shared = Experiment(
        env=f"dmc/{task}",
        noise=NOISE[task],
        total_steps=1_000_000,
        seed=seed,
        actor_hidden=(256, 256),
        critic_hidden=(256, 256),
        learning_starts=5_000,
        batch_size=32,
        context_length=64,
        update_to_data=1.0,
        eval_episodes=16,
    )
    settings = ENCODER_SETTINGS.get(agent, {})
    return shared.changed({"encoder": agent, "encoder_settings": settings})


def runs() -> Iterator[Experiment]:
    """The benchmark: nine tasks."""
    for task in TASKS:
        for agent in AGENTS:
            for seed in SEEDS:
                yield paper(agent, task=task, seed=seed)


SUITE = Suite(
    "control under noisy observations: nine tasks of the DeepMind Control suite",
    runs,
    {"dmc": Preset("noisy DeepMind Control, the paper's settings: 1,000,000 steps", paper)},
    {f"dmc/{task}": Preset(f"noise {NOISE[task]}", partial(paper, task=task)) for task in NOISE},
)
