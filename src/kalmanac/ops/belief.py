"""The Gaussian belief that a Kalman scan carries and shows."""

from typing import NamedTuple

from torch import Tensor


class Belief(NamedTuple):
    """A diagonal Gaussian N(mean, variance) over the latent state (paper: x and diag Σ).

    Both fields have the same shape: (N,), (B, N) or (B, T, N).

    Examples:
        >>> import torch
        >>> from kalmanac import Belief
        >>> prior = Belief(mean=torch.zeros(3), variance=torch.ones(3))
        >>> mean, variance = prior
        >>> prior.variance.sqrt()
        tensor([1., 1., 1.])
    """

    mean: Tensor
    variance: Tensor


class Filtering(NamedTuple):
    """What happened inside the filter at every step (paper, Eqs. 4 to 6).

    `prior` is the belief before the reading (x⁻, Σ⁻), `gain` the Kalman gain K, all (B, T, N).
    A missing reading has gain 0; a padded step has gain 0 and the row's last belief as its prior.

    Examples:
        >>> import torch
        >>> from kalmanac import kalman_scan
        >>> ones = torch.ones(1, 2, 1)
        >>> observed = torch.tensor([[True, False]])
        >>> _, _, inside = kalman_scan(
        ...     torch.ones(1), None, torch.ones(1), ones, ones, observed=observed, details=True
        ... )
        >>> inside.gain[0, :, 0]  # 2 / (2 + 1), and no reading
        tensor([0.6667, 0.0000])
    """

    prior: Belief
    gain: Tensor
