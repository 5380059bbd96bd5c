"""Best Arm Identification (paper, section 5.2, Table 1): agents × costs × seeds, and a short form.

Ask for samples of N(μ, σ²), each at a price, and then decide whether μ is above or below zero.
The heat maps (figure 5) add an evaluation to the runs where asking is free; the latent rollouts
(figure 6) train agents with two channels, which can be drawn.
"""

from collections.abc import Iterator
from typing import Any

from kalmanac._lab.experiment import Experiment
from kalmanac._lab.post_training import (
    AdversarialEpisode,
    ExampleEpisodes,
    GridOfBandits,
    PostTraining,
)
from kalmanac._settings import ORACLE
from kalmanac._suites.suite import TRANSFORMER_DROPOUT, Preset, Suite

AGENTS = ("vssm", "vssm+kf", "vssm+kf-u", "mamba", "gru", "transformer", "memoryless", ORACLE)
COSTS = (0.0, 0.05, 0.1, 0.5)  # a choice: the paper says "increasing costs"
SEEDS = range(5)
ENCODER_SETTINGS: dict[str, dict[str, Any]] = {
    "transformer": {"feedforward": 128, "dropout": TRANSFORMER_DROPOUT}
}
SHORTENED = "shortened"
ROLLOUT_AGENTS = ("vssm", "vssm+kf")
ROLLOUT_CHANNELS = 2  # N


def paper(agent: str = "vssm+kf", *, cost: float = 0.0, seed: int = 0) -> Experiment:
    """Table 1. 8 environments, tau, the warm-up and the evaluation's rhythm are choices.

    An agent that has learned to ask for ever sees no time-out before its environments have taken
    1000 steps each, and Q(ask) falls only as fast as the target network follows: with 64
    environments and tau 0.005 even the Oracle asks until the time is up for some 50,000 steps.
    Oracle alone has normalized observations: a posterior's mean and standard deviation, less than
    0.1 after many questions, are too small as they come, and the critic would not see that a
    decision is safe by then. Samples are of the order of 1.
    Adam's betas are such that no step is longer than the learning rate, (1 - β₁) / √(1 - β₂) = 1.
    """
    shared = Experiment(
        env="best-arm",
        env_settings={"cost": cost},
        total_steps=500_000,
        num_envs=8,
        seed=seed,
        normalize_observations=agent == ORACLE,
        tau=0.02,
        average_span=0.25,
        adam_betas=(0.95, 0.9975),
        actor_hidden=(128,),
        critic_hidden=(256,),
        ent_coef=0.1,
        learning_starts=5_000,
        batch_size=64,
        context_length=256,
        update_to_data=0.25,
        eval_episodes=100,
        evaluations=("in", "out"),
    )
    settings = ENCODER_SETTINGS.get(agent, {})
    return shared.changed({"encoder": agent, "encoder_settings": settings})


def shortened(agent: str = "vssm+kf", *, seed: int = 0) -> Experiment:
    """Not the paper's task: at most 100 questions, and settings for minutes instead of hours.

    Values travel along 100 steps instead of 1000, and fast. What is to come counts less (gamma),
    and entropy hardly pays (ent_coef): with the paper's values, asking for ever is worth as much as
    a decision at first, and agents that learn within minutes ask until the time is up.
    """
    return paper(agent, cost=0.02, seed=seed).changed(
        {
            "env_settings": {"horizon": 100},
            "label": SHORTENED,
            "total_steps": 24_000,
            "average_span": None,
            "adam_betas": (0.9, 0.999),
            "learning_starts": 2_000,
            "learning_rate": 1e-3,
            "gamma": 0.97,
            "tau": 0.03,
            "ent_coef": 0.03,
            "context_length": 64,
            "normalize_observations": True,
            "eval_every": 4_000,
            "eval_episodes": 400,
            "evaluations": ("in",),
        }
    )


def runs() -> Iterator[Experiment]:
    """Every run behind the paper's figures of returns, lengths and training curves."""
    for cost in COSTS:
        for agent in AGENTS:
            for seed in SEEDS:
                yield paper(agent, cost=cost, seed=seed)


def heatmap_runs() -> Iterator[Experiment]:
    """The runs of `best-arm` with cost 0: eight agents."""
    for agent in AGENTS:
        for seed in SEEDS:
            yield paper(agent, seed=seed)


def rollout_runs() -> Iterator[Experiment]:
    """Best Arm where asking is free (a choice: the paper does not name the cost)."""
    for agent in ROLLOUT_AGENTS:
        for seed in SEEDS:
            channels = {"encoder_settings": {"d_state": ROLLOUT_CHANNELS}}
            yield paper(agent, seed=seed).changed(channels)


def example_episodes(experiment: Experiment) -> tuple[PostTraining, ...]:
    """The paper's two example episodes, where asking is free."""
    return (ExampleEpisodes(),) if experiment.env_settings["cost"] == 0 else ()


def bandit_grid(experiment: Experiment) -> tuple[PostTraining, ...]:
    """25 × 25 bandits, 100 episodes each."""
    return (GridOfBandits(),)


def adversarial_episode(experiment: Experiment) -> tuple[PostTraining, ...]:
    """The episode whose first two samples mislead."""
    return (AdversarialEpisode(),)


BEST_ARM = Suite(
    "is the mean of noisy samples above zero? Ask, at a price, or decide",
    runs,
    {
        "best-arm": Preset("the paper's task and settings: 500,000 steps", paper),
        "best-arm-demo": Preset(
            f"{SHORTENED}: at most 100 questions at a cost of 0.02; learns within minutes",
            shortened,
        ),
    },
    post_training=example_episodes,
)
HEATMAP = Suite(
    "heat maps of win rate and length over 625 bandits", heatmap_runs, post_training=bandit_grid
)
LATENT_ROLLOUTS = Suite(
    "ways through a latent space of two channels", rollout_runs, post_training=adversarial_episode
)
