"""Toy problems are learned: by every encoder where no memory is needed, else by those with one.

Learning rates, step sizes and noises are the tests' own, so that seconds are enough.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from kalmanac._encoders.registry import ENCODERS, encoder_settings
from kalmanac._sac.evaluation import evaluate_policy
from kalmanac._sac.recurrent_sac import RecurrentSAC
from tests.envs.toys import Identity, NoisyIntegrator, Reference, RepeatFirst

SETTINGS: dict[str, Any] = {
    "actor_hidden": (32,),
    "critic_hidden": (32,),
    "update_to_data": 0.125,
    "normalize_observations": False,  # random actions lead far away: see findings
    "learning_starts": 320,
    "gamma": 0.5,
    "seed": 0,
    "device": "cpu",
}


@dataclass(frozen=True)
class Task:
    toy: Callable[[], Any]
    steps: int
    settings: dict[str, Any]
    encoder: dict[str, Any]  # settings of encoders that have them

    @property
    def reference(self) -> Reference:
        return self.toy().reference()


TASKS = {
    "identity": Task(
        Identity,
        1280,
        {"learning_rate": 5e-3, "tau": 0.05, "ent_coef": 0.1, "batch_size": 32,
         "context_length": 16},
        {"raw_step_size": -3.0},
    ),
    "repeat first": Task(
        partial(RepeatFirst, length=6, scored=3),
        2000,
        {"learning_rate": 5e-3, "tau": 0.05, "ent_coef": 0.1, "batch_size": 64,
         "context_length": 6},
        {"raw_step_size": -3.0, "process_noise": 1e-3},
    ),
    "noisy integrator": Task(
        partial(NoisyIntegrator, noise=0.3, drift=0.9),
        3000,
        {"learning_rate": 1e-2, "tau": 0.1, "ent_coef": 0.02, "batch_size": 16,
         "context_length": 20},
        {"raw_step_size": -3.0, "process_noise": 0.1},
    ),
}  # fmt: skip


def encoders(*quick: str, with_memory: bool) -> list[Any]:
    """The rows of the table; all but `quick` ones are slow tests: together they take minutes."""
    names = [name for name in ENCODERS if not (with_memory and name == "memoryless")]
    return [n if n in quick else pytest.param(n, marks=pytest.mark.slow) for n in names]


@cache
def learned(name: str, encoder: str) -> float:
    """The mean return of 96 episodes after learning in eight environments."""
    task = TASKS[name]
    small = {"d_state": 16, "feedforward": 32, **task.encoder}
    small = {name: value for name, value in small.items() if name in encoder_settings(encoder)}
    settings = SETTINGS | task.settings
    if encoder == "transformer":  # attention with its norm behind it takes smaller steps
        settings["learning_rate"] = 5e-3
    train = SyncVectorEnv([task.toy] * 8, autoreset_mode=AutoresetMode.SAME_STEP)
    test = SyncVectorEnv([task.toy] * 16, autoreset_mode=AutoresetMode.NEXT_STEP)
    model = RecurrentSAC(encoder, train, encoder_settings=small, **settings)
    model.learn(task.steps * 5 // 3 if encoder == "mamba" else task.steps)  # it is slower
    return evaluate_policy(model, test, 96, seed=1).mean_reward


@pytest.mark.parametrize("encoder", encoders("memoryless", with_memory=False))
def test_identity(encoder):
    assert learned("identity", encoder) >= 0.95 * TASKS["identity"].reference.memory


@pytest.mark.parametrize("encoder", encoders(with_memory=True))
def test_repeat_first_needs_memory(encoder):
    reference = TASKS["repeat first"].reference
    forgetful = learned("repeat first", "memoryless")
    assert forgetful == pytest.approx(reference.memoryless, abs=0.4), "it does what can be done"
    margin = 0.7 * (reference.memory - reference.memoryless)
    assert learned("repeat first", encoder) > forgetful + margin


@pytest.mark.parametrize("encoder", encoders("vssm+kf", with_memory=True))
def test_noisy_integrator_needs_memory(encoder):
    reference = TASKS["noisy integrator"].reference
    forgetful = learned("noisy integrator", "memoryless")
    assert 1.3 * reference.memoryless < forgetful < 0.9 * reference.memoryless
    remembering = learned("noisy integrator", encoder)
    assert remembering > 0.85 * reference.memoryless, "better than anyone without memory"
