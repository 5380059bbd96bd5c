"""Updates replayed from a CUDA graph, alone or as branches, are the eager updates."""

import copy

import pytest
import torch

from kalmanac._observation import Sizes
from kalmanac._ops.graphed_call import WARM_UP
from kalmanac._sac.config import AgentSettings
from kalmanac._sac.cuda_graph import GraphedUpdates, UpdateWith
from kalmanac._sac.learner import Learner
from tests.sac.cases import DISCRETE, batch, both_kinds, make_learner, observing
from tests.sac.test_images import SIZES as IMAGES
from tests.sac.test_images import image_batch
from tests.sac.test_masks import SIZES as MASKED
from tests.sac.test_masks import masked_batch

pytestmark = pytest.mark.gpu


def on_cuda(sizes: Sizes, seed: int = 3, **settings: bool) -> Learner:
    learner = make_learner(sizes, seed=seed, **settings)
    moved = Learner(learner.settings, sizes, device="cuda", seed=seed)
    for part in ("actor", "critic", "target"):
        getattr(moved, part).load_state_dict(getattr(learner, part).state_dict())
    return moved


def update_with(learner: Learner, sizes: Sizes, seed: int) -> UpdateWith:
    on_host = batch(sizes, (6, 2, 1, 3), seed=seed)
    return UpdateWith(learner, on_host.map(torch.Tensor.cuda), tf32=False)  # as the eager ones


@both_kinds
@pytest.mark.parametrize("seeds", [1, 3, 14])  # 14: more streams than PyTorch has
def test_replayed_updates_equal_eager_ones_before_and_after_a_restore(
    sizes: Sizes, seeds: int
) -> None:
    eager = [update_with(on_cuda(sizes, i), sizes, i) for i in range(seeds)]
    branches = [update_with(on_cuda(sizes, i), sizes, i) for i in range(seeds)]
    together = GraphedUpdates(branches, torch.device("cuda"))
    kept = [copy.deepcopy(work.learner.state_dict()) for work in branches]
    for _ in range(2):
        for _ in range(WARM_UP + 4):
            for work, actual in zip(eager, together(), strict=True):
                truth = work.run()
                assert truth.keys() == actual.keys()
                for name, x in truth.items():
                    torch.testing.assert_close(actual[name], x, rtol=1e-4, atol=1e-5, msg=name)
        assert not together.failed
        for works in (eager, branches):
            for work, state in zip(works, kept, strict=True):
                work.learner.load_state_dict(state)


@both_kinds
def test_rounds_in_one_graph_equal_eager_updates(sizes: Sizes) -> None:
    eager = [update_with(on_cuda(sizes, i), sizes, i) for i in range(3)]
    branches = [update_with(on_cuda(sizes, i), sizes, i) for i in range(3)]
    together = GraphedUpdates(branches, torch.device("cuda"))
    for rounds in (1, 1, 1, 3, 1, 3, 1):
        for work, actual in zip(eager * rounds, together(rounds), strict=True):
            for name, x in work.run().items():
                torch.testing.assert_close(actual[name], x, rtol=1e-4, atol=1e-5, msg=name)
    assert not together.failed


def test_dropout_draws_anew_in_every_replay_what_eager_updates_draw() -> None:
    sizes = Sizes(2, 3, True)
    how = AgentSettings(
        encoder="transformer",
        encoder_settings={"dropout": 0.1},
        ent_coef=0.1,
        context_length=8,
    )
    eager, branch = (
        update_with(Learner(how, sizes, device="cuda", seed=5), sizes, 0) for _ in range(2)
    )
    together = GraphedUpdates([branch], torch.device("cuda"))
    for _ in range(WARM_UP + 4):
        (actual,), truth = together(), eager.run()
        for name, x in truth.items():
            torch.testing.assert_close(actual[name], x, rtol=1e-4, atol=1e-5, msg=name)
    assert not together.failed
    state = copy.deepcopy(branch.learner.state_dict())
    first = together()[0]["train/critic_loss"]
    drawn = branch.learner.learning.get_state()
    branch.learner.load_state_dict(state)
    branch.learner.learning.set_state(drawn)  # the same weights, the next draws
    assert not torch.equal(together()[0]["train/critic_loss"], first)


def test_what_cannot_be_recorded_stays_eager_with_one_warning() -> None:
    class Reads(UpdateWith):
        def run(self) -> dict[str, torch.Tensor]:
            actual = super().run()
            actual["train/entropy"].item()  # the host reads
            return actual

    sizes = Sizes(2, 3, True)
    learner = on_cuda(sizes)
    work = Reads(learner, update_with(learner, sizes, 0).batch)
    together = GraphedUpdates([work], torch.device("cuda"))
    for _ in range(WARM_UP):
        together()
    with pytest.warns(UserWarning, match="updates stay eager, because they cannot be recorded"):
        together()
    assert together.failed
    before = learner.actor.head.layers[0].weight.clone()
    (actual,) = together()
    assert actual["train/critic_loss"].isfinite()
    assert not torch.equal(learner.actor.head.layers[0].weight, before)


@pytest.mark.parametrize("kind", ["masks", "images", "rewards", "clock"])
def test_other_inputs_are_captured_too(kind: str) -> None:
    sizes = MASKED if kind == "masks" else IMAGES
    host = masked_batch(0) if kind == "masks" else image_batch(sizes, 0)
    shown, told = kind == "rewards", kind == "clock"
    if shown or told:
        sizes, host = DISCRETE, batch(DISCRETE)
    if shown:
        host = observing(host, previous_reward=host.previous_action.sum(-1) - 0.5)
    if told:
        rows, tokens, _ = host.previous_action.shape
        host = host._replace(elapsed=torch.arange(rows * tokens).view(rows, tokens))
    settings = {"previous_reward": shown, "critic_clock": told}
    data = host.map(torch.Tensor.cuda)
    eager, captured = (UpdateWith(on_cuda(sizes, **settings), data) for _ in range(2))
    captured.tf32 = False
    together = GraphedUpdates([captured], torch.device("cuda"))
    for _ in range(WARM_UP + 4):
        truth, (actual,) = eager.run(), together()
        for name, x in truth.items():
            torch.testing.assert_close(actual[name], x, rtol=1e-3, atol=1e-4, msg=name)
    assert not together.failed
