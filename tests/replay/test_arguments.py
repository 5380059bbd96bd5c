"""What a replay refuses, and that a refused call changes nothing."""

import re
from typing import Any

import numpy as np
import pytest
import torch

from kalmanac._observation import Observation, Sizes
from kalmanac._replay.buffer import Replay

NO = np.zeros(2, bool)
STEP: dict[str, Any] = {
    "streams": np.array([2, 0]), "action": np.array([1, 0]), "reward": np.ones(2),
    "terminated": NO, "truncated": NO,
    "observation": Observation(np.ones((2, 1)), observed=~NO, privileged=np.ones((2, 3))),
}  # fmt: skip


def shown(**changes: Any) -> dict[str, Any]:
    return {"observation": STEP["observation"]._replace(**changes)}


@pytest.fixture
def replay() -> Replay:
    replay = Replay(Sizes(1, 3, True, privileged=3, observed=True), 4)
    replay.begin(STEP["streams"], STEP["observation"])
    return replay


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"streams": np.array([2, 1])}, "add: got stream 1, expected an open episode"),
        ({"streams": np.array([2, 4])}, "streams: got 4, expected 0 to 3"),
        ({"streams": np.array([-1, 0])}, "streams: got -1, expected 0 to 3"),
        ({"streams": np.array([2, 2])}, "streams: got 2 more than once"),
        ({"streams": np.array([2.0, 0.0])}, "streams: got shape (2,) of float64"),
        ({"streams": np.array([[2, 0]])}, "streams: got shape (1, 2) of int64"),
        ({"action": np.array([3, 0])}, "action: got 3 in stream 2, expected 0 to 2"),
        ({"action": np.array([0, -1])}, "action: got -1 in stream 0, expected 0 to 2"),
        ({"action": np.ones(2)}, "action: got shape (2,) of float64, expected integers"),
        ({"action": np.array([1])}, "action: got shape (1,) of int64, expected integers"),
        ({"reward": np.array([0, np.nan])}, "reward: got nan in stream 0, expected finite"),
        ({"reward": np.array([1e300, 0])}, "reward: got inf in stream 2, expected finite"),
        ({"reward": np.ones((2, 1))}, "reward: got shape (2, 1), expected (2,)"),
        ({"terminated": np.ones(2)}, "terminated: got shape (2,) of float64, expected bool"),
        ({"truncated": np.array([True])}, "truncated: got shape (1,) of bool, expected bool"),
        (shown(vector=np.array([[np.inf], [0]])), "observation: got inf in stream 2"),
        (shown(vector=torch.tensor([[0], [torch.nan]])), "observation: got nan in stream 0"),
        (shown(vector=np.ones((2, 2))), "observation: got shape (2, 2), expected (2, 1)"),
        (shown(privileged=None), "privileged: got None, expected values, as the sizes say"),
        (shown(privileged=np.full((2, 3), np.nan)), "privileged: got nan in stream 2"),
        (shown(observed=None), "observed: got None, expected values, as the sizes say"),
        (shown(observed=np.ones(2)), "observed: got shape (2,) of float64, expected bool"),
    ],
)
def test_a_bad_step_is_refused_and_nothing_stored(
    replay: Replay, changes: dict[str, Any], message: str
) -> None:
    before = replay.state_dict()
    with pytest.raises(ValueError, match=re.escape(message)):
        replay.add(**(STEP | changes))
    after = replay.state_dict()
    for part in ("storage", "episodes"):
        for name, value in before[part].items():
            assert torch.equal(value, after[part][name]), name
    replay.add(**STEP)
    assert (replay.steps, replay.episodes) == (2, 2)


def test_values_that_are_no_numbers(replay: Replay) -> None:
    with pytest.raises(TypeError, match="reward: got values of type <U1, expected numbers"):
        replay.add(**(STEP | {"reward": ["a", "b"]}))


def test_values_that_the_sizes_do_not_name() -> None:
    replay = Replay(Sizes(1, 3, True), 1)
    with pytest.raises(ValueError, match="privileged: got values, expected None"):
        replay.begin([0], Observation([[0.0]], privileged=[[1.0]]))
    with pytest.raises(ValueError, match="observed: got values, expected None"):
        replay.begin([0], Observation([[0.0]], observed=[True]))
    with pytest.raises(TypeError, match="observation: got list, expected an Observation"):
        replay.begin([0], [[0.0]])


def test_begin_in_the_middle_of_an_episode(replay: Replay) -> None:
    with pytest.raises(ValueError, match="begin: got stream 2, expected no open episode there"):
        replay.begin([1, 2], STEP["observation"])
    replay.close([2])
    replay.begin([1, 2], STEP["observation"])


def frozen(x: np.ndarray) -> np.ndarray:
    copied = x.copy()
    copied.flags.writeable = False
    return copied


def test_numpy_lists_and_tensors_are_the_same(replay: Replay) -> None:
    replay.add(**STEP)
    for form in (np.ndarray.tolist, torch.from_numpy, frozen):
        others = {name: form(x) for name, x in STEP.items() if name != "observation"}
        replay.add(**others, observation=STEP["observation"].map(form))
    assert replay.steps == 8
    batch = replay.sample(5, 4, generator=torch.Generator().manual_seed(0))
    for field in (*batch.observation.parts().values(), batch.action, batch.reward):
        assert torch.equal(field[:, 1:3], field[:, 0:2]), "all four steps are the same"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sizes": Sizes(0, 3, True)}, "sizes.observation: got 0"),
        ({"sizes": Sizes(1, 0, True)}, "sizes.action: got 0"),
        ({"sizes": Sizes(1, 1, True, -1)}, "sizes.privileged: got -1"),
        ({"streams": 0}, "streams: got 0, expected an integer of at least 1"),
        ({"capacity": 3}, "capacity: got 3, expected an integer of at least 4"),
    ],
)
def test_bad_sizes(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Replay(**({"sizes": Sizes(1, 3, True), "streams": 4} | arguments))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch": 0}, "batch: got 0, expected an integer of at least 1"),
        ({"context": 2.5}, "context: got 2.5, expected an integer of at least 1"),
        ({"burn_in": -1}, "burn_in: got -1, expected an integer of at least 0"),
        ({"rule": "start"}, "rule: got 'start', expected one of episodes, starts, transitions"),
    ],
)
def test_bad_draws(replay: Replay, arguments: dict[str, Any], message: str) -> None:
    replay.add(**STEP)
    settings = {"batch": 2, "context": 2} | arguments
    with pytest.raises(ValueError, match=re.escape(message)):
        replay.sample(**settings, generator=torch.Generator())


def test_nothing_to_draw_from(replay: Replay) -> None:
    with pytest.raises(ValueError, match="replay: got no transitions yet"):
        replay.sample(2, 2, generator=torch.Generator())


def test_no_streams_at_all_is_fine(replay: Replay) -> None:
    replay.begin([], STEP["observation"].map(lambda x: x[:0]))
    replay.close([])
    assert replay.steps == 0
