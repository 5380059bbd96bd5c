"""On a GPU, acting is replayed from a graph, and does what eager acting does."""

import numpy as np
import pytest

from kalmanac._encoders.registry import ENCODERS
from kalmanac._sac.recurrent_sac import RecurrentSAC
from tests.sac.small import small, wandering

pytestmark = pytest.mark.gpu


def played(model: RecurrentSAC, deterministic: bool) -> np.ndarray:
    rng, state, actual = np.random.default_rng(0), None, []
    for step in range(12):
        observation = rng.standard_normal((3, 3)).astype(np.float32)
        starts = rng.random(3) < 0.2 if step else np.ones(3, bool)
        action, state = model.predict(observation, state, starts, deterministic)
        actual.append(action)
    return np.stack(actual)


@pytest.mark.parametrize("encoder", list(ENCODERS))
@pytest.mark.parametrize("deterministic", [True, False])
def test_replayed_actions_are_those_of_eager_acting(encoder: str, deterministic: bool) -> None:
    def make_model() -> RecurrentSAC:
        return small(encoder, wandering(3), device="cuda", normalize_observations=True)

    replayed, eager = make_model(), make_model()
    with eager.eager_acting():
        truth = played(eager, deterministic)
    np.testing.assert_allclose(played(replayed, deterministic), truth, rtol=1e-5, atol=1e-6)
    graphs = list(replayed._policy._asking._recordings.values())
    assert graphs
    assert all(graph._recording is not None for graph in graphs)
    assert not eager._policy._asking._recordings
