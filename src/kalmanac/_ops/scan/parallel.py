"""The paper's algorithm: a parallel scan of logarithmic depth, in plain PyTorch, over any element.

It needs no compiled code and runs on any device; the fused backends are much faster. The belief
before the first step is simply the first element, and a reset is the prior's element joined with
the step's own: the scan itself knows of neither.

Padding can be expressed in two ways, which agree on right-padded batches: `form="identity"` turns
padded steps into the identity element, `form="masked"` uses the paper's operator (Definition 1).

An element stands for a stretch of consecutive steps; `combine(i, j)` joins an earlier stretch i
with a later stretch j. Elements are named tuples of tensors of one shape, so that one scan serves
them all (section 4.3 and appendix A).
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor

from kalmanac._ops.scan.inputs import (
    Belief,
    KalmanInputs,
    LinearInputs,
    neutral_kalman,
    neutral_linear,
    start_and_initial,
    start_and_prior,
    valid_steps,
    widened,
)

Form = Literal["identity", "masked"]
Leaves = list[Tensor]


class Affine(NamedTuple):
    """x ↦ A x + b: a stretch of a linear recurrence."""

    A: Tensor
    b: Tensor


class Filter(NamedTuple):
    """A stretch of a scalar Kalman filter (Särkkä & García-Fernández 2021, diagonal case).

    Given the state x before the stretch, the state after it is N(A x + b, C), and the readings of
    the stretch have likelihood ∝ N(x; J⁻¹η, J⁻¹) in x.
    """

    A: Tensor
    b: Tensor
    C: Tensor
    eta: Tensor
    J: Tensor


Element = TypeVar("Element", Affine, Filter)


def combine_affine(i: Affine, j: Affine) -> Affine:
    """Compose: first i, then j."""
    return Affine(j.A * i.A, j.A * i.b + j.b)


def combine_filter(i: Filter, j: Filter) -> Filter:
    """Compose: first i, then j."""
    D = 1 + i.C * j.J
    A = j.A / D
    E = i.A / D
    return Filter(
        A * i.A,
        A * (i.b + i.C * j.eta) + j.b,
        A * j.A * i.C + j.C,
        E * (j.eta - j.J * i.b) + i.eta,
        E * i.A * j.J + i.J,
    )


def identity_affine(like: Tensor) -> Affine:
    """Return the element that changes nothing."""
    one, zero = torch.ones_like(like), torch.zeros_like(like)
    return Affine(one, zero)


def identity_filter(like: Tensor) -> Filter:
    """Return the element that changes nothing."""
    one, zero = torch.ones_like(like), torch.zeros_like(like)
    return Filter(one, zero, zero, zero, zero)


def constant_affine(state: Tensor) -> Affine:
    """Return the element that forgets what was before and leaves `state`."""
    return Affine(torch.zeros_like(state), state)


def constant_filter(belief: Belief) -> Filter:
    """Return the element that forgets what was before and leaves `belief`."""
    zero = torch.zeros_like(belief.mean)
    return Filter(zero, belief.mean, belief.variance, zero, zero)


def step_filter(a: Tensor, c: Tensor, q: Tensor, w: Tensor, r: Tensor) -> Filter:
    """One predict (decay a, drive c, noise q) and one update (reading w, noise r)."""
    S = q + r
    return Filter(a * r / S, (r * c + q * w) / S, q * r / S, a * (w - c) / S, a * a / S)


def predict_filter(a: Tensor, c: Tensor, q: Tensor) -> Filter:
    """One predict without a reading. (Not r = ∞: that is ∞/∞.)"""
    zero = torch.zeros_like(c)
    return Filter(a + zero, c, q + zero, zero, zero)


def select(mask: Tensor, yes: Element, no: Element) -> Element:
    """Select field by field: `yes` where the mask is True, `no` elsewhere."""
    return type(yes)(*(torch.where(mask, x, y) for x, y in zip(yes, no, strict=True)))


Masked = tuple[Any, Tensor]  # (element, m)


def masked(
    combine: Callable[[Element, Element], Element],
) -> Callable[[Masked, Masked], Masked]:
    """Return the masked associative operator of Definition 1, acting on pairs (element, m).

    ã ∘ b̃ = (a ∘ b, m_a) if m_b = 0, and ã if m_b = 1: a padded element passes the state through.
    Associative only for right-padding masks (appendix A); m is True where padded.
    """

    def operator(left: Masked, right: Masked) -> Masked:
        (a, m_a), (b, m_b) = left, right
        return select(m_b, a, combine(a, b)), m_a

    return operator


def associative_scan(combine: Callable[[Leaves, Leaves], Leaves], leaves: Leaves) -> Leaves:
    """Compute prefixes e_0, e_0 ∘ e_1, … along axis 1 in O(log T) dependent steps, O(T) work.

    `leaves` are the fields of the elements, each (B, T, …); `combine` takes and returns such lists.
    Pairs are joined, the half as long sequence is scanned, and the prefixes in between follow with
    one more join each.
    """
    steps = leaves[0].shape[1]
    if steps == 1:
        return leaves
    pairs = combine([x[:, 0 : steps - 1 : 2] for x in leaves], [x[:, 1::2] for x in leaves])
    odd = associative_scan(combine, pairs)  # prefixes that end at 1, 3, 5, …
    before = odd if steps % 2 else [x[:, :-1] for x in odd]
    if before[0].shape[1] == 0:
        even = [x[:, :1] for x in leaves]
    else:
        joined = combine(before, [x[:, 2::2] for x in leaves])
        even = [torch.cat([x[:, :1], y], 1) for x, y in zip(leaves, joined, strict=True)]
    return [_interleave(x, y) for x, y in zip(even, odd, strict=True)]


def kalman(x: KalmanInputs, form: Form = "identity") -> tuple[Belief, Belief]:
    """Run `kalman_scan` over `Filter` elements, in double precision inside.

    PyTorch does not differentiate the elements: their parts are as large as 1/q where the filter's
    own derivatives are not, and would cancel. The backward is the closed form, whose two adjoint
    recursions are scans as well.
    """
    dtype = x.a.dtype
    x = widened(neutral_kalman(x))
    start, prior = start_and_prior(x)
    if start is prior:  # torch.compile cannot trace a function that gets one tensor twice
        start = Belief(prior.mean.clone(), prior.variance.clone())
    drive = torch.zeros_like(x.w) if x.u is None else x.u if x.b is None else x.b * x.u
    posterior = _FilterScan.apply(
        form, x.a, drive, x.q, x.w, x.r, *start, *prior, x.lengths, x.reset, x.observed
    )
    mean, variance = (y.to(dtype) for y in posterior)
    return Belief(mean, variance), Belief(mean[:, -1], variance[:, -1])


class _FilterScan(torch.autograd.Function):
    """Posterior means and variances, (B, T, N), and the closed-form adjoint."""

    @staticmethod
    def forward(
        ctx, form, a, c, q, w, r, m_start, P_start, m_prior, P_prior, lengths, reset, observed
    ):
        leaf = step_filter(a, c, q, w, r)
        if observed is not None:
            blind = predict_filter(a, c, q)
            leaf = select(observed[..., None], leaf, blind)
        if reset is not None:
            prior = constant_filter(Belief(m_prior[:, None], P_prior[:, None]))
            fresh = combine_filter(prior, leaf)
            leaf = select(reset[..., None], fresh, leaf)
        start = constant_filter(Belief(m_start, P_start))
        identity = identity_filter(leaf.b)
        scanned = _scan(combine_filter, start, leaf, identity, lengths, form)
        ctx.save_for_backward(
            a, c, q, w, r, m_start, P_start, m_prior, P_prior, lengths, reset, observed,
            scanned.b, scanned.C,
        )  # fmt: skip
        return scanned.b, scanned.C

    @staticmethod
    def backward(ctx, g_mean, g_variance):
        a, c, q, w, r, *beliefs, lengths, reset, observed, mean, variance = ctx.saved_tensors
        m_start, P_start, m_prior, P_prior = beliefs
        valid = valid_steps(lengths, w)[..., None]
        read = valid if observed is None else valid & observed[..., None]
        fresh = torch.zeros_like(valid) if reset is None else reset[..., None] & valid

        # the belief before each step, and what the step did to it
        m = torch.cat([m_start[:, None], mean[:, :-1]], 1)
        P = torch.cat([P_start[:, None], variance[:, :-1]], 1)
        m = torch.where(fresh, m_prior[:, None], m)
        P = torch.where(fresh, P_prior[:, None], P)
        p = a * a * P + q
        s = p + r
        k = torch.where(read, p / s, 0)
        g = torch.where(read, r / s, 1)
        e = torch.where(read, (w - a * m - c) / s, 0)

        # adjoints μ, π of each posterior, from the last step back; a padded step passes them on
        onward = torch.where(valid, torch.where(fresh, 0, a * g), 1)
        mu = _reverse_recurrence(onward, g_mean)
        push = torch.where(valid & ~fresh, a * a * g * e, 0) * mu
        pi = _reverse_recurrence(onward * onward, g_variance + _earlier(push))

        p_bar = torch.where(valid, g * (mu * e + pi * g), 0)
        c_bar = torch.where(valid, g * mu, 0)
        r_bar = torch.where(read, k * (pi * k - mu * e), 0)
        w_bar = torch.where(read, k * mu, 0)
        a_bar = (c_bar * m + 2 * a * P * p_bar).sum((0, 1))
        q_bar = p_bar if q.dim() == 3 else p_bar.sum((0, 1))
        m_back = torch.where(valid, a * c_bar, mu)  # to the belief before each step
        P_back = torch.where(valid, a * a * p_bar, pi)
        first = ~fresh[:, 0]
        return (
            None, a_bar, c_bar, q_bar, w_bar, r_bar,
            torch.where(first, m_back[:, 0], 0), torch.where(first, P_back[:, 0], 0),
            torch.where(fresh, m_back, 0).sum(1), torch.where(fresh, P_back, 0).sum(1),
            None, None, None,
        )  # fmt: skip


def _reverse_recurrence(onward: Tensor, inputs: Tensor) -> Tensor:
    """Solve y_t = inputs_t + onward_{t+1} y_{t+1}, for all t at once."""
    decay = _earlier(onward)
    leaves = [torch.flip(decay, (1,)), torch.flip(inputs, (1,))]
    scanned = associative_scan(lambda i, j: list(combine_affine(Affine(*i), Affine(*j))), leaves)
    return torch.flip(scanned[1], (1,))


def _earlier(x: Tensor) -> Tensor:
    """Return x_{t+1} at the place of t; zero at the last step."""
    return torch.cat([x[:, 1:], torch.zeros_like(x[:, :1])], 1)


def linear(x: LinearInputs, form: Form = "identity") -> tuple[Tensor, Tensor]:
    """Run `linear_scan` over `Affine` elements."""
    dtype = x.b.dtype
    x = widened(neutral_linear(x))
    leaf = Affine(x.a.expand_as(x.b), x.b)
    begin, initial = start_and_initial(x, x.b.dtype)
    if x.reset is not None:
        fresh = combine_affine(constant_affine(initial[:, None]), leaf)
        leaf = select(x.reset[..., None], fresh, leaf)
    start = constant_affine(begin)
    identity = identity_affine(leaf.b)
    states = _scan(combine_affine, start, leaf, identity, x.lengths, form).b.to(dtype)
    return states, states[:, -1]


def _scan(
    combine: Callable[[Element, Element], Element],
    start: Element,
    leaf: Element,
    identity: Element,
    lengths: Tensor | None,
    form: Form,
) -> Element:
    """Prefixes of [start, leaf_0, …, leaf_{T-1}] without the first; padded steps change nothing."""
    kind: Any = type(leaf)
    padded = ~valid_steps(lengths, leaf[0])[..., None]  # (B, T, 1)
    if form == "identity":
        leaf = select(padded, identity, leaf)
    leaves: Leaves = [torch.cat([s[:, None], x], 1) for s, x in zip(start, leaf, strict=True)]

    def join(left: Leaves, right: Leaves) -> Leaves:
        return list(combine(kind(*left), kind(*right)))

    operator: Any = masked(combine)

    def join_masked(left: Leaves, right: Leaves) -> Leaves:
        joined: Any = operator((kind(*left[:-1]), left[-1]), (kind(*right[:-1]), right[-1]))
        return [*joined[0], joined[1]]

    if form == "identity":
        scanned = associative_scan(join, leaves)
    else:
        mask = torch.cat([torch.zeros_like(padded[:, :1]), padded], 1)
        scanned = associative_scan(join_masked, [*leaves, mask])[:-1]
    return kind(*(x[:, 1:] for x in scanned))


def _interleave(even: Tensor, odd: Tensor) -> Tensor:
    """Return even_0, odd_0, even_1, odd_1, … along axis 1; `even` may be one longer."""
    batch, n_even = even.shape[:2]
    n_odd = odd.shape[1]
    pairs = torch.stack([even[:, :n_odd], odd], 2).reshape(batch, 2 * n_odd, *even.shape[2:])
    return pairs if n_even == n_odd else torch.cat([pairs, even[:, n_odd:]], 1)
