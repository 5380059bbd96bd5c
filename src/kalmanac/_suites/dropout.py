"""Sensors that fail: agents × three tasks × how much is missing, told of it and not × seeds.

Not of the paper. The suite tests a claim of others, that Transformers stand missing readings better
than recurrent and state-space memories (arXiv 2603.04648): a tracking task with a known best
answer, the motor, and one of DeepMind Control. An agent that is told has the flag in its
observation whatever its memory is; a Kalman layer only predicts there, too. The motor's own suite
shares its runs, and adds agents that see everything or remember nothing.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from kalmanac._lab.experiment import Experiment
from kalmanac._suites.suite import TRANSFORMER_DROPOUT, Preset, Suite

AGENTS = ("vssm+kf", "gru", "transformer", "mamba")
MOTOR_AGENTS = ("vssm+kf", "gru", "transformer", "memoryless")
RATES = (0.0, 0.2, 0.5)  # shares of readings that are missing
BURST = 8.0  # steps, on average
NOISE, DELAY = 0.05, 1  # of the motor's readings
STEPS = 100_000
SEEDS = range(3)
CONTROL = "dmc/cartpole-swingup"
TASKS: dict[str, dict[str, Any]] = {
    # an estimate has no later consequences
    "track": {"gamma": 0.0, "ent_coef": 0.01, "learning_rate": 1e-3, "eval_episodes": 64},
    # a simulated motor knows its state, and the critic may see it
    "motor": {
        "gamma": 0.97,
        "noise": NOISE,
        "delay": DELAY,
        "eval_episodes": 32,
        "privileged_critic": True,
    },
    CONTROL: {"eval_episodes": 10},
}
PRESETS = {f"dropout-{task.split('/')[-1]}": task for task in TASKS}
ENCODER_SETTINGS: dict[str, dict[str, Any]] = {"transformer": {"dropout": TRANSFORMER_DROPOUT}}


def settings(
    agent: str = "vssm+kf", *, task: str = "motor", dropout: float = 0.5, told: bool = True,
    seed: int = 0,
) -> Experiment:  # fmt: skip
    """One update for two steps, so that a run takes minutes on a GPU."""
    missing = {
        "dropout": dropout,
        "dropout_burst": BURST if dropout else None,
        "dropout_told": told,
        "dropout_flag": told and dropout > 0,
    }
    shared = Experiment(
        env=task,
        total_steps=STEPS,
        seed=seed,
        normalize_observations=False,
        actor_hidden=(128, 128),
        critic_hidden=(128, 128),
        learning_starts=2_000,
        update_to_data=0.5,
        eval_every=5_000,
    )
    own = {"encoder": agent, "encoder_settings": ENCODER_SETTINGS.get(agent, {})}
    return shared.changed({**own, **missing, **TASKS[task]})


def conditions() -> Iterator[tuple[float, bool]]:
    """How much is missing, and whether the agent is told; where nothing is, there is one."""
    for dropout in RATES:
        yield dropout, True
        if dropout:
            yield dropout, False


def runs() -> Iterator[Experiment]:
    """The shoot-out."""
    for task in TASKS:
        for agent in AGENTS:
            for dropout, told in conditions():
                for seed in SEEDS:
                    yield settings(agent, task=task, dropout=dropout, told=told, seed=seed)


def motor_runs() -> Iterator[Experiment]:
    """The motor alone; Oracle sees everything, whatever is missing."""
    for agent in MOTOR_AGENTS:
        for dropout, told in conditions():
            for seed in SEEDS:
                yield settings(agent, dropout=dropout, told=told, seed=seed)
    for seed in SEEDS:
        yield settings("oracle", dropout=0.0, seed=seed)


DROPOUT = Suite(
    "three tasks whose sensors fail, agents told of it and not (not of the paper)",
    runs,
    {
        name: Preset(
            f"{task}, half of the readings missing: 100,000 steps", partial(settings, task=task)
        )
        for name, task in PRESETS.items()
    },
    in_all=False,
)
MOTOR = Suite(
    "speed control of a motor whose sensors fail (not of the paper)",
    motor_runs,
    {},
    {"motor": Preset("noisy, late and missing readings: 100,000 steps", settings)},
    in_all=False,
)
