"""Whatever is done to a replay, it shows what plain lists of episodes hold."""

import copy
import gc
import weakref
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kalmanac._observation import Observation
from kalmanac._ops import graphed_call
from kalmanac._replay import buffer as room
from kalmanac._replay import episodes as table
from kalmanac._replay.buffer import Replay
from kalmanac._replay.sampling import RULES
from tests.replay.model import CONTINUOUS, DISCRETE, Twin, assert_same
from tests.tape import on_tape

END = st.sampled_from(["", "", "", "terminated", "truncated", "both"])


class ReplayMachine(RuleBasedStateMachine):
    """Begin, add, close, sample, save and load in any order, in few rows so that rings turn."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(room, "FIRST_ROWS", 2)

    def teardown(self) -> None:
        self.patch.undo()

    @initialize(
        sizes=st.sampled_from([DISCRETE, CONTINUOUS]),
        streams=st.integers(1, 4),
        share=st.one_of(st.none(), st.integers(1, 9)),
    )
    def build(self, sizes, streams, share) -> None:
        self.twin = Twin(sizes, streams, None if share is None else share * streams)

    @rule(data=st.data())
    def begin(self, data) -> None:
        closed = [s for s, episode in enumerate(self.twin.open) if episode is None]
        self.twin.begin(data.draw(_some(closed)))

    @rule(data=st.data(), times=st.integers(1, 4))
    def add(self, data, times) -> None:
        for _ in range(times):
            opened = [s for s, episode in enumerate(self.twin.open) if episode is not None]
            streams = data.draw(_some(opened))
            ends = data.draw(st.lists(END, min_size=len(streams), max_size=len(streams)))
            self.twin.add(
                streams,
                [end in ("terminated", "both") for end in ends],
                [end in ("truncated", "both") for end in ends],
            )

    @rule(data=st.data())
    def close(self, data) -> None:
        streams = list(range(len(self.twin.open)))
        self.twin.close(data.draw(st.one_of(st.none(), _some(streams))))

    @rule(
        context=st.integers(1, 6), rule=st.sampled_from(list(RULES)), burn_in=st.integers(0, 3),
        true_previous_action=st.booleans(), packed=st.booleans(), seed=st.integers(0, 99),
    )  # fmt: skip
    def sample(self, **settings) -> None:
        if self.twin.episodes:
            self.twin.sample(7, **settings)

    @rule()
    def every_episode_can_be_drawn(self) -> None:
        episodes = self.twin.episodes
        if episodes:
            windows = self.twin.sample(30 * len(episodes), 200, packed=True)
            whole = {id(window.episode) for window in windows}
            assert whole == {id(episode) for episode in episodes}
            assert all(window.steps == len(window.episode) for window in windows)

    @rule()
    def save_and_load(self) -> None:
        old = self.twin.replay
        new = Replay(old.sizes, old.streams, capacity=old.capacity)
        new.load_state_dict(old.state_dict())
        self.twin.replay = new
        if self.twin.episodes:
            batches = [
                replay.sample(9, 4, generator=torch.Generator().manual_seed(1), rule="starts")
                for replay in (old, new)
            ]
            assert_same(*batches)

    @invariant()
    def counts_agree(self) -> None:
        if hasattr(self, "twin"):
            assert self.twin.replay.steps == self.twin.steps
            assert self.twin.replay.episodes == len(self.twin.episodes)


def _some(streams: list[int]) -> st.SearchStrategy[list[int]]:
    if not streams:
        return st.just([])
    return st.lists(st.sampled_from(streams), unique=True)


class RecordedMachine(ReplayMachine):
    """The same with a table of its own on the device, and writes that are replayed."""

    def __init__(self) -> None:
        super().__init__()
        on_tape(self.patch)
        self.patch.setattr(room, "can_record", lambda device: True)
        self.patch.setattr(table, "is_host", lambda device: False)
        self.patch.setattr(graphed_call, "WARM_UP", 0)
        self.patch.setattr(graphed_call, "garbage_collection_paused", nullcontext)  # takes long


RecordedMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=40)
test_recorded_writes_agree_with_lists_of_episodes = RecordedMachine.TestCase
ReplayMachine.TestCase.settings = settings(max_examples=50, stateful_step_count=40)
test_replay_agrees_with_lists_of_episodes = ReplayMachine.TestCase


@pytest.fixture
def recorded(monkeypatch):
    """A replay of two streams whose writes are recorded, and the tapes."""
    tapes = on_tape(monkeypatch)
    monkeypatch.setattr(room, "can_record", lambda device: True)
    monkeypatch.setattr(table, "is_host", lambda device: False)
    twin = Twin(DISCRETE, 2)
    twin.begin([0, 1])
    return twin, tapes


def step(twin, times):
    for _ in range(times):
        twin.add([0, 1], [False, False], [False, False])


def test_a_step_is_recorded_once_and_replayed_until_the_storage_moves(recorded):
    twin, tapes = recorded
    step(twin, graphed_call.WARM_UP)
    assert tapes == []
    step(twin, 5)
    assert [tape.replays for tape in tapes] == [5]
    twin.replay.reserve(10_000)
    step(twin, graphed_call.WARM_UP + 2)
    assert [tape.replays for tape in tapes] == [5, 2], "recorded anew, where the storage is now"
    twin.sample(20, 8, packed=True)


def test_who_wants_no_graph_has_none(recorded):
    twin, tapes = recorded
    twin.replay.graph = False
    step(twin, graphed_call.WARM_UP + 5)
    assert tapes == []


def test_writes_of_many_shapes_are_not_all_recorded(recorded, monkeypatch):
    twin, tapes = recorded
    monkeypatch.setattr(room, "MOST_RECORDINGS", 1)
    step(twin, graphed_call.WARM_UP + 1)
    for _ in range(graphed_call.WARM_UP + 1):
        twin.add([0], [False], [False])
    step(twin, 1)
    assert [tape.replays for tape in tapes] == [2]
    twin.sample(20, 8, packed=True)


def test_a_write_that_cannot_be_recorded_is_made_all_the_same(recorded, monkeypatch):
    twin, _ = recorded

    def fails(graph, stream=None):
        raise RuntimeError("no room")

    step(twin, graphed_call.WARM_UP)
    monkeypatch.setattr(torch.cuda, "graph", fails)
    monkeypatch.setattr(torch.cuda, "set_stream", lambda stream: None)
    with pytest.raises(UserWarning, match=r"storing stays eager, because .*: no room"):
        step(twin, 1)  # warnings are errors here
    for episode in twin.held[0]:  # the lists missed it
        assert len(episode) == graphed_call.WARM_UP
    assert twin.replay.steps == 2 * (graphed_call.WARM_UP + 1)
    rewards = twin.replay._storage.fields["reward"].count_nonzero()
    assert rewards == 2 * (graphed_call.WARM_UP + 1)
    for _ in range(graphed_call.WARM_UP + 1):
        twin.replay.add([0], [0], [1.0], [False], [False], Observation(np.ones((1, 2), np.float32)))


def test_a_copy_writes_into_itself(recorded):
    twin, _ = recorded
    step(twin, graphed_call.WARM_UP + 2)
    before = twin.replay.state_dict()["storage"]
    other = copy.deepcopy(twin.replay)
    for _ in range(graphed_call.WARM_UP + 2):
        seen = Observation(np.ones((2, 2), np.float32))
        other.add([0, 1], [0, 1], [7.0, 7.0], [False, False], [False, False], seen)
    assert other.steps == 2 * twin.replay.steps
    for name, x in twin.replay.state_dict()["storage"].items():
        assert torch.equal(x, before[name]), name


def test_a_copy_draws_what_it_takes_in():
    twin = Twin(DISCRETE, 2, None)
    twin.replay = copy.deepcopy(twin.replay)
    twin.begin([0, 1])
    step(twin, 3)
    twin.sample(20, 8, packed=True)


def test_what_was_outgrown_is_not_kept(recorded):
    twin, tapes = recorded
    step(twin, graphed_call.WARM_UP + 2)
    tapes.clear()
    gone = weakref.ref(twin.replay._storage.fields["reward"])
    gc.disable()
    try:
        twin.replay.reserve(10_000)
        assert gone() is None
    finally:
        gc.enable()


def test_a_replay_goes_with_its_last_user(recorded):
    twin, _ = recorded
    step(twin, graphed_call.WARM_UP + 2)
    gone = weakref.ref(twin.replay)
    gc.disable()
    try:
        del twin.replay
        assert gone() is None, "no recording holds the steps"
    finally:
        gc.enable()
