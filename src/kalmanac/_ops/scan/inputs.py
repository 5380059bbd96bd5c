"""Beliefs, and the arguments of a scan after checking: what every backend receives.

Shape letters: B batch, T time, N latent channels.
"""

from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from kalmanac._ops.dispatch import has_float64


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


class KalmanInputs(NamedTuple):
    """One call of `kalman_scan`, all on one device."""

    a: Tensor  # (N,)                discrete decay Ā
    b: Tensor | None  # (N,)         input gain; None means one
    u: Tensor | None  # (B, T, N)    input; None means no input signal
    q: Tensor  # (N,) or (B, T, N)   process noise variance Σᵖ
    w: Tensor  # (B, T, N)           latent reading
    r: Tensor  # (B, T, N)           reading noise variance Σᵒ
    start: Belief | None  # (B, N)   the belief before the first step; None means the prior
    prior: Belief | None  # (B, N)   the belief a reset restores; None means N(0, 1)
    lengths: Tensor | None  # (B,)   valid steps of each row; None means T
    reset: Tensor | None  # (B, T)   bool: the prior is restored before step t
    observed: Tensor | None  # (B, T) bool: False means predict only
    r_floor: float | None  # if given, the noise is softplus(r) + r_floor
    q_floor: float | None  # if given, the noise is softplus(q) + q_floor
    packed: Tensor | None  # (B, T, kN): the signals side by side, of which u, w, r, q are views
    layout: str  # the order of the signals in `packed`, such as "uwr"
    variances: bool = True  # False: nobody reads those of the steps, which may be left out

    def signals(self) -> tuple[list[Tensor], str]:
        """Return the time-varying inputs and their names: one tensor if they are packed."""
        if self.packed is not None:
            return [self.packed], self.layout
        named = {"u": self.u, "w": self.w, "r": self.r, "q": self.q if self.q.dim() == 3 else None}
        present = {name: x for name, x in named.items() if x is not None}
        return list(present.values()), "".join(present)


class KalmanLayerInputs(NamedTuple):
    """A filter between two projections: u, w, r = W h + c, and z = V x⁺ + d."""

    h: Tensor  # (B, T, E)
    into: tuple[Tensor, Tensor]  # W (kN, E) and c (kN,): the k signals of `layout`
    out_of: tuple[Tensor, Tensor]  # V (E, N), or (E, 2N) for mean and variance, and d (E,)
    a: Tensor  # (N,)
    b: Tensor | None  # (N,)
    q: Tensor | None  # (N,); None: a signal
    layout: str
    start: Belief | None  # (B, N)   None means N(0, 1), as it is after every reset
    lengths: Tensor | None  # (B,)
    reset: Tensor | None  # (B, T)
    observed: Tensor | None  # (B, T)
    r_floor: float | None
    q_floor: float | None


class LinearInputs(NamedTuple):
    """One call of `linear_scan`: x_t = a_t x_{t-1} + b_t."""

    a: Tensor  # (N,) or (B, T, N)
    b: Tensor  # (B, T, N)
    start: Tensor | None  # (B, N)   the state before the first step; None means `initial`
    initial: Tensor | None  # (B, N) what a reset restores; None means zero
    lengths: Tensor | None  # (B,)   valid steps of each row; None means T
    reset: Tensor | None  # (B, T)   bool


Inputs = TypeVar("Inputs", KalmanInputs, LinearInputs)


def valid_steps(lengths: Tensor | None, like: Tensor) -> Tensor:
    """Return (B, T) bool: True where t < lengths[b]; `like` is any signal (B, T, N)."""
    batch, steps, _ = like.shape
    if lengths is None:
        return torch.ones(batch, steps, dtype=torch.bool, device=like.device)
    return torch.arange(steps, device=like.device) < lengths[:, None]


def start_and_prior(x: KalmanInputs) -> tuple[Belief, Belief]:
    """Return both beliefs as (B, N) tensors, defaults filled in."""
    prior = x.prior
    if prior is None:
        batch, _, channels = x.w.shape
        prior = Belief(x.a.new_zeros(batch, channels), x.a.new_ones(batch, channels))
    return (prior if x.start is None else x.start), prior


def start_and_initial(x: LinearInputs, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return both states as (B, N) tensors, defaults filled in."""
    initial = x.initial
    if initial is None:
        initial = x.b.new_zeros(x.b.shape[0], x.b.shape[2], dtype=dtype)
    return (initial if x.start is None else x.start), initial


def neutral_kalman(x: KalmanInputs) -> KalmanInputs:
    """Overwrite signals that must not count (pads, missing readings) by harmless numbers.

    The plain PyTorch backends discard such steps with `where`; without this, an infinity there
    would still turn the gradients of the kept branch into NaN (0 · ∞).
    """
    valid = valid_steps(x.lengths, x.w)
    read = valid if x.observed is None else valid & x.observed
    valid, read = valid[..., None], read[..., None]
    return x._replace(
        u=None if x.u is None else torch.where(valid, x.u, 0),
        q=x.q if x.q.dim() == 1 else torch.where(valid, x.q, 1),
        w=torch.where(read, x.w, 0),
        r=torch.where(read, x.r, 1),
    )


def widened(x: Inputs) -> Inputs:
    """Return the same call in double precision, where the device has it."""
    if not has_float64(x.a.device):
        return x

    def wide(value: Any) -> Any:
        if isinstance(value, Belief):
            return Belief(wide(value.mean), wide(value.variance))
        if isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex()):
            return value.to(torch.complex128 if value.is_complex() else torch.float64)
        return value

    return type(x)(*(wide(value) for value in x))


def neutral_linear(x: LinearInputs) -> LinearInputs:
    """Overwrite padded steps by harmless numbers, as `neutral_kalman` does."""
    valid = valid_steps(x.lengths, x.b)[..., None]
    return x._replace(
        a=x.a if x.a.dim() == 1 else torch.where(valid, x.a, 1),
        b=torch.where(valid, x.b, 0),
    )
