"""TF32 and graphs can be switched off, for updates and for acting; heads can take bfloat16."""

import pytest
import torch

from kalmanac._envs.best_arm import BestArmVector
from kalmanac._ops import mlp
from kalmanac._sac import cuda_graph
from kalmanac._sac.config import AgentSettings
from kalmanac._sac.cuda_graph import GraphedUpdates, UpdateWith, run_eagerly
from kalmanac._sac.learner import Metrics
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


def precisions(model: RecurrentSAC) -> set[str]:
    learner = model.learner
    return {part.head.precision for part in (learner.actor, learner.critic, learner.target)}


def test_bfloat16_reaches_all_heads_and_stays_in_the_file(tmp_path) -> None:
    model = small("vssm+kf", BestArmVector(4, horizon=20), bfloat16_heads=True)
    assert precisions(model) == {"bfloat16"}
    model.save(tmp_path / "model")
    assert precisions(RecurrentSAC.load(tmp_path / "model")) == {"bfloat16"}
    assert precisions(small("vssm+kf", BestArmVector(4, horizon=20))) == {"tf32"}


def test_bfloat16_is_refused_where_nothing_is_to_be_rounded() -> None:
    with pytest.raises(ValueError, match=r"^bfloat16_heads: got True with tf32 False, expected"):
        AgentSettings(tf32=False, bfloat16_heads=True)
    assert AgentSettings(tf32=True, bfloat16_heads=True).bfloat16_heads
    assert not AgentSettings(tf32=False).bfloat16_heads


def test_a_cpu_ignores_bfloat16() -> None:
    models = [
        small("memoryless", BestArmVector(4, horizon=20), seed=1, bfloat16_heads=half).learn(40)
        for half in (False, True)
    ]
    assert models[0].num_updates > 0
    for x, y in zip(*(m.learner.critic.parameters() for m in models), strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=0)


def test_an_update_rounds_its_heads_as_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """With interpreted kernels, which round to bfloat16 and never to TF32."""
    monkeypatch.setattr(mlp, "fits_kernels", lambda parts, weights: True)

    def losses(half: bool) -> Metrics:
        env, hidden = BestArmVector(4, horizon=20), {"actor_hidden": (16,)}
        model = small("memoryless", env, seed=1, bfloat16_heads=half, update_to_data=0.0, **hidden)
        model.learn(40)
        return model._attached().run()

    exact, rounded = losses(False), losses(True)
    for name in ("train/critic_loss", "train/actor_loss", "train/entropy"):
        assert 0 < (exact[name] - rounded[name]).abs() < 0.02 * exact[name].abs(), name


@pytest.mark.gpu
@pytest.mark.parametrize("hidden", [(32,), (32, 64)])
def test_heads_in_bfloat16_learn_alike_with_a_graph_and_without(
    hidden: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = set()
    run = mlp.fused_mlp

    def watched(*layers, precision):
        seen.add(precision)
        return run(*layers, precision=precision)

    monkeypatch.setattr(mlp, "fused_mlp", watched)

    def make_model(half: bool) -> RecurrentSAC:
        how = {"device": "cuda", "seed": 1, "actor_hidden": hidden, "critic_hidden": hidden}
        return small("vssm+kf", BestArmVector(8, horizon=20), bfloat16_heads=half, **how)

    model = make_model(True)
    model.learn(1_000)
    assert seen == {"bfloat16"}
    assert model.num_updates > cuda_graph.WARM_UP + 5
    assert all(x.isfinite().all() for x in model.learner.critic.parameters())
    batch = model._attached().batch_aside()
    eager, other, usual = (
        UpdateWith(make_model(half).learner, batch) for half in (True, True, False)
    )
    together = GraphedUpdates([other], model.device)
    before = run_eagerly(usual)
    for i in range(cuda_graph.WARM_UP + 5):
        truth, (actual,) = run_eagerly(eager), together()
        for name, x in truth.items():
            torch.testing.assert_close(actual[name], x, rtol=1e-3, atol=1e-4, msg=name)
        if i == 0:
            assert before["train/critic_loss"] != truth["train/critic_loss"]
    assert not together.failed


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

    def seen(batch):
        precisions.add(torch.backends.cuda.matmul.fp32_precision)
        return update(batch)

    monkeypatch.setattr(learner, "update", seen)
    model.learn(1_000)
    assert model.num_updates > cuda_graph.WARM_UP + 5
    recorded = model._attached()._graphed_updates
    assert recorded is not None
    assert (recorded._recording is not None) is graph
    assert bool(model._attached().policy._graphed_calls) is graph
    assert precisions == {"tf32" if tf32 else "ieee"}
