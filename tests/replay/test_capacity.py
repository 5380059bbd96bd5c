"""A bounded replay holds the newest whole episodes of each stream, and grows no further."""

import pytest
import torch

from kalmanac._observation import Observation, Sizes
from kalmanac._replay.buffer import Replay
from tests.replay.model import CONTINUOUS, DISCRETE, Twin


def held_lengths(twin: Twin) -> list[list[int]]:
    """Lengths of the episodes that the replay itself hands out, stream by stream."""
    windows = twin.sample(25 * twin.replay.episodes, 1000)
    drawn = {id(window.episode) for window in windows}
    return [[len(e) for e in stream if id(e) in drawn] for stream in twin.held]


def test_whole_oldest_episodes_leave() -> None:
    twin = Twin(DISCRETE, 2, capacity=20)  # ten a stream
    for length in (4, 3, 3):
        twin.run(0, length)
    twin.run(1, 2)
    assert held_lengths(twin) == [[4, 3, 3], [2]]
    twin.begin([0])
    assert held_lengths(twin) == [[4, 3, 3], [2]]  # an observation is no transition
    twin.add([0])
    assert held_lengths(twin) == [[3, 3, 1], [2]]
    for _ in range(4):
        twin.add([0])
    assert held_lengths(twin) == [[3, 5], [2]]
    assert twin.replay.steps == 10


def test_never_more_than_the_capacity_is_held() -> None:
    twin = Twin(CONTINUOUS, 3, capacity=60)
    for i in range(64):
        twin.run(i % 3, 1 + (7 * i) % 12)
        assert twin.replay.steps <= 60
        if i % 8 == 7:
            twin.sample(100, 6, rule="transitions", burn_in=3, true_previous_action=True)


def test_an_open_episode_longer_than_the_capacity_keeps_its_newest_steps() -> None:
    twin = Twin(DISCRETE, 1, capacity=6)
    twin.run(0, 2)
    twin.begin([0])
    for added in range(1, 20):
        twin.add([0])
        assert twin.replay.steps <= 6
        windows = twin.sample(40, 100, true_previous_action=True, packed=True)
        numbers = {n for w in windows for n in w.episode.number}
        assert max(numbers) == twin.numbers
        if added > 6:
            assert numbers == set(range(twin.numbers - 6, twin.numbers + 1))
    twin.close()
    assert (twin.replay.steps, twin.replay.episodes) == (6, 1)
    twin.run(0, 1)  # and it leaves as a whole
    assert held_lengths(twin) == [[1]]


@pytest.mark.parametrize("length", [1, 2, 50])
def test_capacity_of_one_step_a_stream(length: int) -> None:
    twin = Twin(DISCRETE, 2, capacity=2)
    for _ in range(3):
        twin.run(0, length)
        twin.run(1, 1)
        assert held_lengths(twin) == [[1], [1]]


def test_the_share_of_a_stream_is_rounded_down() -> None:
    twin = Twin(DISCRETE, 2, capacity=9)
    twin.run(0, 30)
    twin.run(1, 30)
    assert twin.replay.steps == 8


def test_a_bounded_replay_stops_growing() -> None:
    streams, capacity = 2, 500
    replay = Replay(Sizes(1, 1, False), streams, capacity=capacity)
    at, one, no = [0, 1], torch.ones(2, 1), torch.zeros(2, dtype=torch.bool)
    for _ in range(3 * capacity // streams):  # episodes of one step need the most rows
        replay.begin(at, Observation(one))
        replay.add(at, one, one[:, 0], no, ~no, Observation(one))
    assert replay.steps == replay.episodes == capacity
    assert replay.state_dict()["rows"] <= 2 * capacity // streams + 1


def test_an_unbounded_replay_forgets_nothing() -> None:
    twin = Twin(DISCRETE, 2)
    lengths = [1 + (5 * i) % 70 for i in range(30)]
    for i, length in enumerate(lengths):
        twin.run(i % 2, length)
    assert held_lengths(twin) == [lengths[::2], lengths[1::2]]


@pytest.mark.parametrize("length", [7, 9, 12, 20])
def test_a_ring_that_has_turned_grows_in_order(
    monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    monkeypatch.setattr("kalmanac._replay.buffer.FIRST_ROWS", 8)
    twin = Twin(DISCRETE, 2, capacity=14)
    twin.run(0, length)  # its last seven steps fill the eight rows
    assert twin.replay.state_dict()["rows"] == 8
    twin.begin([0])
    assert twin.replay.state_dict()["rows"] > 8
    assert {window.steps for window in twin.sample(5, 7)} == {7}
    twin.add([0], [True])
    for steps in (3, 1, 1, 2, 1, 1, 1, 1, 1, 1):
        twin.run(0, steps)
        twin.sample(40, 7)
