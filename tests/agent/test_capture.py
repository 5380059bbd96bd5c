"""An update replayed from a CUDA graph is the eager update."""

import copy

import pytest
import torch

from kalmanac.agent import Learner
from kalmanac.agent.capture import WARM_UP, CapturedUpdate
from kalmanac.replay import Batch, Sizes
from tests.agent.cases import batch, both_kinds, learner
from tests.agent.test_images import SIZES as SEEN
from tests.agent.test_images import seen
from tests.agent.test_masks import SIZES as MASKED
from tests.agent.test_masks import masked_batch

pytestmark = pytest.mark.gpu


def on_cuda(sizes: Sizes) -> Learner:
    made = learner(sizes)
    moved = Learner(made.settings, sizes, device="cuda", seed=3)
    for part in ("actor", "critic", "target"):
        getattr(moved, part).load_state_dict(getattr(made, part).state_dict())
    return moved


def drawn(sizes: Sizes, seed: int) -> Batch:
    return Batch._make(
        None if x is None else x.cuda() for x in batch(sizes, (6, 2, 1, 3), seed=seed)
    )


@both_kinds
def test_replayed_updates_equal_eager_ones_before_and_after_a_restore(sizes: Sizes) -> None:
    eager, captured = on_cuda(sizes), on_cuda(sizes)
    update = CapturedUpdate(captured)
    kept = copy.deepcopy(captured.state_dict())
    for _ in range(2):
        for i in range(WARM_UP + 4):
            truth, found = eager.update(drawn(sizes, i)), update(drawn(sizes, i))
            assert truth.keys() == found.keys()
            for name, x in truth.items():
                torch.testing.assert_close(found[name], x, rtol=1e-4, atol=1e-5, msg=name)
        assert not update.failed
        eager.load_state_dict(kept)
        captured.load_state_dict(kept)


@pytest.mark.parametrize("kind", ["masks", "images"])
def test_masks_and_images_are_captured_too(kind: str) -> None:
    sizes = MASKED if kind == "masks" else SEEN
    eager, captured = on_cuda(sizes), on_cuda(sizes)
    update = CapturedUpdate(captured)
    for i in range(WARM_UP + 4):
        host = masked_batch(i) if kind == "masks" else seen(sizes, i)
        data = Batch._make(None if x is None else x.cuda() for x in host)
        truth, found = eager.update(data), update(data)
        for name, x in truth.items():
            torch.testing.assert_close(found[name], x, rtol=1e-3, atol=1e-4, msg=name)
    assert not update.failed
