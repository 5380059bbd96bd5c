"""Images and action masks in the replay: bytes and flags beside each observation."""

from typing import Any

import numpy as np
import pytest
import torch

from kalmanac._observation import Observation, Sizes
from kalmanac._replay.buffer import Replay
from kalmanac._replay.sampling import Batch
from tests.replay.model import assert_same

SIZES = Sizes(2, 3, True, observed=True, images=((1, 2, 3), (2, 2, 2)), action_mask=True)
GENERATOR = torch.Generator


def token(time: int, streams: int = 2) -> Observation[np.ndarray]:
    """All of it is readable from the time."""
    there = time % 4 != 3
    return Observation(
        vector=np.full((streams, 2), float(time)),
        observed=np.full(streams, there),
        images=np.full((streams, 14), time % 256, np.uint8),
        action_mask=np.tile(np.arange(3) != time % 3, (streams, 1)),
    )


def filled(steps: int, capacity: int | None = None, length: int = 9) -> Replay:
    replay = Replay(SIZES, 2, capacity=capacity)
    rows, still = np.arange(2), np.zeros(2, np.bool_)
    replay.begin(rows, token(0))
    for time in range(1, steps + 1):
        over = np.full(2, time % length == 0)
        replay.add(rows, np.zeros(2, np.int64), np.full(2, time), still, over, token(time))
        if over[0]:
            replay.begin(rows, token(time))
    return replay


def check(batch: Batch) -> None:
    """Every token tells the same time in all of its parts."""
    held = torch.arange(batch.observation.vector.shape[1]) < batch.lengths[:, None]
    time = batch.observation.images[..., 0].long()
    seen = held & batch.observation.observed
    assert seen.sum() > 20
    assert torch.equal(batch.observation.vector[..., 0][seen].long(), time[seen])
    assert (batch.observation.images == batch.observation.images[..., :1]).all()
    assert (batch.observation.images[~held] == 0).all(), "padding"
    expected = torch.arange(3) != (time % 3)[..., None]
    assert torch.equal(batch.observation.action_mask[seen], expected[seen])
    assert batch.observation.action_mask[held].any(-1).all()
    assert not batch.observation.action_mask[~held].any()


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("capacity", [None, 60])
def test_parts_of_a_token_stay_together(packed: bool, capacity: int | None) -> None:
    replay = filled(250, capacity)  # grows, or forgets; a byte counts no further
    batch = replay.sample(30, 5, generator=GENERATOR().manual_seed(0), packed=packed)
    check(batch)
    assert batch.observation.images is not None
    assert batch.observation.images.dtype == torch.uint8


def test_state_round_trip() -> None:
    replay, other = filled(40), Replay(SIZES, 2)
    state = replay.state_dict()
    state["sizes"]["images"] = [list(shape) for shape in state["sizes"]["images"]]  # as JSON has it
    other.load_state_dict(state)
    one, same = (
        r.sample(9, 4, generator=GENERATOR().manual_seed(1)) for r in (replay, other)
    )  # fmt: skip
    assert_same(one, same)


def test_an_image_takes_a_byte_a_value() -> None:
    sizes = Sizes(1, 2, True, images=((3, 84, 84),))
    replay = Replay(sizes, 1, capacity=10)
    assert sizes.pixels == 21_168
    stored = replay._storage.fields["pixels"]
    assert stored.element_size() * stored[0].numel() == 21_168


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": None}, "images: got None, expected values"),
        ({"images": np.zeros((2, 14))}, r"images: got shape \(2, 14\) of float64, expected uint8"),
        ({"images": np.zeros((2, 9), np.uint8)}, r"expected uint8 of shape \(2, 14\)"),
        ({"action_mask": None}, "action_mask: got None, expected values"),
        ({"action_mask": np.ones((2, 3))}, "action_mask: got shape .* of float64, expected bool"),
        (
            {"action_mask": np.array([[True, True, False], [False] * 3])},
            "action_mask: got stream 1, expected an allowed action there",
        ),
    ],
)
def test_bad_parts_are_refused_and_nothing_stored(change: dict[str, Any], message: str) -> None:
    replay = filled(5)
    before = replay.state_dict()["storage"]
    with pytest.raises(ValueError, match=message):
        replay.add(
            np.arange(2), np.zeros(2, np.int64), np.zeros(2), np.zeros(2, np.bool_),
            np.zeros(2, np.bool_), token(6)._replace(**change),
        )  # fmt: skip
    after = replay.state_dict()["storage"]
    assert all(torch.equal(x, after[name]) for name, x in before.items())


def test_parts_that_the_sizes_do_not_name() -> None:
    plain = Replay(Sizes(2, 3, True), 2)
    for name in ("images", "action_mask"):
        shown = Observation(np.zeros((2, 2)), **{name: getattr(token(0), name)})
        with pytest.raises(ValueError, match=f"{name}: got values, expected None"):
            plain.begin(np.arange(2), shown)


def test_bad_sizes() -> None:
    with pytest.raises(ValueError, match=r"sizes\.images: got 0, expected"):
        Replay(Sizes(1, 3, True, images=((1, 0, 3),)), 1)
    with pytest.raises(ValueError, match=r"sizes\.action_mask: got True, expected False for cont"):
        Replay(Sizes(1, 3, False, action_mask=True), 1)
    Replay(Sizes(0, 3, True, images=((1, 2, 3),)), 1)
