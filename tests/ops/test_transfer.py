"""What is sent arrives as it was, in one copy, and nobody waits."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from kalmanac._observation import Observation, Sizes
from kalmanac._ops.graphed_call import WARM_UP
from kalmanac._ops.transfer import packed, sent, unpacked
from kalmanac._replay.buffer import Replay
from kalmanac._replay.episodes import Episodes
from tests.waiting import never_waiting

CPU = torch.device("cpu")
DTYPES = [np.float32, np.float64, np.int64, np.int32, np.uint8, np.bool_]
values = st.sampled_from(DTYPES).flatmap(
    lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=1, max_dims=3, min_side=0))
)


@given(st.lists(values, max_size=5))
def test_what_is_packed_comes_out_again(given_arrays):
    tensors = [torch.from_numpy(x) for x in given_arrays]
    flat = packed(tensors, CPU)
    for x, y in zip(tensors, unpacked(flat, tensors), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(x.numpy(), y.numpy())


def test_rows_that_do_not_lie_side_by_side_are_packed_in_their_order():
    table = torch.arange(12).reshape(3, 4)
    (found,) = unpacked(packed([table.T], CPU), [table.T])
    assert torch.equal(found, table.T)


@pytest.mark.parametrize("capacity", [None, 24])
def test_a_copy_of_the_table_follows_the_bookkeeping(capacity):
    """As on a device, where the table is another tensor than the host's."""
    rng, streams = np.random.default_rng(0), 3
    episodes = Episodes(streams, capacity and capacity // streams, 64, torch.device("cpu"))
    episodes._copied = True
    episodes._set_table(np.zeros((3, 64), np.int64), 0)
    episodes.begin(np.arange(streams))
    for step in range(200):
        episodes.make_room(np.arange(streams))
        episodes.extend(np.arange(streams))
        over = np.flatnonzero(rng.random(streams) < 0.3)
        episodes.close(over)
        episodes.begin(over)
        if step % 3 == 0:
            table = episodes.table()
            assert int(table.episodes) == episodes.count
            np.testing.assert_array_equal(table.entries.numpy(), episodes._table)


@pytest.mark.parametrize("capacity", [None, 12])
def test_a_stored_step_brings_the_copy_of_the_table_up_to_date(capacity):
    rng, streams = np.random.default_rng(0), np.arange(3)
    replay = Replay(Sizes(1, 2, True), 3, capacity=capacity)
    replay._episodes._copied = True
    replay._episodes._set_table(np.zeros((3, 64), np.int64), 0)
    seen = Observation(np.zeros((3, 1), np.float32))
    replay.begin(streams, seen)
    for _ in range(100):
        over = rng.random(3) < 0.3
        replay.add(streams, streams % 2, np.ones(3), over, over, seen)
        if over.any():
            replay.begin(streams[over], seen.map(lambda x, over=over: x[over]))
        copy = replay._episodes
        assert int(copy._episode_count) == copy.count
        np.testing.assert_array_equal(copy.entries.numpy(), copy._table)


@pytest.mark.gpu
def test_values_of_both_sides_arrive_in_their_order_and_may_change_afterwards():
    device = torch.device("cuda")
    host, there = torch.arange(5), torch.ones(2, device=device)
    flags = torch.tensor([True, False, True])
    torch.cuda._sleep(100_000_000)
    with never_waiting():
        found = sent([flags, there, host], device)
    host.fill_(7)
    flags.fill_(False)
    assert found[0].tolist() == [True, False, True]
    assert found[1] is there
    assert found[2].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.gpu
def test_steps_are_stored_on_a_gpu_without_waiting():
    replay = Replay(Sizes(2, 3, True, observed=True), 4, device="cuda")
    at = np.arange(4)

    def seen():
        return Observation(np.ones((4, 2), np.float32), observed=at > 0)

    def steps(times):
        for _ in range(times):
            replay.add(at, at % 3, np.ones(4), at == 1, at == 2, seen())
            replay.begin(np.array([1, 2]), seen().map(lambda x: x[1:3]))
            replay.places()

    replay.begin(at, seen())
    replay.places()
    with never_waiting():
        steps(WARM_UP)
    steps(1)  # is recorded, for which the device has to be done with all else
    with never_waiting():
        steps(5)
    assert replay.steps == 4 * (WARM_UP + 6)
