"""Continuous actions and masks cost a GPU a few launches more than free discrete actions."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from triton.runtime.interpreter import GridExecutor

from kalmanac._observation import Sizes
from kalmanac._ops import adam, mlp, sac_losses, windows
from kalmanac._replay.sampling import Batch
from kalmanac._sac import networks
from tests.sac.cases import CONTINUOUS, DISCRETE, batch, make_learner, observing
from tests.sac.test_masks import SIZES as MASKED
from tests.sac.test_masks import masked_batch

VIEWS = {
    "_unsafe_view", "alias", "as_strided", "detach", "empty", "empty_like", "expand", "new_empty",
    "permute", "select", "slice", "split", "split_with_sizes", "squeeze", "t", "transpose",
    "unbind", "unsqueeze", "view",
}  # fmt: skip


class Launches(TorchDispatchMode):
    """Counts operators that do something; a GPU launches at least one kernel for each."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = Counter[str]()

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None):
        name = operator.overloadpacket.__name__
        if name not in VIEWS:
            self.seen[name] += 1
        return operator(*args, **(kwargs or {}))


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Count them, and kernels of ours, which Triton interprets."""
    run, mode = GridExecutor.__call__, Launches()

    def launch(self: GridExecutor, *args: Any, **kwargs: Any) -> Any:
        mode.seen[f"kernel {self.fn.__name__}"] += 1
        with _disable_current_modes():
            return run(self, *args, **kwargs)

    with monkeypatch.context() as patch, mode:
        patch.setattr(GridExecutor, "__call__", launch)
        yield mode.seen


def launches(sizes: Sizes, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Those of one update of an agent without an encoder."""
    for module in (sac_losses, adam, windows):
        monkeypatch.setattr(module, "fused", lambda x: True)
    monkeypatch.setattr(networks, "pads_are_free", lambda x: True)
    monkeypatch.setattr(mlp, "fits_kernels", lambda parts, weights: True)
    hidden = {"actor_hidden": (16, 16), "critic_hidden": (16, 16)}
    learner = make_learner(sizes, "memoryless", **hidden)
    data: Batch = masked_batch() if sizes.action_mask else batch(sizes)
    data = observing(data, observed=None)._replace(valid=data.valid.contiguous())
    with counted(monkeypatch) as seen:
        learner.update(data)
    return seen


def test_continuous_actions_are_a_few_launches_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise, draws, taken actions, Q of drawn ones; back through Q and draws. 111 more before."""
    free, seen = launches(DISCRETE, monkeypatch), launches(CONTINUOUS, monkeypatch)
    assert seen.total() <= free.total() + 8, seen - free


def test_masks_are_a_few_launches_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """To allow pads, to lay them on logits and back, and a goal for each step. 100 more before."""
    free, seen = launches(DISCRETE, monkeypatch), launches(MASKED, monkeypatch)
    assert seen.total() <= free.total() + 9, seen - free
