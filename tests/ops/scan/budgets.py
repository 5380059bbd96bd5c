"""How far an answer may be from the truth, and how that is measured."""

import torch
from torch import Tensor

from tests.ops.scan.cases import Noise


def error(value: Tensor, truth: Tensor) -> float:
    """Largest error over largest magnitude, in float64 on the CPU. NaN counts as infinite.

    Pointwise relative error is no measure where a mean crosses zero.
    """
    value, truth = (
        x.detach().to("cpu", torch.promote_types(x.dtype, torch.float64)) for x in (value, truth)
    )
    assert value.shape == truth.shape, (value.shape, truth.shape)
    if truth.numel() == 0 or torch.equal(value, truth):
        return 0.0
    off = float((value - truth).abs().max() / truth.abs().max())
    return off if off == off else float("inf")


def values(dtype: torch.dtype, noise: Noise) -> float:
    """Budget of beliefs and gains."""
    if dtype == torch.float64:
        return 1e-10
    return 2e-6 if noise.ordinary else 2e-4


def gradients(dtype: torch.dtype, noise: Noise) -> float:
    """Budget of gradients."""
    if dtype == torch.float64:
        return 1e-10
    return 1e-5 if noise.ordinary else 2e-4


def check(errors: dict[str, float], budget: float) -> None:
    """Every named error is within the budget; the message shows all of them."""
    shown = ", ".join(f"{name} {off:.1e}" for name, off in errors.items())
    assert all(off <= budget for off in errors.values()), f"budget {budget:g}: {shown}"


def assert_same(
    found: dict[str, Tensor], expected: dict[str, Tensor], budget: float = 1e-11
) -> None:
    """What has one name agrees within the budget."""
    check({name: error(x, expected[name]) for name, x in found.items()}, budget)
