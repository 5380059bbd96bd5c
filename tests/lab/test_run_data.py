"""Episodes out of a run's folder."""

import numpy as np
import pytest

from kalmanac._envs.track import Track
from kalmanac._lab.run import run
from kalmanac._lab.run_data import run_episodes
from kalmanac._sac.recurrent_sac import RecurrentSAC
from tests.lab.tiny import TINY

CONTINUOUS = TINY.changed(
    {"env": "track", "env_settings": {"horizon": 7}, "evaluations": ("in",), "num_envs": 3,
     "encoder": "memoryless", "total_steps": 60}
)  # fmt: skip


@pytest.mark.parametrize("changes", [{}, {"buffer_size": 30}])
def test_the_replay_of_a_run_comes_back_in_the_environments_units(changes, tmp_path):
    run(CONTINUOUS.changed(changes), tmp_path / "run", events=False)
    found = list(run_episodes(tmp_path / "run"))
    steps = sum(len(one.rewards) for one in found)
    assert steps == 60 if not changes else 10 < steps <= 30
    for one in found:
        assert one.observations.shape == (len(one.rewards) + 1, 1)
        assert one.actions.shape == (len(one.rewards), 1)
        assert not one.terminations.any()
        assert one.truncations.tolist() == [False] * (len(one.rewards) - 1) + [True]
    # estimates go as far as 4: these are no actions in [-1, 1]
    assert max(np.abs(one.actions).max() for one in found) > 2
    model = RecurrentSAC("gru", seed=0, device="cpu")
    model.set_spaces(Track().observation_space, Track().action_space)
    assert model.add_episodes(run_episodes(tmp_path / "run")).episodes == len(found)


def test_a_run_without_its_replay_is_refused(tmp_path):
    run(CONTINUOUS, tmp_path / "run", events=False, keep_checkpoint=False)
    with pytest.raises(ValueError, match="which kept no checkpoint, expected one with its replay"):
        run_episodes(tmp_path / "run")
    with pytest.raises(FileNotFoundError, match=r"folder: got .*, expected one with experiment"):
        run_episodes(tmp_path)
