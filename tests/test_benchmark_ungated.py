"""The motor whose gaps only a flag tells of is the preset's motor but for that."""

import numpy as np
from gymnasium.vector import SyncVectorEnv

from kalmanac._envs.registry import make_env
from kalmanac._envs.sensors import Corruption
from kalmanac._sac.problem import Problem
from kalmanac._suites.dropout import settings


def test_it_is_the_motor_of_the_preset_but_for_the_word(bench):
    run = settings("vssm+kf", task="motor", dropout=0.5)
    names = ("noise", "delay", "dropout", "dropout_burst", "dropout_flag")
    told = make_env("motor", corruption=Corruption(**{name: getattr(run, name) for name in names}))
    env = bench("ungated").Ungated()
    assert env.observation_space == told.observation_space
    seen, info = env.reset(seed=4)
    reading, known = told.reset(seed=4)
    missing = 0
    for step in range(60):
        np.testing.assert_array_equal(seen, reading)
        np.testing.assert_array_equal(info["privileged"], known["privileged"])
        assert "observed" not in info
        assert seen[-1] == known["observed"]
        missing += not known["observed"]
        action = np.float32([np.sin(step)])
        (seen, *_, info), (reading, *_, known) = env.step(action), told.step(action)
    assert missing > 5


def test_an_agent_is_not_told(bench):
    problem = Problem.of(SyncVectorEnv([bench("ungated").Ungated]), privileged=True)
    assert not problem.sizes.observed
    assert problem.sizes.privileged == 5
