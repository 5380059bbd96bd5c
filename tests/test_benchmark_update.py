"""The benchmark of updates runs, counts the products it compares with, and times nobody broken."""

import json

import numpy as np
import pytest
import torch

from kalmanac._encoders.registry import ENCODERS
from kalmanac._observation import Sizes
from kalmanac._sac.config import AgentSettings
from kalmanac._sac.learner import Learner

CPU = torch.device("cpu")


@pytest.mark.usefixtures("compiled_only")
def test_quick_run_times_every_encoder_and_writes_facts(bench, tmp_path, capsys):
    out, threads = tmp_path / "update.json", torch.get_num_threads()
    assert bench("update").main(["--quick", "--threads", "1", "--out", str(out)]) == 0
    assert torch.get_num_threads() == threads
    found = json.loads(out.read_text())
    assert found["command"].startswith("python benchmarks/update.py --quick")
    assert str(tmp_path) not in out.read_text()
    assert found["versions"]["torch"] == torch.__version__
    assert found["threads"] == 1
    assert [t["episodes"] for t in found["tables"]] == ["best-arm episodes", "full windows"]
    for table in found["tables"]:
        assert [row["name"] for row in table["rows"]] == list(ENCODERS)
        assert table["refused"] == {}
        assert table["sampling_seconds"] > 0
        for row in table["rows"]:
            assert row["products"]["times_products"] == 1
            assert row["eager"]["times_products"] > 0
            assert 0 < row["eager"]["best"] <= row["eager"]["median"]
    assert found["tables"][1]["tokens"] == 4 * 9
    assert "updates/s" in capsys.readouterr().out


def test_an_update_that_is_not_finite_is_refused(bench, monkeypatch, capsys):
    update = bench("update")
    honest = update.make_learner

    def broken(name, task, device):
        learner = honest(name, task, device)
        if name == "vssm":
            learner.critic.head.biases[-1].data.fill_(torch.nan)
        return learner

    monkeypatch.setattr(update, "make_learner", broken)
    call = ["--quick", "--threads", "1", "--only", "memoryless", "vssm"]
    assert update.main(call) == 1
    assert "REFUSED vssm: train/" in capsys.readouterr().out


def test_products_are_those_of_the_layers(bench):
    """By hand: O = 2, A = 3, E = 4, N = 5, one hidden layer of 6 and of 7."""
    counting, update = bench("products"), bench("update")
    sizes = Sizes(2, 3, True)
    settings = AgentSettings(
        embedding=4,
        encoder_settings={"d_state": 5},
        actor_hidden=(6,),
        critic_hidden=(7,),
    )
    replay = update.filled(sizes, np.array([3, 8]), np.random.default_rng(0), CPU)
    batch = replay.sample(4, 8, generator=torch.Generator().manual_seed(0), packed=True)
    tokens, steps = int(batch.lengths.sum()), int(batch.valid.sum())
    assert tokens == steps + 4
    layers = counting.layers_of(Learner(settings, sizes), batch)
    embed, inside = 5 * 4, 4 * 15 + 5 * 4
    actor_head, critic_head = 6 * 6 + 6 * 3, 2 * (6 * 7 + 7 * 3)
    assert sum(x.multiplications for x in layers) == (
        tokens * (embed + inside + actor_head) + steps * (embed + 2 * inside + 2 * actor_head)
        + steps * (2 * embed + 3 * inside + 3 * critic_head)
        + tokens * (embed + inside) + steps * critic_head
    )  # fmt: skip

    done = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            if operator.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.bmm):
                done.append(args[0].numel() * args[1].shape[-1])
            return operator(*args, **(kwargs or {}))

    assert counting.Layer(10, 8, 3, 5, into_input=False).numbers == 18 * (3 + 5) + 2 * 15
    assert counting.Layer(10, 0, 3, 5, twins=2).numbers == 10 * (3 + 10) + 2 * 15

    run = counting.products(layers, CPU)
    with Watch():
        run(0)
    assert sum(done) == sum(x.multiplications for x in layers)


@pytest.mark.parametrize("number", [2, 3, 4])
def test_masked_and_continuous_actions_are_learnt_from(bench, number):
    update = bench("update")
    task = update.TASKS[number]
    sizes = task.sizes
    replay = update.filled(sizes, np.array([3, 8]), np.random.default_rng(0), CPU)
    batch = replay.sample(4, 8, generator=torch.Generator().manual_seed(0), packed=False)
    mask = batch.observation.action_mask
    assert (mask is not None) is sizes.action_mask
    if mask is not None:
        assert not mask[batch.lengths == 9][:, :, -1].all()
        assert not batch.action[..., -1].any()
    learner = update.make_learner("vssm+kf", task, CPU)
    assert all(x.isfinite() for x in learner.update(batch).values())


@pytest.mark.parametrize("number", [1, 4])
def test_the_plain_peer_lowers_its_critics_loss(bench, number):
    update, plain = bench("update"), bench("plain_sac")
    sizes = update.TASKS[number].sizes
    replay = update.filled(sizes, np.array([3, 8]), np.random.default_rng(0), CPU)
    batch = replay.sample(4, 8, generator=torch.Generator().manual_seed(0), packed=False)
    torch.manual_seed(0)
    peer = plain.PlainSAC(sizes, (16,), CPU)
    step, lost = peer._step, []

    def noted(which, loss):
        if which == 1:
            lost.append(loss.item())
        step(which, loss)

    peer._step = noted
    for _ in range(60):
        peer.update(batch)
    assert lost[-1] < 0.8 * lost[0]


def test_episodes_are_as_long_as_the_notes_say(bench):
    update = bench("update")
    lengths = update.episode_lengths(np.random.default_rng(0), 20_000)
    assert lengths.mean() == pytest.approx(update.MEAN, rel=0.05)
    assert 1 == lengths.min() < lengths.max() == update.LONGEST


def test_plain_draws_are_the_fused_ones(bench):
    from kalmanac._ops.squashed_gaussian import fused_draws

    update, draw = bench("update"), torch.Generator().manual_seed(0)
    parameters = torch.randn(2, 4, 6, generator=draw)
    noise = torch.randn(2, 2, 3, 3, generator=draw)
    plain = update.plain_draws(parameters, noise, (-20.0, 2.0))
    for mine, theirs in zip(plain, fused_draws(parameters, noise, (-20.0, 2.0)), strict=True):
        for x, y in zip(mine, theirs, strict=True):
            torch.testing.assert_close(x, y)


def test_a_form_can_be_timed_by_plain_operations(bench, capsys):
    update = bench("update")
    hold = update.layers.holds_beside
    assert update.main(["--quick", "--only", "vssm+kf", "--plain", "hold", "losses"]) == 0
    assert "- hold: plain operations, on CUDA too" in capsys.readouterr().out
    assert update.layers.holds_beside is hold
