"""The adversarial episode: two large positive samples of a bandit with a negative mean."""

import numpy as np
import pytest

from kalmanac.envs import ASK, BestArm, BestArmVector
from kalmanac.envs.adversarial import LARGE, MU, adversarial_seed, adversarial_settings


def first_two(seed):
    env = BestArm(**adversarial_settings())
    one, info = env.reset(seed=seed)
    two, *_ = env.step(np.int64(ASK))
    return info["mu"], one[0], two[0]


@pytest.mark.parametrize("start", [0, 58])
def test_the_first_seed_whose_samples_mislead(start):
    seed = adversarial_seed({"cost": 0.1}, start)
    mu, *samples = first_two(seed)
    assert mu == MU < 0
    assert min(samples) >= LARGE
    assert all(min(first_two(earlier)[1:]) < LARGE for earlier in range(start, seed))


def test_the_vector_environment_gives_the_same_samples():
    seed = adversarial_seed({})
    env = BestArmVector(1, **adversarial_settings())
    one, _ = env.reset(seed=seed)
    two, *_ = env.step([ASK])
    np.testing.assert_array_equal([one[0, 0], two[0, 0]], first_two(seed)[1:])
