"""A replay saved and loaded goes on as if nothing had happened; a copied table keeps up."""

import numpy as np
import pytest
import torch

from kalmanac._observation import Observation, Sizes
from kalmanac._replay.buffer import Replay
from kalmanac._replay.episodes import Episodes
from kalmanac._replay.sampling import RULES, Batch
from tests.replay.model import CONTINUOUS, DISCRETE, assert_same
from tests.waiting import never_waiting

STREAMS = 5
every_kind = pytest.mark.parametrize("sizes", [DISCRETE, CONTINUOUS], ids=["discrete", "full"])
every_capacity = pytest.mark.parametrize("capacity", [None, 60])


def feed(replay: Replay, opened: np.ndarray, steps: int, seed: int) -> None:
    """Random steps in random streams. `opened` (streams,) bool is kept up to date."""
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        fresh = np.flatnonzero(~opened & (rng.random(STREAMS) < 0.5))
        replay.begin(fresh, token(replay.sizes, rng, fresh.size))
        opened[fresh] = True
        at = rng.permutation(np.flatnonzero(opened & (rng.random(STREAMS) < 0.8)))
        action = rng.integers(0, 3, at.size)
        if not replay.sizes.discrete:
            action = rng.standard_normal((at.size, 3))
        ends = rng.random((2, at.size)) < 0.08
        reward = rng.standard_normal(at.size)
        replay.add(at, action, reward, *ends, token(replay.sizes, rng, at.size))
        opened[at[ends.any(0)]] = False


def token(sizes: Sizes, rng: np.random.Generator, k: int) -> Observation[np.ndarray]:
    observation = Observation(rng.standard_normal((k, 2)))
    if sizes.privileged:
        observation = observation._replace(privileged=rng.standard_normal((k, 2)))
    return observation._replace(observed=rng.random(k) < 0.8) if sizes.observed else observation


def batches(replay: Replay, generator: torch.Generator) -> list[Batch]:
    return [
        replay.sample(16, 7, generator=generator, rule=rule, burn_in=2, packed=packed)
        for rule in RULES
        for packed in (False, True)
    ]


def assert_alike(a: Replay, b: Replay, seed: int = 0) -> None:
    assert (a.steps, a.episodes) == (b.steps, b.episodes)
    drawn = [batches(replay, torch.Generator().manual_seed(seed)) for replay in (a, b)]
    for x, y in zip(*drawn, strict=True):
        assert_same(x, y)


@every_kind
@every_capacity
def test_a_loaded_replay_goes_on_bit_for_bit(sizes: Sizes, capacity: int | None) -> None:
    first, opened = Replay(sizes, STREAMS, capacity=capacity), np.zeros(STREAMS, bool)
    feed(first, opened, 150, seed=0)
    assert opened.any()
    state = first.state_dict()
    second = Replay(sizes, STREAMS, capacity=capacity)
    feed(second, np.zeros(STREAMS, bool), 9, seed=1)  # what it held before must not matter
    second.load_state_dict(state)
    assert_alike(first, second)
    for seed, replay in enumerate((first, second)):  # neither shares memory with the state
        replay.sample(2, 2, generator=torch.Generator().manual_seed(seed))
        feed(replay, opened.copy(), 120, seed=2)
    assert_alike(first, second)
    third = Replay(sizes, STREAMS, capacity=capacity)
    third.load_state_dict(state)
    feed(third, opened.copy(), 120, seed=2)
    assert_alike(first, third)


def test_a_state_is_tensors_and_plain_data_only() -> None:
    replay = Replay(CONTINUOUS, STREAMS, capacity=50)
    feed(replay, np.zeros(STREAMS, bool), 20, seed=0)
    state = replay.state_dict()
    for part in ("storage", "episodes"):
        assert all(type(value) is torch.Tensor for value in state[part].values())
        assert all(value.is_contiguous() for value in state[part].values())
    assert all(type(value) in (int, bool, tuple) for value in state["sizes"].values())
    assert all(type(state[name]) is int for name in ("streams", "capacity", "rows"))


def test_a_state_holds_no_more_rows_than_were_used() -> None:
    replay, opened = Replay(DISCRETE, STREAMS), np.zeros(STREAMS, bool)
    feed(replay, opened, 3, seed=0)
    assert replay.state_dict()["storage"]["reward"].shape[1] <= 6


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (Replay(CONTINUOUS, STREAMS, capacity=50), "sizes: got"),
        (Replay(DISCRETE, 4, capacity=50), "streams: got 5, expected 4"),
        (Replay(DISCRETE, STREAMS), "capacity: got 50, expected None"),
    ],
)
def test_a_state_of_another_kind_is_refused(other: Replay, message: str) -> None:
    state = Replay(DISCRETE, STREAMS, capacity=50).state_dict()
    with pytest.raises(ValueError, match=message):
        other.load_state_dict(state)


@every_capacity
def test_the_copy_of_the_table_keeps_up(
    monkeypatch: pytest.MonkeyPatch, capacity: int | None
) -> None:
    """As on another device, where the table's tensors are not the bookkeeping's own memory."""
    plain, copied = (Replay(DISCRETE, STREAMS, capacity=capacity) for _ in range(2))
    monkeypatch.setattr(copied._episodes, "_copied", True)
    copied._episodes._set_table(np.zeros((3, 4), np.int64), 0)
    opened = np.zeros((2, STREAMS), bool)
    for seed in range(20):
        feed(plain, opened[0], 9, seed)
        feed(copied, opened[1], 9, seed)
        assert_alike(plain, copied, seed)
    copied.load_state_dict(plain.state_dict())
    assert_alike(plain, copied)


@pytest.mark.gpu
@every_kind
@every_capacity
def test_a_replay_on_the_gpu_equals_one_on_the_cpu(sizes: Sizes, capacity: int | None) -> None:
    here, there = (
        Replay(sizes, STREAMS, capacity=capacity, device=device) for device in ("cpu", "cuda")
    )
    opened = np.zeros((2, STREAMS), bool)
    for seed in range(40):
        feed(here, opened[0], 9, seed)
        feed(there, opened[1], 9, seed)
        drawn = [batches(replay, torch.Generator().manual_seed(seed)) for replay in (here, there)]
        for x, y in zip(*drawn, strict=True):
            tensors = (*y.observation, *y[1:])
            assert all(field is None or field.is_cuda for field in tensors)
            assert_same(x, y.map(torch.Tensor.cpu))


@pytest.mark.gpu
def test_unpacked_batches_on_the_gpu_never_wait_for_the_device() -> None:
    replay = Replay(CONTINUOUS, STREAMS, capacity=60, device="cuda")
    feed(replay, np.zeros(STREAMS, bool), 90, seed=0)
    generator = torch.Generator("cuda").manual_seed(0)
    for rule in RULES:
        replay.sample_windows(8, 5, generator=generator, rule=rule)  # brings the table up to date
        with never_waiting():
            replay.sample(
                8, 5, generator=generator, rule=rule, burn_in=2, true_previous_action=True
            )


def test_the_host_table_is_the_bookkeeping_itself() -> None:
    episodes = Episodes(2, None, 8, torch.device("cpu"))
    episodes.begin(np.array([1]))
    table = episodes.table()
    episodes.extend(np.array([1]))
    assert int(table.episodes) == 1
    assert table.entries[:, 0].tolist() == [1, 0, 1]
