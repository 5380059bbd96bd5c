"""Scan elements and their associative operators (paper, section 4.3 and appendix A).

An element stands for a stretch of consecutive steps; `combine(i, j)` joins an earlier stretch i
with a later stretch j. Elements are named tuples of tensors of one shape, so that one scan serves
them all. `masked` is the paper's Definition 1; `identity` is the other way to say the same: a
padded step is the element that changes nothing.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from kalmanac.ops.belief import Belief


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
    """First i, then j."""
    return Affine(j.A * i.A, j.A * i.b + j.b)


def combine_filter(i: Filter, j: Filter) -> Filter:
    """First i, then j."""
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
    """The element that changes nothing."""
    one, zero = torch.ones_like(like), torch.zeros_like(like)
    return Affine(one, zero)


def identity_filter(like: Tensor) -> Filter:
    """The element that changes nothing."""
    one, zero = torch.ones_like(like), torch.zeros_like(like)
    return Filter(one, zero, zero, zero, zero)


def constant_affine(state: Tensor) -> Affine:
    """The element that forgets what was before and leaves `state`."""
    return Affine(torch.zeros_like(state), state)


def constant_filter(belief: Belief) -> Filter:
    """The element that forgets what was before and leaves `belief`."""
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
    """Field by field: `yes` where the mask is True, `no` elsewhere."""
    return type(yes)(*(torch.where(mask, x, y) for x, y in zip(yes, no, strict=True)))


Masked = tuple[Any, Tensor]  # (element, m)


def masked(
    combine: Callable[[Element, Element], Element],
) -> Callable[[Masked, Masked], Masked]:
    """The masked associative operator of Definition 1, acting on pairs (element, m).

    ã ∘ b̃ = (a ∘ b, m_a) if m_b = 0, and ã if m_b = 1: a padded element passes the state through.
    Associative only for right-padding masks (appendix A); m is True where padded.
    """

    def operator(left: Masked, right: Masked) -> Masked:
        (a, m_a), (b, m_b) = left, right
        return select(m_b, a, combine(a, b)), m_a

    return operator
