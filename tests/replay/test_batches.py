"""What a batch shows: windows, pads, ends, burn-in, previous actions, packing."""

import itertools

import pytest
import torch

from kalmanac._observation import Observation, Sizes
from kalmanac._replay.buffer import Replay
from kalmanac._replay.sampling import RULES
from tests.replay.model import CONTINUOUS, DISCRETE, Twin, assert_same

every_kind = pytest.mark.parametrize("sizes", [DISCRETE, CONTINUOUS], ids=["discrete", "full"])


def mixed(sizes: Sizes) -> Twin:
    """Episodes of 1 to 40 steps in three streams, the last ones open."""
    twin = Twin(sizes, 3)
    for i, length in enumerate([1, 7, 40, 2, 1, 13, 5, 1, 22]):
        twin.run(i % 3, length, "terminated" if i % 2 else "truncated")
    for stream, length in enumerate([4, 0, 17]):
        twin.run(stream, length, "open")
    return twin


@every_kind
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("true_previous_action", [False, True])
def test_windows_are_slices_of_episodes(
    sizes: Sizes, rule: str, packed: bool, true_previous_action: bool
) -> None:
    twin = mixed(sizes)
    for context, burn_in in itertools.product((1, 6, 50), (0, 4)):
        twin.sample(
            40, context, rule=rule, burn_in=burn_in, packed=packed,
            true_previous_action=true_previous_action,
        )  # fmt: skip


@every_kind
def test_a_packed_batch_holds_the_same_windows(sizes: Sizes) -> None:
    twin = mixed(sizes)
    for burn_in in (0, 3):
        plain, packed = (
            twin.sample(50, 8, seed=5, burn_in=burn_in, packed=packed) for packed in (False, True)
        )
        keys = [
            sorted((w.episode.number[w.start], w.steps, w.burn_in) for w in windows)
            for windows in (plain, packed)
        ]
        assert keys[0] == keys[1]


def test_a_packed_batch_is_small() -> None:
    twin = mixed(DISCRETE)
    batch = twin.replay.sample(64, 100, generator=torch.Generator().manual_seed(0), packed=True)
    tokens = int(batch.lengths.sum())
    assert len(batch.lengths) <= 1 + tokens / 101 * 11 / 9
    assert batch.reset is not None
    assert int(batch.reset.sum()) == 64


def test_columns_that_no_window_uses_are_left_out() -> None:
    twin = Twin(DISCRETE, 1)
    twin.run(0, 3)
    batch = twin.replay.sample(2, 4, generator=torch.Generator().manual_seed(0), packed=True)
    assert batch.observation.vector.shape == (2, 4, 2)
    assert batch.action.shape == (2, 3, 3)


def test_episodes_of_one_step() -> None:
    twin = Twin(DISCRETE, 2)
    for _ in range(5):
        twin.run(1, 1)
    for rule, packed in itertools.product(RULES, (False, True)):
        windows = twin.sample(20, 7, rule=rule, burn_in=2, packed=packed)
        assert {(window.start, window.steps, window.burn_in) for window in windows} == {(0, 1, 0)}


def test_only_terminated_cuts_the_bootstrap() -> None:
    twin = Twin(DISCRETE, 4)
    ends = [(True, False), (False, True), (True, True), (False, False)]
    twin.begin([0, 1, 2, 3])
    twin.add([0, 1, 2, 3], [end[0] for end in ends], [end[1] for end in ends])
    assert [episode is None for episode in twin.open] == [True, True, True, False]
    batch = twin.replay.sample(60, 1, generator=torch.Generator().manual_seed(0))
    actual = {
        (int(number), bool(end))
        for number, end in zip(
            batch.observation.vector[:, 0, 0], batch.terminated[:, 0], strict=True
        )
    }
    assert actual == {(1, True), (2, False), (3, True), (4, False)}  # numbers count from 1


def test_a_window_that_stops_mid_episode_keeps_what_followed_to_itself() -> None:
    twin = Twin(CONTINUOUS, 1)
    twin.run(0, 9)
    for seed in range(20):
        batch = twin.replay.sample(1, 4, generator=torch.Generator().manual_seed(seed))
        steps = int(batch.lengths[0]) - 1
        assert not batch.action[0, steps:].any()
        assert batch.action[0, :steps].any(-1).all()


def test_previous_action_of_a_window_is_zero_unless_asked_for() -> None:
    twin = Twin(CONTINUOUS, 1)
    twin.run(0, 30)
    plain, true = (
        twin.replay.sample(
            40, 5, generator=torch.Generator().manual_seed(0), true_previous_action=asked
        )
        for asked in (False, True)
    )
    assert not plain.previous_action[:, 0].any()
    assert true.observation.privileged is not None
    started_late = true.observation.privileged[:, 0, 0] != 1  # the episode's first number
    assert started_late.any()
    assert not started_late.all()
    assert torch.equal(true.previous_action[:, 0].any(-1), started_late)
    assert torch.equal(plain.previous_action[:, 1:], true.previous_action[:, 1:])


def test_burn_in_is_shown_but_does_not_count() -> None:
    twin = Twin(DISCRETE, 1)
    twin.run(0, 50)
    windows = twin.sample(300, 6, burn_in=8)
    assert {window.burn_in for window in windows} == set(range(9))
    batch = twin.replay.sample(100, 6, generator=torch.Generator().manual_seed(0), burn_in=8)
    assert batch.valid.sum(1).max() == 6


def test_the_generator_moves_on_between_batches() -> None:
    twin, generator = mixed(DISCRETE), torch.Generator().manual_seed(0)
    first, second = (twin.replay.sample(8, 5, generator=generator) for _ in range(2))
    assert not torch.equal(first.observation.vector, second.observation.vector)
    generator.manual_seed(0)
    assert_same(first, twin.replay.sample(8, 5, generator=generator))


def test_batches_do_not_change_with_what_is_added_later() -> None:
    replay = Replay(Sizes(1, 1, False), 1, capacity=2)
    generator = torch.Generator().manual_seed(0)
    no = torch.tensor([False])
    replay.begin([0], Observation(torch.zeros(1, 1)))
    replay.add([0], torch.ones(1, 1), torch.ones(1), no, no, Observation(torch.ones(1, 1)))
    batch = replay.sample(3, 2, generator=generator)
    kept = batch.map(torch.clone)
    for _ in range(9):
        shown = Observation(-torch.ones(1, 1))
        replay.add([0], -torch.ones(1, 1), -torch.ones(1), no, no, shown)
    assert_same(batch, kept)
