"""Tasks that cannot be solved without the image, the mask, or the flag of missing readings."""

from functools import partial

import pytest
from gymnasium.vector import AutoresetMode

from kalmanac._sac.evaluation import evaluate_policy
from kalmanac._sac.recurrent_sac import RecurrentSAC
from tests.envs.kinds import Forbidden, ImageIdentity, LastReading, copies

SETTINGS = {
    "actor_hidden": (32,),
    "critic_hidden": (32,),
    "update_to_data": 0.125,
    "learning_starts": 320,
    "learning_rate": 5e-3,
    "tau": 0.05,
    "ent_coef": 0.1,
    "gamma": 0.5,
    "batch_size": 16,
    "context_length": 12,
    "seed": 0,
    "device": "cpu",
}


def learned(encoder, toy, steps, **settings):
    """The mean return of 64 episodes after learning in eight environments."""
    model = RecurrentSAC(encoder, copies(toy, 8), **SETTINGS | settings)
    model.learn(steps)
    return evaluate_policy(
        model, copies(toy, 16, AutoresetMode.NEXT_STEP), 64, seed=1
    ).mean_reward  # fmt: skip


def test_a_picture_is_read():
    actual = learned("memoryless", ImageIdentity, 1_600, image_channels=(8, 8), image_features=16)
    assert actual >= 0.95 * 8, "chance is 2"


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("objective", ["value", "cross-entropy", "mixed"])
def test_the_best_allowed_action_is_found(inside, objective):
    toy = partial(Forbidden, inside=inside)
    actual = learned("memoryless", toy, 1_200, gamma=0.0, actor_objective=objective)
    assert actual == pytest.approx(toy().best(), rel=0.08), "a forbidden action is an error there"


@pytest.mark.slow
def test_the_last_reading_is_told_from_a_missing_one():
    settings = {"d_state": 16, "raw_step_size": -3.0}
    actual = learned("vssm+kf", LastReading, 8_000, gamma=0.0, encoder_settings=settings)
    most = LastReading().best_untold()
    assert most < 0.85 * 12
    assert actual > most + 0.5, "more than anyone can reach who is not told"
