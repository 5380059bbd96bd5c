"""Losses of learning from data, checked by hand."""

import math

import pytest
import torch

from kalmanac._ops.data_losses import (
    EDGE,
    advantage_weights,
    bounded_temperature,
    come_true,
    copying_losses,
    data_returns,
    moved_actions,
    near_data,
    spread,
    unseen,
    with_temperature,
)
from kalmanac._ops.sac_losses import Counted, Losses

NAN = math.nan


def test_returns_go_on_to_the_windows_end_and_there_ask_for_a_value() -> None:
    reward = torch.tensor([[1.0, 2.0, 4.0, NAN]])
    value = torch.tensor([[100.0, 100.0, 8.0, NAN]])  # of the next tokens
    valid, never = torch.tensor([[True, True, True, False]]), torch.zeros(1, 4).bool()
    returns = data_returns(reward, never, valid, value, 0.5)
    assert returns[0, :3].tolist() == [1 + 0.5 * (2 + 0.5 * 8), 2 + 0.5 * 8, 4 + 0.5 * 8]
    ended = torch.tensor([[False, False, True, False]])
    assert data_returns(reward, ended, valid, value, 0.5)[0, :3].tolist() == [3.0, 4.0, 4.0]
    assert data_returns(reward, never, valid, value, 0.0)[0, :3].tolist() == [1.0, 2.0, 4.0]


def test_windows_of_a_row_know_nothing_of_each_other() -> None:
    reward = torch.tensor([[NAN, 1.0, NAN, 2.0, 4.0]])  # a burn-in, a window, a gap, another
    valid = torch.tensor([[False, True, False, True, True]])
    value, never = torch.tensor([[9.0, 6.0, 9.0, 9.0, 8.0]]), torch.zeros(1, 5).bool()
    returns = data_returns(reward, never, valid, value, 0.5)
    assert returns[valid].tolist() == [1 + 3, 2 + 0.5 * (4 + 4), 4 + 4]
    ends = torch.tensor([[False, False, False, True, False]])
    assert data_returns(reward, ends, valid, value, 0.5)[valid].tolist() == [4.0, 2.0, 8.0]


def test_actions_move_up_their_values_in_units_of_the_policys_spread() -> None:
    steps = Counted.of(torch.tensor([[True, True, False]]))
    action = torch.tensor([[[0.0], [0.5], [0.0]]])
    std = torch.tensor([[[0.2], [0.4], [1.0]]])
    slope = torch.tensor([[[5.0], [-20 / 3], [NAN]]])  # gains of 1 and -2, as 1 - 0.5² is 0.75
    spread = math.sqrt((1 + 4) / 2)
    moved = torch.atanh(moved_actions(action, slope, std, steps, 0.5))[0, :2, 0]
    expected = [0.2 * 0.5 / spread, math.atanh(0.5) - 0.4 * 0.5 * 2 / spread]
    torch.testing.assert_close(moved, torch.tensor(expected))
    far = torch.atanh(moved_actions(action, slope, std, steps, 50.0))[0, :2, 0]
    torch.testing.assert_close(far, torch.tensor([0.2, math.atanh(0.5) - 0.4]))
    flat = moved_actions(action, torch.zeros_like(slope), std, steps, 0.5)
    assert torch.equal(flat, action)
    assert torch.equal(
        moved_actions(action, slope, std, steps, torch.tensor(0.0))[:, :2], action[:, :2]
    )


def test_actions_at_the_edge_stay_finite() -> None:
    steps, one = Counted.of(torch.tensor([[True]])), torch.ones(1, 1, 1)
    moved = moved_actions(one, one, one, steps, 0.5)
    assert torch.atanh(moved).isfinite().all()
    assert moved.item() >= EDGE


def test_better_actions_count_for_more() -> None:
    steps = Counted.of(torch.tensor([[True, True, False]]))
    advantage = torch.tensor([[9.0, 5.0, NAN]])  # 7 ± 2: the spread is 2
    half = advantage_weights(advantage, steps, 0.5)[0, :2]
    expected = torch.tensor([math.exp(0.5), math.exp(-0.5)]) / math.cosh(0.5)
    torch.testing.assert_close(half, expected)
    assert advantage_weights(advantage, steps, 0.0)[0, :2].tolist() == [1.0, 1.0]
    alike = advantage_weights(torch.full((1, 3), 4.0), steps, 0.5)
    assert alike.tolist() == [[1.0, 1.0, 1.0]]
    nothing = Counted.of(torch.zeros(1, 3).bool())
    assert advantage_weights(torch.ones(1, 3), nothing, 0.5).isfinite().all()


def test_a_single_action_does_not_count_for_all() -> None:
    advantage = torch.tensor([[10.0] + 9 * [0.0]])  # 1 on average, the spread is 3
    counts = advantage_weights(advantage, Counted.of(torch.ones(1, 10).bool()), 2.4)
    other = math.exp(-2.4 / 3)  # while exp(2.4 · 9 / 3) is 1339
    expected = torch.tensor([[100.0] + 9 * [other]]) * 10 / (100 + 9 * other)
    torch.testing.assert_close(counts, expected)


def test_copying_losses_by_hand() -> None:
    steps = Counted.of(torch.tensor([[True, True, False]]))
    copying = torch.tensor([[2.0, 4.0, NAN]], requires_grad=True)
    q = torch.tensor([[[4.0, 4.0, NAN]], [[6.0, 2.0, NAN]]], requires_grad=True)
    returns, entropy = torch.tensor([[5.0, 3.0, NAN]]), torch.tensor([[1.0, 2.0, NAN]])
    episode = torch.tensor(
        [[4, 5, 5]]
    )  # the first step is the first twin's, the second the second's
    losses = copying_losses(copying, entropy, q, returns, episode, steps)
    assert losses.losses["actor_loss"].item() == 3
    assert losses.losses["critic_loss"].item() == 2 * (1 + 1) / 2
    assert "ent_coef_loss" not in losses.losses
    assert losses.numbers["ent_coef"].item() == 0
    assert losses.numbers["cloning_loss"].item() == 3
    slopes = torch.autograd.grad(losses.roots, [copying, q])
    assert slopes[0].tolist() == [[0.5, 0.5, 0.0]]
    assert slopes[1].tolist() == [[[-2.0, 0.0, 0.0]], [[0.0, -2.0, 0.0]]]
    assert unseen(q, episode)[0, :2].tolist() == [6.0, 4.0], "what did not learn from the step"


def test_only_what_comes_true_of_advantages_counts() -> None:
    steps = Counted.of(torch.tensor([[True, True, True, False]]))
    advantage = torch.tensor([[1.0, 2.0, 3.0, NAN]])
    for outcome, slope in (([10, 10.5, 11], 0.5), ([4, 2, 0], -1), ([0, 4, 8], 1), ([1, 9, 1], 0)):
        found = come_true(advantage, torch.tensor([[*map(float, outcome), NAN]]), steps)
        assert found.item() == pytest.approx(slope, abs=1e-6)
    assert come_true(torch.ones(1, 4), torch.rand(1, 4), steps).item() == 0


@pytest.mark.parametrize("share", [1.0, 0.2, torch.tensor(0.2)])
def test_a_share_of_copies_by_hand(share: float | torch.Tensor) -> None:
    climbed = torch.tensor(-3.0, requires_grad=True)
    copying = torch.tensor([[2.0, 4.0, NAN]], requires_grad=True)
    judged = Losses([climbed], None, {"actor_loss": climbed}, {})
    steps = Counted.of(torch.tensor([[True, True, False]]))
    unit, part = spread(torch.tensor([[0.0, 0.5, NAN]]), steps), float(share)
    assert unit.item() == 0.5, "the root of the mean square"
    near = near_data(judged, copying, unit, steps, share)
    assert near.numbers["cloning_loss"].item() == 3
    expected = (1 - part) * -3 / 0.5 + part * 3
    assert near.losses["actor_loss"].item() == pytest.approx(expected, abs=1e-6)
    slopes = torch.autograd.grad(near.roots, [climbed, copying], near.slopes)
    torch.testing.assert_close(slopes[0], torch.tensor((1 - part) / 0.5))
    torch.testing.assert_close(slopes[1], torch.tensor([[part / 2, part / 2, 0.0]]))


@pytest.mark.parametrize("share", [0.2, torch.tensor(0.2)])
def test_beside_copies_a_temperature_leaves_something_of_advantages(
    share: float | torch.Tensor,
) -> None:
    unit = torch.tensor(0.5)
    for alpha, bounded in ((0.1, 0.1), (0.5, 0.5), (100.0, 0.5), (0.0, 0.0)):
        log_alpha = torch.tensor(alpha, requires_grad=True).log()
        log = bounded_temperature(log_alpha, unit, share)
        assert not log.requires_grad
        assert log.exp().item() == pytest.approx(0.8 * bounded)
    for all_copies in (1.0, torch.tensor(1.0)):
        log = bounded_temperature(torch.tensor(0.0), unit, all_copies)
        assert log.exp().item() == pytest.approx(0.5e-6), "what is divided by it stays finite"


@pytest.mark.parametrize("slopes", [False, True])
def test_a_temperature_beyond_its_bounds_comes_back_whatever_the_entropy(slopes: bool) -> None:
    steps = Counted.of(torch.tensor([[True, True, False]]))
    goals = torch.tensor([[-5.0, -7.0, NAN]])  # -6 on average
    for alpha, slope_below, slope_above in ((0.1, -2, 3), (1, 2, 3), (0.004, -2, -3)):
        for entropy, slope in ((-8.0, slope_below), (-3.0, slope_above)):
            log_alpha = torch.tensor(math.log(alpha), requires_grad=True)
            actor = torch.tensor(2.0, requires_grad=True)
            begins = [torch.tensor(4.0)] if slopes else None
            numbers = {"entropy": torch.tensor(entropy)}
            judged = Losses([actor], begins, {"actor_loss": actor}, numbers)
            for goal in (-6.0, goals):
                losses = with_temperature(judged, log_alpha, torch.tensor(0.5), goal, steps)
                expected = pytest.approx(math.log(alpha) * slope)
                assert losses.losses["ent_coef_loss"].item() == expected
                found = torch.autograd.grad(losses.roots, [actor, log_alpha], losses.slopes)
                assert [x.item() for x in found] == [4.0 if slopes else 1.0, slope]
