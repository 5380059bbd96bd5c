"""The doctor finds healthy backends healthy, and every kind of sick one sick."""

import json
import sys

import pytest
import torch

from kalmanac._cli import doctor
from kalmanac._cli.program import main
from kalmanac._ops.scan.backends import BACKENDS
from kalmanac._ops.scan.inputs import Belief
from kalmanac._ops.selftest import BUDGETS, judge, relative_error

pytestmark = pytest.mark.usefixtures("compiled_only")

CPU = torch.device("cpu")


def sabotage(monkeypatch, **parts):
    """Replace parts of the `parallel` backend in the table that dispatch reads."""
    monkeypatch.setitem(BACKENDS, "parallel", BACKENDS["parallel"]._replace(**parts))


class ScaledGradient(torch.autograd.Function):
    """The identity, with a gradient that is wrong by a factor."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.factor, None


def test_all_backends_pass_and_the_report_says_so(capsys):
    assert main(["doctor"]) == 0
    output = capsys.readouterr().out
    assert "FAIL" not in output
    for name in ("kalmanac", "torch", "numba", "triton", *BACKENDS):
        assert name in output
    assert "self-tests passed." in output


def test_json_holds_every_error_beside_its_budget(capsys, monkeypatch):
    monkeypatch.setattr(doctor, "DTYPES", (torch.float32,))
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is True
    assert report["machine"]["cpu"]["cores"] >= 1
    rows = [r for r in report["self_tests"] if r["scan"] == "kalman_scan"]
    assert {r["backend"] for r in rows} == {
        b["backend"] for b in report["backends"] if not b["why_not"]
    }
    beliefs = {f"{n}.{part}" for n in ("prior", "state") for part in ("mean", "variance")}
    for row in rows:
        assert set(row["errors"]["gradients"]) == {"a", "b", "u", "q", "w", "r"} | beliefs
        assert max(row["errors"]["gradients"].values()) <= row["budget"]["gradients"]


@pytest.mark.parametrize("field", ["a", "b", "u", "q", "w", "r"])
def test_one_wrong_gradient_is_found_and_named(field, monkeypatch):
    honest = BACKENDS["parallel"].kalman

    def wrong(x):
        return honest(x._replace(**{field: ScaledGradient.apply(getattr(x, field), 1.001)}))

    sabotage(monkeypatch, kalman=wrong)
    verdict = judge("kalman_scan", "parallel", CPU, torch.float64)
    assert verdict.failures == [f"gradient of {field}"]


@pytest.mark.parametrize("field", ["start", "prior"])
def test_a_wrong_gradient_of_a_belief_is_found(field, monkeypatch):
    honest = BACKENDS["parallel"].kalman

    def wrong(x):
        belief = getattr(x, field)
        return honest(
            x._replace(**{field: belief._replace(mean=ScaledGradient.apply(belief.mean, 0.9))})
        )

    sabotage(monkeypatch, kalman=wrong)
    name = {"start": "state", "prior": "prior"}[field]
    verdict = judge("kalman_scan", "parallel", CPU, torch.float64)
    assert verdict.failures == [f"gradient of {name}.mean"]


@pytest.mark.parametrize("flags", ["reset", "observed"])
def test_ignored_masks_are_found(flags, monkeypatch):
    honest = BACKENDS["parallel"].kalman
    sabotage(monkeypatch, kalman=lambda x: honest(x._replace(**{flags: None})))
    assert not judge("kalman_scan", "parallel", CPU, torch.float64).ok


def test_steps_past_the_length_that_count_are_found(monkeypatch):
    honest = BACKENDS["parallel"].linear

    def wrong(x):
        return honest(x._replace(lengths=torch.full_like(x.lengths, x.b.shape[1])))

    sabotage(monkeypatch, linear=wrong)
    assert not judge("linear_scan", "parallel", CPU, torch.float64).ok


def test_half_precision_carries_are_found(monkeypatch):
    honest = BACKENDS["parallel"].kalman

    def wrong(x):
        posterior, final = honest(x)
        return posterior, Belief(*(y.bfloat16().float() for y in final))

    sabotage(monkeypatch, kalman=wrong)
    verdict = judge("kalman_scan", "parallel", CPU, torch.bfloat16)
    assert verdict.failures == ["final.mean", "final.variance"]


def test_a_nan_fails(monkeypatch):
    honest = BACKENDS["parallel"].linear

    def wrong(x):
        states, final = honest(x)
        return states * torch.where(torch.arange(states.shape[1]) == 3, torch.nan, 1.0)[
            :, None
        ], final

    sabotage(monkeypatch, linear=wrong)
    verdict = judge("linear_scan", "parallel", CPU, torch.float32)
    assert "states" in verdict.failures
    assert verdict.worst("values") != verdict.worst("values")


def test_a_crash_is_reported_and_fails_the_doctor(monkeypatch, capsys):
    def crash(x):
        raise RuntimeError("no such instruction\nand a long trace")

    sabotage(monkeypatch, kalman=crash)
    monkeypatch.setattr(doctor, "DTYPES", (torch.float32,))
    assert main(["doctor"]) == 1
    output = capsys.readouterr().out
    assert (
        "FAIL kalman_scan parallel on cpu in float32: RuntimeError: no such instruction" in output
    )
    assert "a long trace" not in output


def test_a_backend_that_cannot_run_is_listed_with_its_reason(monkeypatch, capsys):
    sabotage(monkeypatch, why_not=lambda device, dtype: "needs a quantum computer")
    monkeypatch.setattr(doctor, "DTYPES", (torch.float32,))
    assert main(["doctor"]) == 0
    assert "needs a quantum computer" in capsys.readouterr().out


def test_a_terminal_without_rich_gets_plain_text(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "rich", None)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    doctor._print_table("Title", ("one", "two"), [("a", "b")])
    assert capsys.readouterr().out == "Title\n  one  two\n  a    b\n\n"


def test_relative_error_is_the_largest_error_over_the_largest_truth():
    truth = torch.tensor([1.0, -4.0])
    assert relative_error(torch.tensor([1.5, -4.0]), truth) == 0.125
    assert relative_error(torch.zeros(2), torch.zeros(2)) == 0.0
    assert relative_error(torch.ones(2), torch.zeros(2)) == float("inf")
    assert relative_error(torch.empty(0), torch.empty(0)) == 0.0
    with pytest.raises(ValueError, match=r"came: got shape \(3,\), expected \(2,\)"):
        relative_error(torch.zeros(3), truth)


def test_the_budgets_are_those_of_the_project():
    assert tuple(BUDGETS[torch.float64]) == (1e-10, 1e-10, 1e-10)
    assert tuple(BUDGETS[torch.float32]) == (2e-6, 2e-6, 1e-5)
