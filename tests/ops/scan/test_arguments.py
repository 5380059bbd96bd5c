"""Bad input: the error names the argument, what came and what was expected."""

import re

import pytest
import torch

from kalmanac._ops.scan.arguments import carry_dtype
from kalmanac._ops.scan.inputs import Belief
from kalmanac._ops.scan.kalman import kalman_scan, kalman_scan_packed
from kalmanac._ops.scan.linear import linear_scan

B, T, N = 2, 4, 3


def ones(*shape, dtype=torch.float32, device="cpu"):
    return torch.ones(shape, dtype=dtype, device=device)


def flags(*shape, dtype=torch.bool, device="cpu"):
    return torch.ones(shape, dtype=dtype, device=device)


def kalman_arguments():
    return {
        "a": ones(N), "u": ones(B, T, N), "q": ones(N), "w": ones(B, T, N), "r": ones(B, T, N),
        "b": ones(N), "prior": Belief(ones(N), ones(N)), "state": Belief(ones(B, N), ones(B, N)),
        "lengths": torch.tensor([T, 1]), "reset": flags(B, T), "observed": flags(B, T),
    }  # fmt: skip


def linear_arguments():
    return {
        "a": ones(B, T, N), "b": ones(B, T, N), "initial": ones(N), "state": ones(B, N),
        "lengths": torch.tensor([T, 1]), "reset": flags(B, T),
    }  # fmt: skip


SHAPE, THREE = re.escape(f"({B}, {T}, {N})"), "three axes"
FLOATS, CPU = "torch.float32", "cpu"

# argument, what comes, error, "got", "expected"
KALMAN = [
    ("w", ones(T, N), ValueError, r"shape \(4, 3\)", THREE),
    ("w", ones(B, T, N, dtype=torch.int64), TypeError, "dtype torch.int64", FLOATS),
    ("w", ones(B, T, N, dtype=torch.complex64), TypeError, "dtype torch.complex64", FLOATS),
    ("w", [[[1.0]]], TypeError, "list", "tensor"),
    ("r", ones(B, T, N + 1), ValueError, r"shape \(2, 4, 4\)", SHAPE),
    ("r", ones(B, T, N, dtype=torch.float64), TypeError, "dtype torch.float64", FLOATS),
    ("r", ones(B, T, N, device="meta"), ValueError, "device meta", CPU),
    ("r", 0.1, TypeError, "float", "tensor"),
    ("r", None, TypeError, "NoneType", "tensor"),
    ("u", ones(B, T + 1, N), ValueError, r"shape \(2, 5, 3\)", SHAPE),
    ("u", ones(B, T, N, dtype=torch.bfloat16), TypeError, "dtype torch.bfloat16", FLOATS),
    ("u", ones(B, T, N, device="meta"), ValueError, "device meta", CPU),
    ("u", 0.0, TypeError, "float", "tensor"),
    ("q", ones(B, N), ValueError, r"shape \(2, 3\)", rf"\(3,\) or {SHAPE}"),
    ("q", ones(B, 1, N), ValueError, r"shape \(2, 1, 3\)", SHAPE),
    ("q", ones(N + 1), ValueError, r"shape \(4,\)", r"\(3,\)"),
    ("q", ones(N, dtype=torch.float64), TypeError, "dtype torch.float64", FLOATS),
    ("q", ones(B, T, N, dtype=torch.float64), TypeError, "dtype torch.float64", FLOATS),
    ("q", ones(N, device="meta"), ValueError, "device meta", CPU),
    ("q", 0.1, TypeError, "float", "tensor"),
    ("a", ones(B, T, N), ValueError, r"shape \(2, 4, 3\)", r"\(3,\)"),
    ("a", ones(1), ValueError, r"shape \(1,\)", r"\(3,\)"),
    ("a", ones(N, dtype=torch.float64), TypeError, "dtype torch.float64", FLOATS),
    ("a", ones(N, device="meta"), ValueError, "device meta", CPU),
    ("a", 0.9, TypeError, "float", "tensor"),
    ("b", ones(B, N), ValueError, r"shape \(2, 3\)", r"\(3,\)"),
    ("b", ones(N, dtype=torch.float16), TypeError, "dtype torch.float16", FLOATS),
    ("b", 1.0, TypeError, "float", "tensor"),
    ("prior", ones(B, N), TypeError, "Tensor", "Belief"),
    ("prior", (ones(N),), TypeError, "tuple", "Belief"),
    ("prior.mean", Belief(ones(T), ones(N)), ValueError, r"shape \(4,\)", r"\(3,\) or \(2, 3\)"),
    ("prior.variance", Belief(ones(N), ones(B, 1)), ValueError, r"shape \(2, 1\)", r"\(2, 3\)"),
    ("prior.variance", Belief(ones(N), 1.0), TypeError, "float", "tensor"),
    ("state.mean", Belief(ones(B + 1, N), ones(N)), ValueError, r"shape \(3, 3\)", r"\(2, 3\)"),
    ("state.mean", Belief(ones(N, dtype=torch.float64), ones(N)), TypeError, "float64", FLOATS),
    ("state.variance", Belief(ones(N), ones(N, device="meta")), ValueError, "device meta", CPU),
    ("lengths", torch.tensor([T, T + 1]), ValueError, "values from 4 to 5", "0 to T = 4"),
    ("lengths", torch.tensor([-1, 2]), ValueError, "values from -1 to 2", "0 to T = 4"),
    ("lengths", [T + 1, 0], ValueError, "values from 0 to 5", "0 to T = 4"),
    ("lengths", torch.tensor([1, 2, 3]), ValueError, r"shape \(3,\)", r"\(2,\)"),
    ("lengths", [1], ValueError, r"shape \(1,\)", r"\(2,\)"),
    ("lengths", torch.tensor([1.0, 2.0]), TypeError, "dtype torch.float32", "torch.int32"),
    ("lengths", flags(B), TypeError, "dtype torch.bool", "torch.int32"),
    ("lengths", torch.ones(B, dtype=torch.int64, device="meta"), ValueError, "device meta", CPU),
    ("lengths", 3, TypeError, "3", r"\(B,\)"),
    ("reset", flags(B), ValueError, r"shape \(2,\)", r"\(2, 4\)"),
    ("reset", flags(B, T, dtype=torch.int64), TypeError, "dtype torch.int64", "torch.bool"),
    ("reset", flags(B, T, device="meta"), ValueError, "device meta", CPU),
    ("reset", True, TypeError, "bool", "tensor"),
    ("observed", flags(B, T, N), ValueError, r"shape \(2, 4, 3\)", r"\(2, 4\)"),
    ("observed", ones(B, T), TypeError, "dtype torch.float32", "torch.bool"),
    ("observed", flags(B, T, device="meta"), ValueError, "device meta", CPU),
    ("backend", "quantum", ValueError, "'quantum'", "reference, parallel, cpu"),
]

LINEAR = [
    ("b", ones(B, N), ValueError, r"shape \(2, 3\)", THREE),
    ("b", ones(B, T, N, dtype=torch.int32), TypeError, "dtype torch.int32", FLOATS),
    ("b", None, TypeError, "NoneType", "tensor"),
    ("a", ones(B, N), ValueError, r"shape \(2, 3\)", rf"\(3,\) or {SHAPE}"),
    ("a", ones(B, 1, N), ValueError, r"shape \(2, 1, 3\)", SHAPE),
    ("a", ones(B, T, N, dtype=torch.complex64), TypeError, "dtype torch.complex64", FLOATS),
    ("a", ones(N, dtype=torch.float64), TypeError, "dtype torch.float64", FLOATS),
    ("a", ones(N, device="meta"), ValueError, "device meta", CPU),
    ("a", 0.9, TypeError, "float", "tensor"),
    ("initial", ones(T), ValueError, r"shape \(4,\)", r"\(3,\) or \(2, 3\)"),
    ("initial", 0.0, TypeError, "float", "tensor"),
    ("state", ones(B, 1), ValueError, r"shape \(2, 1\)", r"\(3,\) or \(2, 3\)"),
    ("state", ones(N, dtype=torch.float16), TypeError, "dtype torch.float16", FLOATS),
    ("lengths", [0, T + 1], ValueError, "values from 0 to 5", "0 to T = 4"),
    ("lengths", [-2, 0], ValueError, "values from -2 to 0", "0 to T = 4"),
    ("reset", flags(T, B), ValueError, r"shape \(4, 2\)", r"\(2, 4\)"),
    ("backend", "", ValueError, "''", "reference, parallel, cpu"),
]


def ids(table):
    return [f"{i}-{row[0]}" for i, row in enumerate(table)]


def refused(scan, arguments, error, name, got, expected):
    with pytest.raises(error, match=rf"^{re.escape(name)}: got .*{got}.*expected .*({expected})"):
        scan(**arguments)


@pytest.mark.parametrize(("name", "value", "error", "got", "expected"), KALMAN, ids=ids(KALMAN))
def test_kalman_scan_refuses(name, value, error, got, expected):
    changed = {**kalman_arguments(), name.partition(".")[0]: value}
    refused(kalman_scan, changed, error, name, got, expected)


@pytest.mark.parametrize(("name", "value", "error", "got", "expected"), LINEAR, ids=ids(LINEAR))
def test_linear_scan_refuses(name, value, error, got, expected):
    changed = {**linear_arguments(), name.partition(".")[0]: value}
    refused(linear_scan, changed, error, name, got, expected)


PACKED = [
    ("layout", {"layout": "uw"}, ValueError, "'uw'", "w and r"),
    ("layout", {"layout": "uwrr"}, ValueError, "'uwrr'", "once each"),
    ("layout", {"layout": "wrx"}, ValueError, "'wrx'", "w and r"),
    ("signals", {"signals": ones(B, T, 3 * N + 1)}, ValueError, "10 channels", "multiple of 3"),
    ("signals", {"signals": ones(B, 3 * N)}, ValueError, r"shape \(2, 9\)", THREE),
    ("signals", {"signals": ones(B, T, 3 * N).int()}, TypeError, "torch.int32", FLOATS),
    ("q", {"q": None}, ValueError, "NoneType", ""),
    ("q", {"signals": ones(B, T, 4 * N), "layout": "uwrq"}, ValueError, "Tensor", ""),
    ("q", {"q": ones(B, T, N)}, ValueError, r"shape \(2, 4, 3\)", r"\(3,\)"),
    ("a", {"a": ones(N + 1)}, ValueError, r"shape \(4,\)", r"\(3,\)"),
]


@pytest.mark.parametrize(("name", "changes", "error", "got", "expected"), PACKED, ids=ids(PACKED))
def test_kalman_scan_packed_refuses(name, changes, error, got, expected):
    arguments = {"a": ones(N), "signals": ones(B, T, 3 * N), "q": ones(N), **changes}
    refused(kalman_scan_packed, arguments, error, name, got, expected)


def test_all_that_is_right_passes():
    """Otherwise the tables above could pass for the wrong reason."""
    kalman_scan(**kalman_arguments(), check=True)
    linear_scan(**linear_arguments(), check=True)
    kalman_scan_packed(ones(N), ones(B, T, 3 * N), ones(N), check=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_carries_are_float32_at_least(dtype):
    assert carry_dtype(dtype) == torch.float32
    for wide in (torch.float32, torch.float64, torch.complex64, torch.complex128):
        assert carry_dtype(wide) == wide
