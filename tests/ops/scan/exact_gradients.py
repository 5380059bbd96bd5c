"""Gradients of the textbook filter by differences in arbitrary precision: no code in common with
the package, and exact far beyond float64, however small the noise."""

from collections.abc import Callable

import mpmath
import numpy as np
import torch
from torch import Tensor

from tests.ops.scan import textbook
from tests.ops.scan.answers import weight
from tests.ops.scan.cases import Problem

DIGITS = 60
STEP = mpmath.mpf(10) ** -20  # central differences: their error is of order STEP²


def exact_gradients(problem: Problem) -> dict[str, Tensor]:
    """Gradients, for every float input, of the function that `answers.run_backward` takes."""
    arguments = problem.numpy()
    inputs: dict[str, np.ndarray] = {}
    for name, x in arguments.items():
        if isinstance(x, tuple):
            arguments[name] = tuple(_precise(field) for field in x)
            inputs |= zip((f"{name}.mean", f"{name}.variance"), arguments[name], strict=True)
        elif x is not None and x.dtype.kind == "f":
            inputs[name] = arguments[name] = _precise(x)

    def loss() -> mpmath.mpf:
        answer = textbook.filter_batch(**arguments)
        outputs = answer.mean, answer.variance, answer.final_mean, answer.final_variance
        return sum(
            (weight(torch.Size(x.shape), seed).numpy() * x).sum() for seed, x in enumerate(outputs)
        )

    with mpmath.workdps(DIGITS):
        return {name: _differences(loss, x) for name, x in inputs.items()}


def _differences(loss: Callable[[], mpmath.mpf], x: np.ndarray) -> Tensor:
    slopes = np.zeros(x.shape)
    for index in np.ndindex(x.shape):
        here = x[index]
        x[index] = here + STEP
        above = loss()
        x[index] = here - STEP
        slopes[index] = float((above - loss()) / (2 * STEP))
        x[index] = here
    return torch.from_numpy(slopes)


def _precise(x: np.ndarray) -> np.ndarray:
    return np.vectorize(mpmath.mpf, otypes=[object])(x)
