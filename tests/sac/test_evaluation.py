import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from kalmanac._sac.eval_callback import EvalCallback
from kalmanac._sac.evaluation import Evaluation, evaluate_policy
from tests.sac.counting import Counting, counting_vector

EACH = pytest.mark.parametrize("mode", AutoresetMode)


class Always:
    """Action 1, and a state that counts the steps since each episode's start."""

    def __init__(self) -> None:
        self.counts: list[np.ndarray] = []

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        assert deterministic
        state = np.zeros(len(observation)) if state is None else state
        state = np.where(episode_start, 0, state)
        live = observation[:, 1] == state
        self.counts.append(live)
        return np.ones(len(observation), np.int64), state + 1


@EACH
def test_short_episodes_do_not_dominate(mode):
    vector = counting_vector((1,), (20,), mode=mode)
    actual = evaluate_policy(Always(), vector, 8)
    assert sorted(actual.lengths) == [1] * 4 + [20] * 4


@EACH
@pytest.mark.parametrize("episodes", [1, 3, 4, 7])
def test_quota_is_exact_and_differs_by_one_at_most(mode, episodes):
    vector = counting_vector((2,), (3,), (5,), mode=mode)
    actual = evaluate_policy(Always(), vector, episodes)
    assert len(actual.returns) == len(actual.lengths) == episodes
    counts = [int((actual.lengths == length).sum()) for length in (2, 3, 5)]
    assert max(counts) - min(counts) <= 1


@EACH
def test_state_restarts_with_each_episode(mode):
    model = Always()
    evaluate_policy(model, counting_vector((1,), (3, 2), mode=mode), 10)
    assert np.array(model.counts).all()


def test_results():
    actual = evaluate_policy(Always(), Counting((1, 3)), 3)
    assert actual.returns.tolist() == [1, 11 + 12 + 13, 21]
    assert actual.lengths.tolist() == [1, 3, 1]
    assert actual.wins is not None
    assert actual.wins.tolist() == [True, False, False]
    assert actual.mean_reward == pytest.approx(58 / 3)
    assert actual.std_reward == pytest.approx(np.std([1, 36, 21]))
    assert actual.mean_length == pytest.approx(5 / 3)
    assert actual.win_rate == pytest.approx(1 / 3)


def test_no_wins_where_none_are_told():
    assert Evaluation(np.zeros(2), np.ones(2, np.int64)).win_rate is None


@pytest.mark.parametrize("wrong", [0, 1.5, "a", True, None])
def test_episodes_are_a_number_of_at_least_one(wrong):
    message = rf"^n_eval_episodes: got {wrong!r}, expected an integer of at least 1$"
    with pytest.raises(ValueError, match=message):
        evaluate_policy(Always(), Counting((1,)), wrong)
    with pytest.raises(ValueError, match=message):
        EvalCallback(Counting((1,)), n_eval_episodes=wrong)
    assert len(evaluate_policy(Always(), Counting((1,)), np.int64(2)).returns) == 2


@EACH
def test_an_episode_that_does_not_end_is_cut_and_counted(mode):
    """The second environment's first episode is cut, and those due after it are not played."""
    vector = counting_vector((2,), (2, 10**9, 2), mode=mode)
    actual = evaluate_policy(Always(), vector, 8, max_steps=5)
    assert actual.lengths.tolist() == [2] * 4 + [2, 5]
    assert actual.returns.tolist()[-1] == 10 * 5 + 15
    assert actual.cut == 1
    assert actual.wins.tolist() == [True, False, False, True, True, False]


@EACH
def test_an_episode_that_ends_in_the_last_step_allowed_is_whole(mode):
    actual = evaluate_policy(Always(), counting_vector((5,), (5,), mode=mode), 4, max_steps=5)
    assert (actual.lengths.tolist(), actual.cut) == ([5] * 4, 0)


def test_where_all_are_cut_nobody_knows_of_wins():
    actual = evaluate_policy(Always(), Counting((10**9,)), 3, max_steps=4)
    assert (actual.lengths.tolist(), actual.cut, actual.wins) == ([4], 1, None)


def test_somebody_can_watch_every_step_and_end_it():
    seen = []
    evaluate_policy(Always(), Counting((2,)), 2, each_step=lambda *now: seen.append(now))
    assert seen == [(0, 0, 2), (1, 0, 2), (2, 1, 2), (3, 1, 2)]

    def enough(steps, done, episodes):
        if steps == 3:
            raise InterruptedError

    env = Counting((10**9,))
    with pytest.raises(InterruptedError):
        evaluate_policy(Always(), env, each_step=enough)
    assert env.time == 3


def test_a_bound_below_one_is_refused():
    with pytest.raises(ValueError, match="max_steps: got 0, expected at least 1"):
        evaluate_policy(Always(), Counting((1,)), max_steps=0)
