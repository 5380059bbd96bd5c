"""Noisy DeepMind Control (paper, section 5.2, Table 1): agents × tasks × noise × seeds."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from kalmanac.envs.dmc import NOISE
from kalmanac.experiment.description import Experiment
from kalmanac.suites.suite import Preset, Suite

AGENTS = ("vssm", "vssm+kf", "vssm+kf-u", "mamba", "gru", "transformer", "memoryless", "oracle")
TASKS = tuple(task for task in NOISE if task != "quadruped-walk")
SEEDS = range(5)
NORMALISED = ("vssm", "vssm+kf", "vssm+kf-u")  # those with an RMSNorm at the end (Table 1)

# the noise ablation: six tasks, several strengths of their own noise (0 and 1 are the paper's)
ABLATED = (
    "finger-spin", "cheetah-run", "pendulum-swingup", "walker-run", "reacher-easy",
    "point_mass-easy",
)  # fmt: skip
STRENGTHS = (0.0, 0.5, 1.0, 2.0)
ABLATED_AGENTS = ("vssm", "vssm+kf", "transformer", "oracle")
MORE_SEEDS = {"pendulum-swingup": range(10)}

# the comparison with model-based agents: noise on observations and on actions
COMPARED = ("cartpole-swingup", "walker-walk", "walker-run", "quadruped-walk")
COMPARED_AGENTS = ("vssm", "vssm+kf", "memoryless")
COMPARED_NOISE = 0.3

# the design ablation: what the Kalman layer could have besides
DESIGNS: Mapping[str, Mapping[str, Any]] = {
    "base": {},
    "process noise": {"input_process_noise": True},
    "variance": {"variance_feature": True},
    "both": {"input_process_noise": True, "variance_feature": True},
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
        batch_size=32,
        context_length=64,
        update_to_data=1.0,
        eval_episodes=16,
    )
    settings = {"norm": True} if agent in NORMALISED else {}
    return shared.changed({"encoder": agent, "encoder_settings": settings})


def runs() -> Iterator[Experiment]:
    """The benchmark: nine tasks."""
    for task in TASKS:
        for agent in AGENTS:
            for seed in SEEDS:
                yield paper(agent, task=task, seed=seed)


def noise_runs() -> Iterator[Experiment]:
    """The noise ablation. Oracle sees no noise: it runs once."""
    for task in ABLATED:
        for agent in ABLATED_AGENTS:
            for strength in STRENGTHS if agent != "oracle" else (0.0,):
                for seed in MORE_SEEDS.get(task, SEEDS):
                    yield paper(agent, task=task, seed=seed).changed(
                        {"noise": strength * NOISE[task]}
                    )


def action_noise_runs() -> Iterator[Experiment]:
    """The comparison with model-based agents."""
    noise = {"noise": COMPARED_NOISE, "action_noise": COMPARED_NOISE}
    for task in COMPARED:
        for agent in COMPARED_AGENTS:
            for seed in SEEDS:
                yield paper(agent, task=task, seed=seed).changed(noise)


def design_runs() -> Iterator[Experiment]:
    """The ablation of the Kalman layer's design."""
    for task in TASKS:
        for label, settings in DESIGNS.items():
            for seed in SEEDS:
                yield paper("vssm+kf", task=task, seed=seed).changed(
                    {"encoder_settings": settings, "label": label}
                )


SUITE = Suite(
    "control under noisy observations: nine tasks of the DeepMind Control suite",
    runs,
    {"dmc": Preset("noisy DeepMind Control, the paper's settings: 1,000,000 steps", paper)},
    {f"dmc/{task}": Preset(f"noise {NOISE[task]}", partial(paper, task=task)) for task in NOISE},
)
NOISE_SUITE = Suite("six of them under more and less noise", noise_runs)
ACTION_NOISE_SUITE = Suite("four tasks with noise on actions too", action_noise_runs)
DESIGN_SUITE = Suite("other designs of the Kalman layer, in nine tasks", design_runs)
