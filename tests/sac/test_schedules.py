"""Learning rates that are functions of the remaining progress."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from kalmanac._sac.callbacks import Callback
from kalmanac._sac.recurrent_sac import RecurrentSAC
from tests.sac.small import Listener, small, wandering


def linear(remaining):
    return 1e-2 * remaining


class Rates(Callback):
    """Writes down the rate behind each update."""

    def __init__(self):
        self.seen = []

    def on_update(self, model, metrics):
        self.seen.append((model.num_timesteps, model.learner.optimizer.learning_rate.item()))


def weights(model):
    return model.learner.optimizer.values.clone()


@pytest.mark.parametrize("overlap", [False, True])
def test_the_rate_of_an_update_is_that_of_the_steps_done(overlap):
    rates = Rates()
    model = small("memoryless", wandering(2), learning_rate=linear, overlap=overlap)
    model.learn(40, rates)
    assert len(rates.seen) == 20
    assert all(rate == linear(1 - step / 40) for step, rate in rates.seen)
    model.learn(40, rates)
    step, rate = rates.seen[20]
    assert rate == linear(1 - step / 80), "steps go on, as with reset_num_timesteps=False of SB3"
    assert rates.seen[-1][1] < rates.seen[20][1]


def test_updates_follow_the_rate():
    """A constant function is the number; a rate of zero moves nothing."""
    number, function = (
        small("memoryless", wandering(2), learning_rate=rate).learn(40)
        for rate in (3e-3, lambda remaining: 3e-3)
    )
    assert torch.equal(weights(number), weights(function))
    assert function.settings.learning_rate == 3e-3
    other = small("memoryless", wandering(2), learning_rate=linear).learn(40)
    assert not torch.equal(weights(number), weights(other))
    still = small("memoryless", wandering(2), learning_rate=lambda left: 1e-2 * (left > 0.99))
    before = weights(still)
    still.learn(40)
    assert still.num_updates == 20
    assert torch.equal(weights(still), before)


def test_a_training_that_is_left_and_gone_on_with_has_the_same_rates():
    whole = small("memoryless", wandering(2), learning_rate=linear).learn(60)
    one = small("memoryless", wandering(2), learning_rate=linear)
    kept: dict = {}

    class Leave(Callback):
        def on_step(self, model):
            if model.num_timesteps == 40:
                kept.update(model.checkpoint_state(), replay=model.replay.state_dict())
            return True

    one.learn(60, Leave())
    other = small("memoryless", wandering(2), learning_rate=linear)
    other.replay.load_state_dict(kept.pop("replay"))
    other.load_checkpoint_state(kept)
    rates = Rates()
    other.learn(20, rates)
    assert all(rate == linear(1 - step / 60) for step, rate in rates.seen)
    assert rates.seen[-1][0] == whole.num_timesteps == other.num_timesteps == 60


def test_a_file_holds_the_first_rate_and_load_takes_the_function_again(tmp_path):
    model = small("memoryless", wandering(2), learning_rate=linear).learn(30)
    assert model.learner.optimizer.learning_rate.item() == 0
    model.save(tmp_path / "m")
    plain = RecurrentSAC.load(tmp_path / "m", device="cpu")
    assert plain.settings.learning_rate == linear(1)
    assert plain.learner.optimizer.learning_rate.item() == linear(1)
    rates = Rates()
    again = RecurrentSAC.load(tmp_path / "m", wandering(2), device="cpu", learning_rate=linear)
    again.learn(30, rates)
    assert all(rate == linear(1 - step / 60) for step, rate in rates.seen)
    assert rates.seen


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (lambda remaining: 1e-3 if remaining > 0.6 else math.nan, r"got nan with 0\.\d+ of the"),
        (lambda remaining: 1e-3 if remaining > 0.6 else -1.0, r"got -1\.0 with 0\.\d+ of the"),
    ],
)
def test_a_rate_that_is_none_is_refused_when_it_comes(schedule, words):
    with pytest.raises(ValueError, match=f"learning_rate: {words}.*expected a finite number"):
        small("memoryless", wandering(2), learning_rate=schedule).learn(40)


def test_a_schedule_that_begins_with_nothing_is_refused():
    with pytest.raises(ValueError, match=r"learning_rate: got 0\.0, expected a number above 0"):
        small("memoryless", learning_rate=lambda remaining: 1 - remaining)


@pytest.mark.gpu
@pytest.mark.parametrize("graph", [True, False])
def test_a_recorded_update_reads_the_rate_that_it_is_given_now(graph):
    """Where the rate falls to zero long after the recording, parameters stand still."""
    stop, seen = 0.25, []

    class Weights(Callback):
        def on_step(self, model):
            seen.append((model.num_timesteps, weights(model).cpu().numpy()))

    model = small(
        "vssm+kf", wandering(2), learning_rate=lambda left: 1e-3 if left > stop else 0.0,
        device="cuda", graph=graph,
    )  # fmt: skip
    listener = Listener()
    model.learn(80, [Weights(), listener])
    moving = [x for step, x in seen if 30 < step < 80 * (1 - stop)]
    still = [x for step, x in seen if step >= 80 * (1 - stop)]
    assert len(moving) > 8
    assert all(not np.array_equal(a, b) for a, b in pairwise(moving))
    assert all(np.array_equal(still[0], x) for x in still)
    if graph:
        assert model._training._graphed_updates._recordings
    constant = small("vssm+kf", wandering(2), learning_rate=1e-3, device="cuda", graph=graph)
    other = small(
        "vssm+kf", wandering(2), learning_rate=lambda left: 1e-3, device="cuda", graph=graph
    )
    assert torch.equal(weights(constant.learn(40)), weights(other.learn(40)))
