"""Answers of the scans by name, and the truths that they are compared with."""

from functools import cache

import torch
from torch import Tensor

from kalmanac._ops.scan.inputs import Belief, Filtering
from kalmanac._ops.scan.kalman import kalman_scan
from tests.ops.scan import textbook
from tests.ops.scan.cases import Case, Problem, draw
from tests.ops.scan.targets import Target

REFERENCE = Target("reference", "cpu")


def run(problem: Problem, target: Target, **options: object) -> dict[str, Tensor]:
    """All outputs of `kalman_scan` by name."""
    return by_name(*kalman_scan(**problem.arguments(), backend=target.backend, **options))


def by_name(
    posterior: Belief, final: Belief, details: Filtering | None = None
) -> dict[str, Tensor]:
    """The outputs of `kalman_scan` under the names of the textbook filter's."""
    named = {
        "mean": posterior.mean,
        "variance": posterior.variance,
        "final_mean": final.mean,
        "final_variance": final.variance,
    }
    if details is not None:
        named |= {
            "prior_mean": details.prior.mean,
            "prior_variance": details.prior.variance,
            "gain": details.gain,
        }
    return named


def run_backward(
    problem: Problem, target: Target, **options: object
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Outputs, and gradients of a random linear function of all of them for every float input.

    The same problem gets the same random function whatever the dtype, device and backend. An input
    that does not matter (a prior that nothing restores) has gradient zero.
    """
    problem, leaves = problem.with_gradients()
    outputs = run(problem, target, **options)
    weights = [
        weight(x.shape, seed).to(x.device, x.dtype) for seed, x in enumerate(outputs.values())
    ]
    found = torch.autograd.grad(
        list(outputs.values()), list(leaves.values()), weights,
        allow_unused=True, materialize_grads=True,
    )  # fmt: skip
    return outputs, dict(zip(leaves, found, strict=True))


def weight(shape: torch.Size, seed: int) -> Tensor:
    """Random numbers that bfloat16 and float16 hold exactly."""
    random = torch.Generator().manual_seed(seed)
    return torch.randint(-64, 65, shape, generator=random).double() / 32


@cache
def textbook_answer(case: Case, dtype: torch.dtype) -> dict[str, Tensor]:
    """The textbook filter's float64 answer to a problem whose inputs were rounded to `dtype`."""
    answer = textbook.filter_batch(**draw(case, dtype).to(torch.float64).numpy())
    return {name: torch.from_numpy(x) for name, x in vars(answer).items()}


@cache
def true_gradients(case: Case, dtype: torch.dtype) -> dict[str, Tensor]:
    """The reference's float64 gradients for a problem whose inputs were rounded to `dtype`."""
    return run_backward(draw(case, dtype).to(torch.float64), REFERENCE)[1]
