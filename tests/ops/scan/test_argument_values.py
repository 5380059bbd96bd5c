"""Checks that read values: lengths always where that is free, noise when asked for, masks."""

import re

import pytest
import torch

from kalmanac._ops.scan.arguments import lengths_from_padding
from kalmanac._ops.scan.inputs import Belief
from kalmanac._ops.scan.kalman import kalman_scan
from tests.ops.scan.targets import every_target
from tests.ops.scan.test_arguments import B, N, T, kalman_arguments, ones

BAD = pytest.mark.parametrize("bad", [0.0, -1.0, torch.nan, torch.inf])


def with_bad_noise(name, bad):
    arguments = kalman_arguments()
    arguments["q"] = ones(B, T, N)
    if "." in name:
        belief = Belief(ones(B, N), ones(B, N))
        belief.variance[1, 2] = bad
        arguments[name.partition(".")[0]] = belief
    else:
        arguments[name][0, 2, 1] = bad
    return arguments


@BAD
@pytest.mark.parametrize("name", ["q", "r", "prior.variance", "state.variance"])
def test_checks_of_values_refuse_noise_that_is_not_positive(name, bad):
    where = re.escape(str((1, 2) if "." in name else (0, 2, 1)))
    with pytest.raises(ValueError, match=rf"^{name}: got {bad:g} at index {where}, expected .*> 0"):
        kalman_scan(**with_bad_noise(name, bad), check=True)


@BAD
def test_checks_of_values_refuse_constant_noise_that_is_not_positive(bad):
    arguments = {**kalman_arguments(), "q": torch.tensor([1.0, bad, 1.0])}
    with pytest.raises(ValueError, match=rf"^q: got {bad:g} at index \(1,\), expected"):
        kalman_scan(**arguments, check=True)


@BAD
def test_checks_of_values_pass_over_what_does_not_count(bad):
    """Pads and missing readings hold whatever they hold; raw noise has any sign."""
    arguments = {**kalman_arguments(), "lengths": [2, 0], "q": ones(B, T, N)}
    for name in ("q", "r"):
        arguments[name][0, 2:] = bad
        arguments[name][1] = bad
    kalman_scan(**arguments, check=True)
    arguments = kalman_arguments()
    arguments["r"][0, 1] = bad
    arguments["observed"][0, 1] = False
    kalman_scan(**arguments, check=True)


def test_raw_noise_of_any_sign_passes_the_checks():
    arguments = kalman_arguments()
    arguments["r"] *= -1
    arguments["q"] *= -1
    kalman_scan(**arguments, r_floor=1e-3, q_floor=1e-3, check=True)
    with pytest.raises(ValueError, match=r"^q: got -1"):
        kalman_scan(**arguments, r_floor=1e-3, check=True)
    with pytest.raises(ValueError, match=r"^r: got -1"):
        kalman_scan(**arguments, q_floor=1e-3, check=True)


@pytest.mark.parametrize("bad", [-1.0, -1e-9, float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["r_floor", "q_floor"])
def test_floors_that_would_make_noise_negative_are_refused(name, bad):
    with pytest.raises(ValueError, match=rf"^{name}: got .*{bad}, expected .* at least 0"):
        kalman_scan(**kalman_arguments(), **{name: bad})
    kalman_scan(**kalman_arguments(), **{name: 0})


@every_target
def test_lengths_are_checked_on_every_device_that_was_asked_for(target):
    target.require(torch.float32)
    x = ones(B, T, N, device=target.device)
    arguments = {"a": x[0, 0], "u": None, "q": x[0, 0], "w": x, "r": x}
    arguments["lengths"] = torch.tensor([0, T + 1], device=target.device)
    with pytest.raises(ValueError, match=r"^lengths: got values from 0 to 5, expected 0 to T = 4"):
        kalman_scan(**arguments, check=True, backend=target.backend)


def test_lengths_of_no_rows():
    x = ones(0, T, N)
    posterior, _ = kalman_scan(ones(N), x, ones(N), x, x, lengths=[])
    assert posterior.mean.shape == (0, T, N)


def test_lengths_from_padding_count_what_is_not_padded():
    mask = torch.tensor([[False, False, True], [True, True, True], [False, False, False]])
    assert lengths_from_padding(mask).tolist() == [2, 0, 3]
    assert lengths_from_padding(torch.zeros(2, 0, dtype=torch.bool)).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("mask", "row", "step"),
    [([[0, 0, 0], [0, 1, 0]], 1, 1), ([[1, 0, 0]], 0, 0), ([[1, 1, 0, 1]], 0, 1)],
)
def test_lengths_from_padding_refuses_a_hole(mask, row, step):
    message = f"got a hole in row {row} .*step {step} is padded, step {step + 1} is not"
    with pytest.raises(ValueError, match=rf"^mask: {message}.*expected right-padding"):
        lengths_from_padding(torch.tensor(mask, dtype=torch.bool))


@pytest.mark.parametrize(
    ("mask", "error", "got"),
    [
        (torch.zeros(3, dtype=torch.bool), ValueError, r"shape \(3,\)"),
        (torch.zeros(2, 3), TypeError, "torch.float32"),
        ([[True]], TypeError, "list"),
    ],
    ids=["shape", "dtype", "type"],
)
def test_lengths_from_padding_refuses_other_things(mask, error, got):
    with pytest.raises(error, match=rf"^mask: got {got}.*expected .*\(B, T\)"):
        lengths_from_padding(mask)
