"""The update in JAX is ours, and is timed only then."""

import numpy as np
import pytest
import torch

from kalmanac._observation import Sizes
from kalmanac._sac.config import AgentSettings
from kalmanac._sac.learner import Learner
from kalmanac._sac.optimizer import _views

CPU = torch.device("cpu")
SIZES = Sizes(2, 3, True)


def small_learner(sizes=SIZES, seed=0, **changes):
    """As after some learning: log α, target and norm have left their start."""
    settings = {
        "embedding": 4, "encoder_settings": {"d_state": 5, "norm": True}, "actor_hidden": (6,),
        "critic_hidden": (7, 7), "initial_ent_coef": 0.3, "actor_objective": "value",
    }  # fmt: skip
    learner = Learner(AgentSettings(**(settings | changes)), sizes, seed=seed)
    draw = torch.Generator().manual_seed(1)
    for part in (learner.actor, learner.critic, learner.target):
        for parameter in part.parameters():
            parameter.data += 0.1 * torch.randn(parameter.shape, generator=draw)
    return learner


def ragged_batch(bench, sizes=SIZES, seed=0):
    """Rows of 1 to 5 steps with the last ones padded, one of them never terminated."""
    replay = bench("experience").filled(
        sizes, np.array([1, 3, 5, 9]), np.random.default_rng(0), CPU
    )
    batch = replay.sample(6, 5, generator=torch.Generator().manual_seed(seed))
    assert not batch.valid.all()
    assert not batch.terminated.any(1).all()
    return batch


@pytest.mark.slow
def test_losses_gradients_and_updates_are_ours(bench):
    pytest.importorskip("jax")
    JaxSAC, peer = bench("jax_sac").JaxSAC, bench("update_peer")
    batch, learner, first = ragged_batch(bench), small_learner(), small_learner()
    sac, native = JaxSAC.of(learner), JaxSAC.batch_of(batch)
    names = [name for name in sac.parameters() if not name.startswith("target.")]
    assert sorted(names) == sorted(
        name for name in learner.state_dict() if name.startswith(("actor.", "critic.", "log_alpha"))
    )
    ours = peer.Ours([learner], [batch])
    off = peer.disagreement(sac, ours, native, [learner], [batch])
    assert set(off) == {
        "actor_loss", "critic_loss", "ent_coef_loss", "moves of actor", "moves of critic",
        "moves of target", "moves of log_alpha",
    }  # fmt: skip
    assert max(off.values()) < 1e-4

    again = JaxSAC.of(first)
    again._update = sac._update  # compiled
    again.update(native, [None])
    first.update(batch)
    grouped = {"actor": first.actor, "critic": first.critic}
    order = [f"{part}.{k}" for part, x in grouped.items() for k, _ in x.named_parameters()]
    averages = _views(first.optimizer.state_dict()["average"], first._learned)
    for name, ours in zip([*order, "log_alpha"], averages, strict=True):
        theirs = torch.tensor(np.asarray(again.state.average[name]))
        assert (theirs - ours).norm() <= 1e-4 * ours.norm(), name

    # and what differs is refused: the temperature's goal is another
    other = small_learner(target_entropy_scale=0.4)
    ours = peer.Ours([other], [batch])
    told = peer.disagreement(JaxSAC.of(small_learner()), ours, native, [other], [batch])
    assert told["ent_coef_loss"] > 1e-2
    assert told["critic_loss"] < 1e-4


@pytest.mark.slow
def test_seeds_side_by_side_with_continuous_actions_are_ours(bench):
    pytest.importorskip("jax")
    JaxSAC, peer = bench("jax_sac").JaxSAC, bench("update_peer")
    sizes = SIZES._replace(discrete=False)
    learners = [small_learner(sizes, seed=seed) for seed in range(2)]
    batches = [ragged_batch(bench, sizes, 2 * seed) for seed in range(2)]
    sac, ours = JaxSAC.of(*learners), peer.Ours(learners, batches)
    off = peer.disagreement(sac, ours, JaxSAC.batch_of(*batches), learners, batches)
    assert len(off) == 7
    assert max(off.values()) < 1e-3


@pytest.mark.slow
def test_it_is_timed_where_it_agrees_and_refused_elsewhere(bench, monkeypatch):
    pytest.importorskip("jax")
    peer, batch, ran = bench("jax_peer"), ragged_batch(bench), []

    def rate(run):
        run()
        ran.append(run)
        return 2.0

    found = peer.measured([small_learner(ent_coef=0.1)], [batch], rate)
    assert found["updates_per_second"] == 2.0 * peer.STRETCH
    assert "ent_coef_loss" not in found["disagreement"]
    assert peer.in_words(found) == "40 updates/s"
    monkeypatch.setitem(bench("update_peer").LOSSES, "cpu", 0.0)
    found = peer.measured([small_learner(ent_coef=0.1)], [batch], rate)
    assert "updates_per_second" not in found
    assert peer.in_words(found).startswith("REFUSED, ")
    assert len(ran) == 1


def test_without_jax_a_line_says_so(bench, monkeypatch):
    peer = bench("jax_peer")
    monkeypatch.setattr(peer.importlib.util, "find_spec", lambda name: None)
    found = peer.measured([small_learner()], [ragged_batch(bench)], lambda run: 1.0)
    assert peer.in_words(found) == "jax is not installed"


def test_without_a_device_for_it_a_line_says_so(bench, monkeypatch):
    pytest.importorskip("jax")
    peer, module = bench("jax_peer"), bench("jax_sac")

    def absent(device):
        raise RuntimeError("Unknown backend gpu\nand more")

    monkeypatch.setattr(module, "place_for", absent)
    found = peer.measured([small_learner()], [ragged_batch(bench)], lambda run: 1.0)
    assert peer.in_words(found) == "jax: Unknown backend gpu"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"encoder": "vssm", "encoder_settings": {}}, "encoder: got 'vssm', expected 'vssm\\+kf'"),
        ({"max_grad_norm": 1.0}, "max_grad_norm: got 1.0, expected None"),
        ({"encoder_settings": {"layers": 2}}, "encoder_settings: got layers, expected d_state"),
    ],
)
def test_what_is_not_written_in_jax_is_named(changes, text, bench):
    pytest.importorskip("jax")
    with pytest.raises(ValueError, match=text):
        bench("jax_sac").JaxSAC.of(small_learner(**changes))


def test_packed_rows_are_named(bench):
    pytest.importorskip("jax")
    batch = ragged_batch(bench)
    batch = batch._replace(
        reset=torch.zeros_like(batch.observation.vector[..., 0], dtype=torch.bool)
    )
    with pytest.raises(ValueError, match=r"batch.reset: got a tensor, expected None"):
        bench("jax_sac").JaxSAC.batch_of(batch)
