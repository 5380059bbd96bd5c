"""Noisy DeepMind Control (paper, section 5.3, Table 1): agents × nine tasks × seeds.

Three more suites: the noise ablation (section 5.3), the ablation of the Kalman layer's design
(appendix E) and the comparison with model-based agents, with noise on actions too (appendix H).
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from kalmanac._envs.dmc import NOISE
from kalmanac._lab.experiment import Experiment
from kalmanac._settings import ORACLE
from kalmanac._suites.suite import TRANSFORMER_DROPOUT, Preset, Suite

AGENTS = ("vssm", "vssm+kf", "vssm+kf-u", "mamba", "gru", "transformer", "memoryless", "oracle")
TASKS = tuple(task for task in NOISE if task != "quadruped-walk")
SEEDS = range(5)
ENCODER_SETTINGS: dict[str, dict[str, Any]] = {
    **{agent: {"norm": True} for agent in ("vssm", "vssm+kf", "vssm+kf-u")},  # Table 1: an RMSNorm
    "transformer": {"dropout": TRANSFORMER_DROPOUT},
}

NOISE_ABLATION_AGENTS = ("vssm", "vssm+kf", "transformer", "oracle")
NOISE_ABLATION_TASKS = (
    "finger-spin", "cheetah-run", "pendulum-swingup", "walker-run", "reacher-easy",
    "point_mass-easy",
)  # fmt: skip
NOISE_ABLATION_SEEDS = {"pendulum-swingup": range(10)}  # where they are more than SEEDS
NOISE_STRENGTHS = (0.0, 0.5, 1.0, 2.0)  # of the task's own noise; 0 and 1 are the paper's

DESIGNS: tuple[Mapping[str, Any], ...] = (
    {},  # the runs of the benchmark
    {"input_process_noise": True},
    {"variance_feature": True},
    {"input_process_noise": True, "variance_feature": True},
)

ACTION_NOISE_AGENTS = ("vssm", "vssm+kf", "memoryless")
ACTION_NOISE_TASKS = ("cartpole-swingup", "walker-walk", "walker-run", "quadruped-walk")
ACTION_NOISE_SCALE = 0.3  # on observations and on actions


def paper(agent: str = "vssm+kf", *, task: str = "cheetah-run", seed: int = 0) -> Experiment:
    """Table 1, with the task's noise. 8 environments, warm-up and evaluation rhythm are choices."""
    shared = Experiment(
        env=f"dmc/{task}",
        noise=NOISE[task],
        total_steps=1_000_000,
        seed=seed,
        normalize_observations=False,
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


def noise_ablation_runs() -> Iterator[Experiment]:
    """Oracle sees no noise: it runs once, and its runs are those of the benchmark."""
    for task in NOISE_ABLATION_TASKS:
        for agent in NOISE_ABLATION_AGENTS:
            for strength in NOISE_STRENGTHS if agent != ORACLE else (1.0,):
                for seed in NOISE_ABLATION_SEEDS.get(task, SEEDS):
                    noise = {"noise": strength * NOISE[task]}
                    yield paper(agent, task=task, seed=seed).changed(noise)


def design_ablation_runs() -> Iterator[Experiment]:
    """Four designs; reports divide by the benchmark's Oracle, whose runs are named here too."""
    for task in TASKS:
        for seed in SEEDS:
            for design in DESIGNS:
                yield paper("vssm+kf", task=task, seed=seed).changed({"encoder_settings": design})
            yield paper(ORACLE, task=task, seed=seed)


def action_noise_runs() -> Iterator[Experiment]:
    """The rivals of the paper's figure have no printed numbers, and no runs here."""
    noise = {"noise": ACTION_NOISE_SCALE, "action_noise": ACTION_NOISE_SCALE}
    for task in ACTION_NOISE_TASKS:
        for agent in ACTION_NOISE_AGENTS:
            for seed in SEEDS:
                yield paper(agent, task=task, seed=seed).changed(noise)


DMC = Suite(
    "control under noisy observations: nine tasks of the DeepMind Control suite",
    runs,
    {"dmc": Preset("noisy DeepMind Control, the paper's settings: 1,000,000 steps", paper)},
    {f"dmc/{task}": Preset(f"noise {NOISE[task]}", partial(paper, task=task)) for task in NOISE},
)
NOISE_ABLATION = Suite("noisy control under more and less noise: six tasks", noise_ablation_runs)
DESIGN_ABLATION = Suite(
    "noisy control with other designs of the Kalman layer: nine tasks", design_ablation_runs
)
ACTION_NOISE = Suite("noisy control with noise on actions too: four tasks", action_noise_runs)
