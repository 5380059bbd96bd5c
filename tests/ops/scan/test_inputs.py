"""Which steps count, and the harmless numbers that replace those that do not."""

import torch

from kalmanac._ops.scan.inputs import LinearInputs, neutral_linear, valid_steps


def test_valid_steps_are_those_before_the_length():
    valid = valid_steps(torch.tensor([0, 1, 3], dtype=torch.int32), torch.empty(3, 3, 1))
    assert valid.tolist() == [[False] * 3, [True, False, False], [True] * 3]


def test_valid_steps_of_an_empty_sequence():
    assert valid_steps(torch.tensor([0, 0]), torch.empty(2, 0, 1)).shape == (2, 0)


def test_a_neutral_linear_pad_keeps_the_state():
    garbage = torch.full((1, 3, 1), float("nan"))
    zero = torch.zeros(1, 1)
    kept = neutral_linear(LinearInputs(garbage, garbage, zero, zero, torch.tensor([1]), None))
    assert torch.equal(kept.a[0, 1:, 0], torch.ones(2))
    assert torch.equal(kept.b[0, 1:, 0], torch.zeros(2))
    assert torch.isnan(kept.a[0, 0, 0])
    assert torch.isnan(kept.b[0, 0, 0])
