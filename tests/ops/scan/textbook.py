"""A Kalman filter from the textbook: full matrices, one row and one step at a time, numpy float64.

It shares nothing with the package. The matrices are general, so that the filter itself can be
checked on models that are not diagonal (test_textbook.py). The covariance is updated in Joseph's
form, which does not cancel when the gain is close to one. Arrays of arbitrary-precision numbers
pass through as well, which is what true_gradients.py differentiates.
"""

from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]  # float64, or objects that are mpmath numbers


@dataclass(frozen=True)
class Gaussian:
    mean: Array  # (N,)
    covariance: Array  # (N, N)


@dataclass(frozen=True)
class Step:
    """What the filter knew at one step."""

    before: Gaussian  # after the prediction, before the reading
    gain: Array  # (N, O)
    after: Gaussian


def predict(x: Gaussian, A: Array, B: Array, u: Array, Q: Array) -> Gaussian:
    """x⁻ = A x + B u,  P⁻ = A P Aᵀ + Q."""
    return Gaussian(A @ x.mean + B @ u, A @ x.covariance @ A.T + Q)


def update(x: Gaussian, C: Array, w: Array, R: Array) -> tuple[Gaussian, Array]:
    """K = P Cᵀ (C P Cᵀ + R)⁻¹,  x⁺ = x + K (w - C x),  P⁺ = (I - K C) P (I - K C)ᵀ + K R Kᵀ."""
    S = C @ x.covariance @ C.T + R
    K = solve(S, C @ x.covariance).T
    keep = np.eye(len(x.mean)) - K @ C
    covariance = keep @ x.covariance @ keep.T + K @ R @ K.T
    return Gaussian(x.mean + K @ (w - C @ x.mean), covariance), K


def solve(S: Array, X: Array) -> Array:
    """S⁻¹ X."""
    if S.dtype != object:
        return np.linalg.solve(S, X)
    return np.array((mpmath.matrix(S.tolist()) ** -1 * mpmath.matrix(X.tolist())).tolist())


@dataclass(frozen=True)
class Filtered:
    """The filter's answer for a batch: the diagonals, in the layout of the package."""

    mean: Array  # (B, T, N)
    variance: Array
    final_mean: Array  # (B, N)
    final_variance: Array
    prior_mean: Array  # (B, T, N)
    prior_variance: Array
    gain: Array


def filter_row(
    start: Gaussian,
    restart: Gaussian,
    A: Array,
    B: Array,
    Q: list[Array],
    u: Array,
    w: Array,
    R: list[Array],
    reset: NDArray[np.bool_],
    observed: NDArray[np.bool_],
) -> list[Step]:
    """Filter one sequence without padding. `restart` replaces the belief where `reset` is True."""
    N = len(start.mean)
    C = np.eye(N)
    x = start
    steps = []
    for t in range(len(w)):
        if reset[t]:
            x = restart
        before = predict(x, A, B, u[t], Q[t])
        if observed[t]:
            x, K = update(before, C, w[t], R[t])
        else:
            x, K = before, np.zeros((N, N))
        steps.append(Step(before, K, x))
    return steps


def filter_batch(
    *,
    a: Array,
    b: Array | None,
    u: Array | None,
    q: Array,
    w: Array,
    r: Array,
    prior: tuple[Array, Array] | None,
    state: tuple[Array, Array] | None,
    lengths: NDArray[np.int64] | None,
    reset: NDArray[np.bool_] | None,
    observed: NDArray[np.bool_] | None,
) -> Filtered:
    """Filter the arguments of `kalman_scan`, each row cut to its length."""
    batch, length, channels = w.shape
    if prior is None:
        prior = np.zeros(channels), np.ones(channels)
    if state is None:
        state = prior

    def gaussian(belief: tuple[Array, Array], row: int) -> Gaussian:
        mean, variance = (x if x.ndim == 1 else x[row] for x in belief)
        return Gaussian(mean, np.diag(variance))

    def diagonals(rows: list[Gaussian]) -> tuple[Array, Array]:
        return np.array([x.mean for x in rows]), np.array([np.diag(x.covariance) for x in rows])

    shape = (batch, length, channels)
    shapes = [shape] * 2 + [(batch, channels)] * 2 + [shape] * 3
    out = Filtered(*(np.zeros(s, w.dtype) for s in shapes))
    for i in range(batch):
        n = length if lengths is None else int(lengths[i])
        start = gaussian(state, i)
        steps = filter_row(
            start=start,
            restart=gaussian(prior, i),
            A=np.diag(a),
            B=np.eye(channels) if b is None else np.diag(b),
            Q=[np.diag(q if q.ndim == 1 else q[i, t]) for t in range(n)],
            u=np.zeros((n, channels)) if u is None else u[i, :n],
            w=w[i, :n],
            R=[np.diag(r[i, t]) for t in range(n)],
            reset=np.zeros(n, bool) if reset is None else reset[i, :n],
            observed=np.ones(n, bool) if observed is None else observed[i, :n],
        )
        last = steps[-1].after if steps else start
        held = [last] * (length - n)
        out.final_mean[i], out.final_variance[i] = last.mean, np.diag(last.covariance)
        if length:
            out.mean[i], out.variance[i] = diagonals([s.after for s in steps] + held)
            out.prior_mean[i], out.prior_variance[i] = diagonals([s.before for s in steps] + held)
        for t, step in enumerate(steps):
            out.gain[i, t] = np.diag(step.gain)
    return out
