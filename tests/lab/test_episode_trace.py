import numpy as np

from kalmanac._lab.episode_trace import ObservationTrace
from tests.sac.reusing import Closed, vector


class OneInfo(Closed):
    """Tells the true state in one array, filled again at every step."""

    def __init__(self, inside):
        super().__init__(inside)
        self._truth = np.zeros((1, 2), np.float32)

    def reset(self, *, seed=None, options=None):
        observation, infos = super().reset(seed=seed, options=options)
        return observation, self._shared(infos)

    def step(self, actions):
        *outcome, infos = super().step(actions)
        return *outcome, self._shared(infos)

    def _shared(self, infos):
        self._truth[:] = infos["privileged"]
        return infos | {"privileged": self._truth}


def test_true_states_are_written_down_as_they_were():
    env = vector("numbers", 1, "SameStep", reuses=True)
    env.envs[0]._episode = 2  # the next one lasts four steps
    trace = ObservationTrace(OneInfo(env))
    trace.reset()
    for _ in range(4):
        trace.step(np.zeros(1, np.int64))
    arrays = trace.arrays()
    assert arrays["truth"].tolist() == [[1, 3], [2, 3], [3, 3], [4, 3]]
    assert arrays["observation"][:, 0].tolist() == [1, 2, 3, 4]
    assert arrays["reward"].tolist() == [31, 32, 33, 34]
