"""Run folders with made-up numbers, written by the real writer."""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kalmanac._files.heatmap_file import Heatmap, write_heatmap
from kalmanac._files.run_folder import RunFolder
from kalmanac._lab.experiment import Experiment
from kalmanac._report.groups import DMC_NOISE, PAPERS, POPGYM_TASKS
from kalmanac._suites import best_arm

AGENTS = best_arm.AGENTS
HEIGHT = {  # how well a made-up agent does, of 1
    "oracle": 0.95, "vssm+kf": 0.8, "vssm+kf-u": 0.75, "vssm": 0.6, "mamba": 0.65, "gru": 0.7,
    "transformer": 0.55, "memoryless": 0.2,
}  # fmt: skip


def write_run(
    folder: Path, experiment: Experiment, *, height: float | None = None, low: float = 0.0,
    high: float = 1.0, until: float = 1.0, rows_between: int = 0,
    also: Mapping[str, Any] | None = None,
) -> Path:  # fmt: skip
    """A run whose return climbs from `low` towards a share of `high`, noisily.

    Args:
        until: the share of the steps after which it was interrupted.
        rows_between: rows of training metrics between two evaluations.
        also: settings beside those of the experiment.
    """
    rng = np.random.default_rng([experiment.seed, len(folder.name)])
    top = low + (high - low) * (HEIGHT[experiment.agent] if height is None else height)
    total = int(experiment.total_steps * until)
    end = 0
    data = experiment.to_data() | dict(also or {})
    with RunFolder(folder, data, events=False) as run:
        for number in range(1, total // experiment.eval_every + 1):
            step = end = number * experiment.eval_every
            for between in range(rows_between):
                at = step - experiment.eval_every + (between + 1) * experiment.log_every
                run.log(at, TRAINING | {"train/updates": at})
                run.log_time(at, {"time/elapsed": at / 1000, "time/fps": 1000.0})
            share = 1 - math.exp(-6 * step / experiment.total_steps)
            values: dict[str, float] = {}
            for i, place in enumerate(experiment.evaluations):
                noise = rng.normal() * 0.04 * (high - low)
                reward = min(high, low + (top - low) * share * (1 - 0.3 * i) + noise)
                values[f"eval/{place}/mean_reward"] = reward
                values[f"eval/{place}/std_reward"] = 0.1
                values[f"eval/{place}/normalized"] = reward / 10
                values[f"eval/{place}/length"] = 5 + 60 * share + 5 * rng.random()
                values[f"eval/{place}/win_rate"] = 0.5 + 0.4 * share
            run.log(step, values)
            run.log_time(step, {"time/elapsed": step / 1000})
        run.summarize(status="finished" if until == 1.0 else "interrupted", step=end)
    return folder


TRAINING = {
    f"train/{name}": 0.123456789
    for name in (
        "critic_loss", "actor_loss", "entropy", "ent_coef", "q_mean", "q_std", "grad_norm_actor",
        "grad_norm_critic", "gain_mean", "posterior_variance_mean", "target_mean", "reward_mean",
    )
}  # fmt: skip


def folder_name(experiment: Experiment) -> str:
    """Different for different experiments."""
    task = f"{experiment.env}".replace("/", "-")
    return f"{task}/{experiment.agent}-seed{experiment.seed}-{experiment.hash}"


def write_best_arm(
    root: Path, *, agents: Iterable[str] = AGENTS, costs: Iterable[float] = best_arm.COSTS,
    seeds: Iterable[int] = range(2), changes: Mapping[str, Any] | None = None, **how: Any,
) -> list[Path]:  # fmt: skip
    """The paper's Best Arm, evaluated ten times."""
    written = []
    for cost in costs:
        for agent in agents:
            for seed in seeds:
                what = best_arm.paper(agent, cost=cost, seed=seed).changed(
                    {"eval_every": 50_000, **(changes or {})}
                )
                at = root / folder_name(what)
                written.append(write_run(at, what, low=-10.0, high=10.0, **how))
    return written


def write_dmc(
    root: Path, *, tasks: Iterable[str] = tuple(DMC_NOISE)[:9], agents: Iterable[str] = AGENTS,
    seeds: Iterable[int] = range(2), level: float = 1.0, action_noise: float = 0.0,
    encoder_settings: Mapping[str, Any] | None = None, **how: Any,
) -> list[Path]:  # fmt: skip
    """Noisy DeepMind Control, evaluated ten times; `level` multiplies the noise."""
    written = []
    for task in tasks:
        for agent in agents:
            for seed in seeds:
                what = Experiment(env=f"dmc/{task}", eval_every=100_000, seed=seed).changed(
                    {
                        "encoder": agent,
                        "encoder_settings": {**PAPERS.get(agent, {}), **(encoder_settings or {})},
                    }
                )
                noise = {"noise": DMC_NOISE[task] * level, "action_noise": action_noise}
                at = root / f"{folder_name(what)}-{level}-{action_noise}"
                written.append(write_run(at, what, high=1000.0, also=noise, **how))
    return written


def write_popgym(
    root: Path, *, tasks: Iterable[str] = POPGYM_TASKS, agents: Iterable[str] = AGENTS,
    seeds: Iterable[int] = range(2), encoder_settings: Mapping[str, Any] | None = None,
    eval_every: int = 100_000, **how: Any,
) -> list[Path]:  # fmt: skip
    """POPGym, evaluated ten times."""
    written = []
    for task in tasks:
        for agent in agents:
            for seed in seeds:
                what = Experiment(env=f"popgym/{task}", eval_every=eval_every, seed=seed).changed(
                    {
                        "encoder": agent,
                        "encoder_settings": {**PAPERS.get(agent, {}), **(encoder_settings or {})},
                    }
                )
                at = root / folder_name(what)
                written.append(write_run(at, what, low=-1.0, high=1.0, **how))
    return written


def leave_heatmap(folder: Path, size: int = 25) -> None:
    """A heat map as a good agent would leave it."""
    mu, sigma = np.linspace(-0.5, 0.5, size), np.linspace(0, 3, size)
    clear = np.abs(mu)[:, None] / (0.2 + sigma)
    heatmap = Heatmap(
        mu.tolist(),
        sigma.tolist(),
        (1 - 0.5 * np.exp(-8 * clear)).tolist(),
        (1 + 80 * np.exp(-4 * clear)).tolist(),
        episodes=100,
    )
    write_heatmap(folder, heatmap)
