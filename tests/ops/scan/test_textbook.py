"""The textbook filter itself, against the conditional distribution of one joint Gaussian."""

import numpy as np

from tests.ops.scan import textbook
from tests.ops.scan.textbook import Gaussian


def test_full_matrices_equal_conditioning_the_joint_gaussian():
    """Stack x_0 … x_{T-1}, write down their joint covariance, condition on the readings at once."""
    random = np.random.default_rng(0)
    N, T = 2, 4

    def covariance():
        half = random.normal(size=(N, N))
        return half @ half.T + 0.1 * np.eye(N)

    A, B = random.normal(size=(2, N, N)) / 2
    start = Gaussian(random.normal(size=N), covariance())
    Q, R = [covariance() for _ in range(T)], [covariance() for _ in range(T)]
    u, w = random.normal(size=(2, T, N))
    observed = np.array([True, False, True, True])
    steps = textbook.filter_row(start, start, A, B, Q, u, w, R, np.zeros(T, bool), observed)

    # x = F (start, noise_0, …, noise_{T-1}) + drift, built by rolling the model forward.
    blocks, drift = [np.eye(N, (T + 1) * N)], [start.mean]
    for t in range(T):
        entry = np.eye(N, (T + 1) * N, k=(t + 1) * N)
        blocks.append(A @ blocks[-1] + entry)
        drift.append(A @ drift[-1] + B @ u[t])
    F, mean = np.concatenate(blocks[1:]), np.concatenate(drift[1:])
    source = np.zeros(((T + 1) * N, (T + 1) * N))
    for i, block in enumerate([start.covariance, *Q]):
        source[i * N : (i + 1) * N, i * N : (i + 1) * N] = block
    joint = F @ source @ F.T

    for t, step in enumerate(steps):
        now = slice(t * N, (t + 1) * N)
        seen = [i for s in range(t + 1) if observed[s] for i in range(s * N, (s + 1) * N)]
        S = joint[np.ix_(seen, seen)].copy()
        for j, s in enumerate(s for s in range(t + 1) if observed[s]):
            S[j * N : (j + 1) * N, j * N : (j + 1) * N] += R[s]
        weights = np.linalg.solve(S, joint[seen, now]).T
        np.testing.assert_allclose(
            step.after.mean, mean[now] + weights @ (w.reshape(-1)[seen] - mean[seen]), atol=1e-12
        )
        np.testing.assert_allclose(
            step.after.covariance, joint[now, now] - weights @ joint[seen, now], atol=1e-12
        )


def test_steady_state_solves_the_riccati_equation():
    """P = p r / (p + r) with p = a² P + q, whose positive root is known."""
    a, q, r, T = 0.9, 0.3, 2.0, 200
    answer = textbook.filter_batch(
        a=np.array([a]), b=None, u=None, q=np.array([q]), w=np.zeros((1, T, 1)),
        r=np.full((1, T, 1), r), prior=None, state=None, lengths=None, reset=None, observed=None,
    )  # fmt: skip
    linear = r * (1 - a * a) + q  # p² + (r (1 - a²) - q) p - q r = 0
    p = (-(linear - 2 * q) + np.sqrt((linear - 2 * q) ** 2 + 4 * q * r)) / 2
    np.testing.assert_allclose(answer.prior_variance[0, -1, 0], p, rtol=1e-12)
    np.testing.assert_allclose(answer.variance[0, -1, 0], p * r / (p + r), rtol=1e-12)


def test_padding_resets_and_missing_readings_by_hand():
    """Two steps of unit noise from N(0, 1), worked out on paper."""
    answer = textbook.filter_batch(
        a=np.array([1.0]), b=None, u=np.array([[[1.0], [1.0], [9.0]]]), q=np.array([1.0]),
        w=np.array([[[4.0], [9.0], [9.0]]]), r=np.array([[[2.0], [9.0], [9.0]]]),
        prior=(np.array([0.0]), np.array([1.0])), state=(np.array([5.0]), np.array([7.0])),
        lengths=np.array([2]), reset=np.array([[True, False, True]]),
        observed=np.array([[True, False, True]]),
    )  # fmt: skip
    # reset: N(0, 1) → predict N(1, 2) → gain 1/2 → N(2.5, 1); missing: predict N(3.5, 2); padded.
    np.testing.assert_allclose(answer.mean[0, :, 0], [2.5, 3.5, 3.5])
    np.testing.assert_allclose(answer.variance[0, :, 0], [1.0, 2.0, 2.0])
    np.testing.assert_allclose(answer.gain[0, :, 0], [0.5, 0.0, 0.0])
    np.testing.assert_allclose(answer.prior_mean[0, :, 0], [1.0, 3.5, 3.5])
    np.testing.assert_allclose(answer.prior_variance[0, :, 0], [2.0, 2.0, 2.0])
    assert (answer.final_mean[0, 0], answer.final_variance[0, 0]) == (3.5, 2.0)
