"""Whatever is done to a replay, it shows what plain lists of episodes hold."""

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kalmanac._replay import buffer as room
from kalmanac._replay.buffer import Replay
from kalmanac._replay.sampling import RULES
from tests.replay.model import CONTINUOUS, DISCRETE, Twin, assert_same

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


ReplayMachine.TestCase.settings = settings(max_examples=50, stateful_step_count=40)
test_replay_agrees_with_lists_of_episodes = ReplayMachine.TestCase
