"""TF32 and graphs can be switched off, for updates and for acting."""

import pytest
import torch

from kalmanac._envs.best_arm import BestArmVector
from kalmanac._ops.graphed_call import WARM_UP
from kalmanac._sac.recurrent_sac import RecurrentSAC
from tests.sac.small import small


def test_settings_reach_updates_and_acting_and_stay_in_the_file(tmp_path) -> None:
    model = small("vssm+kf", BestArmVector(4, horizon=20), tf32=False, graph=False)
    assert not model._attached().tf32
    assert not model.policy.graph
    model.save(tmp_path / "model")
    again = RecurrentSAC.load(tmp_path / "model")
    assert not again.settings.tf32
    assert not again.policy.graph
    usual = small("vssm+kf", BestArmVector(4, horizon=20))
    assert usual._attached().tf32
    assert usual.policy.graph


@pytest.mark.gpu
@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("tf32", [False, True])
def test_products_and_graphs_are_as_asked_for(
    tf32: bool, graph: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    precisions = set()
    model = small("vssm+kf", BestArmVector(8, horizon=20), device="cuda", tf32=tf32, graph=graph)
    learner = model.learner
    update = learner.update

    def seen(batch, **how):
        precisions.add(torch.backends.cuda.matmul.fp32_precision)
        return update(batch, **how)

    monkeypatch.setattr(learner, "update", seen)
    model.learn(1_000)
    assert model.num_updates > WARM_UP + 5
    recorded = model._attached()._graphed_updates
    assert recorded is not None
    assert bool(recorded._recordings) is graph
    assert bool(model._attached()._asking._recordings) is graph
    assert precisions == {"tf32" if tf32 else "ieee"}
