"""The Gaussian belief that a Kalman scan carries and shows."""

from typing import NamedTuple

from torch import Tensor


class Belief(NamedTuple):
    """A diagonal Gaussian N(mean, variance) over the latent state (paper: x and diag Σ).

    Both fields have the same shape: (N,), (B, N) or (B, T, N).
    """

    mean: Tensor
    variance: Tensor


class Filtering(NamedTuple):
    """What happened inside the filter at every step (paper, Eqs. 4 to 6).

    `prior` is the belief before the reading (x⁻, Σ⁻), `gain` the Kalman gain K, all (B, T, N).
    A missing reading has gain 0; a padded step has gain 0 and the row's last belief as its prior.
    """

    prior: Belief
    gain: Tensor
