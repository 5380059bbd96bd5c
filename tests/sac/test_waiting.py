"""On a GPU, a vector step and its updates make the host wait for actions, and for nothing else."""

import pytest
import torch

from kalmanac._envs.best_arm import BestArmVector
from kalmanac._sac.loop import TrainingLoop
from tests.sac.small import small
from tests.waiting import never_waiting

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype"),
]


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("normalize", [False, True])
def test_once_recorded_nothing_waits_for_the_device(overlap: bool, normalize: bool) -> None:
    how = {"device": "cuda", "overlap": overlap, "normalize_observations": normalize}
    models = [small("vssm+kf", BestArmVector(8, horizon=20), seed=i, **how) for i in range(2)]
    loop = TrainingLoop([model.member(2_000) for model in models])
    steps = loop.steps()
    for _ in range(20):  # the warm-up, and all graphs
        next(steps)
    torch.cuda.synchronize()
    with never_waiting():
        for _ in range(20):
            next(steps)
    assert not loop.failures
    assert all(model.num_timesteps == 320 for model in models)
