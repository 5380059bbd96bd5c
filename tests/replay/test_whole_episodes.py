"""Whole episodes at once: what single steps would have left, and what is read back."""

import numpy as np
import pytest
import torch

from kalmanac._observation import Observation, Sizes
from kalmanac._replay.buffer import Replay, StoredEpisode

SIZES = Sizes(2, 3, True, observed=True, privileged=1)


def episode(steps: int, number: int) -> StoredEpisode:
    rng = np.random.default_rng(number)
    observed = rng.random(steps + 1) < 0.8
    seen = rng.standard_normal((steps + 1, 2), np.float32) * observed[:, None]
    truth = rng.standard_normal((steps + 1, 1), np.float32)
    return StoredEpisode(
        Observation(seen, observed=observed, privileged=truth),
        rng.integers(3, size=steps),
        rng.standard_normal(steps, np.float32),
        bool(number % 2),
    )


def step_by_step(replay: Replay, one: StoredEpisode, stream: int) -> None:
    def at(t):
        return one.observation.map(lambda x: x[t : t + 1])

    replay.begin([stream], at(0))
    last = len(one.reward) - 1
    for t in range(last + 1):
        end = np.array([t == last])
        action, reward = one.action[t : t + 1], one.reward[t : t + 1]
        over = end & one.terminated
        replay.add([stream], action, reward, over, end & ~over, at(t + 1))


def same(one: StoredEpisode, other: StoredEpisode) -> bool:
    parts = zip(one.observation.parts().values(), other.observation.parts().values(), strict=True)
    arrays = [*parts, (one.action, other.action), (one.reward, other.reward)]
    return one.terminated == other.terminated and all(np.array_equal(*pair) for pair in arrays)


@pytest.mark.parametrize("capacity", [None, 1000, 31])
def test_an_episode_at_once_is_its_steps_one_by_one(capacity):
    whole, single = (Replay(SIZES, 1, capacity=capacity) for _ in range(2))
    for number, steps in enumerate([3, 1, 7, 20, 2, 31, 1, 1, 300, 4]):
        if capacity is not None and steps > capacity:
            continue
        whole.add_episode(episode(steps, number))
        step_by_step(single, episode(steps, number), 0)
    assert (whole.steps, whole.episodes) == (single.steps, single.episodes)
    assert all(map(same, whole.stored_episodes(), single.stored_episodes()))
    windows = [
        x.sample(9, 5, generator=torch.Generator().manual_seed(1), true_previous_action=True)
        for x in (whole, single)
    ]
    for name in ("action", "reward", "terminated", "previous_action"):
        assert torch.equal(*(getattr(window, name) for window in windows)), name


def test_what_was_added_is_read_back_and_streams_share_it():
    replay, told = Replay(SIZES, 3), [episode(4, i) for i in range(9)]
    for one in told:
        replay.add_episode(one)
    assert all(map(same, replay.stored_episodes(), told))
    assert replay._episodes.transitions.tolist() == [12, 12, 12]


def test_open_episodes_stay_and_are_read_as_far_as_they_are():
    replay = Replay(SIZES, 2)
    first = episode(2, 0).observation.map(lambda x: x[:1])
    replay.begin([0], first)
    replay.add_episode(episode(3, 1))
    replay.add([0], [1], [2.0], [False], [False], first)
    assert [len(one.reward) for one in replay.stored_episodes()] == [3, 1]
    replay.begin([1], first)
    with pytest.raises(ValueError, match="got open episodes in all streams, expected one without"):
        replay.add_episode(episode(3, 1))


def test_what_cannot_be_kept_is_refused():
    with pytest.raises(
        ValueError, match="got 6 steps, expected at least 1 and at most 5, a stream"
    ):
        Replay(SIZES, 2, capacity=10).add_episode(episode(6, 0))
    wrong = episode(3, 0)
    wrong.reward[1] = np.nan
    replay = Replay(SIZES, 1)
    with pytest.raises(ValueError, match="reward: got nan"):
        replay.add_episode(wrong)
    assert (replay.steps, replay.episodes) == (0, 0)
