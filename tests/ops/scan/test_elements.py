"""The scan elements: associativity, neutral elements, and the masked operator of the paper."""

from functools import reduce

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kalmanac._ops.scan import parallel as elements
from kalmanac._ops.scan.inputs import Belief
from kalmanac._ops.scan.parallel import Affine, Filter

KINDS = {
    "affine": (Affine, elements.combine_affine, elements.identity_affine),
    "filter": (Filter, elements.combine_filter, elements.identity_filter),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def real(low, high):
    number = st.floats(low, high, allow_subnormal=False)
    return number.map(lambda x: torch.tensor([x], dtype=torch.float64))


ELEMENTS = {
    "affine": st.builds(Affine, real(-2, 2), real(-5, 5)),
    # A variance C and an information J are not negative.
    "filter": st.builds(Filter, real(-2, 2), real(-5, 5), real(0, 9), real(-5, 5), real(0, 9)),
}


def assert_same(x, y):
    torch.testing.assert_close(tuple(x), tuple(y), rtol=1e-9, atol=1e-9)


def fold_somehow(data, operator, items):
    """Join neighbours in a drawn order until one element is left: a random bracketing."""
    items = list(items)
    while len(items) > 1:
        i = data.draw(st.integers(0, len(items) - 2))
        items[i : i + 2] = [operator(items[i], items[i + 1])]
    return items[0]


@every_kind
def test_every_bracketing_gives_the_same_element(kind):
    _, combine, _ = KINDS[kind]

    @given(st.data())
    def law(data):
        items = data.draw(st.lists(ELEMENTS[kind], min_size=2, max_size=7))
        assert_same(fold_somehow(data, combine, items), reduce(combine, items))

    law()


@every_kind
def test_identity_is_neutral_on_both_sides(kind):
    _, combine, identity = KINDS[kind]

    @given(ELEMENTS[kind])
    def law(element):
        neutral = identity(element.A)
        assert_same(combine(neutral, element), element)
        assert_same(combine(element, neutral), element)

    law()


@every_kind
def test_masked_operator_is_associative_for_right_padding(kind):
    """Appendix A: every bracketing of (e_0, 0) … (e_k, 0) (e_{k+1}, 1) … gives the same."""
    _, combine, _ = KINDS[kind]
    operator = elements.masked(combine)

    @given(st.data())
    def law(data):
        items = data.draw(st.lists(ELEMENTS[kind], min_size=2, max_size=7))
        valid = data.draw(st.integers(0, len(items)))
        pairs = [(e, torch.tensor([i >= valid])) for i, e in enumerate(items)]
        element, mask = fold_somehow(data, operator, pairs)
        expected, expected_mask = reduce(operator, pairs)
        assert_same(element, expected)
        assert torch.equal(mask, expected_mask)
        assert_same(element, reduce(combine, items[: max(valid, 1)]))  # pads change nothing

    law()


@every_kind
def test_masked_operator_on_the_cases_of_appendix_a(kind):
    """Definition 1 for all eight masks; (m_b, m_c) = (1, 0), a hole, is what breaks the law."""
    _, combine, _ = KINDS[kind]
    operator = elements.masked(combine)
    numbers = {
        "affine": [(0.5, 1.0), (0.25, -2.0), (0.75, 3.0)],
        "filter": [
            (0.5, 1.0, 2.0, 0.5, 1.0), (0.25, -2.0, 1.0, 1.5, 0.5), (0.75, 3.0, 0.5, -1.0, 2.0),
        ],
    }[kind]  # fmt: skip
    a, b, c = (KINDS[kind][0](*map(torch.tensor, fields)) for fields in numbers)
    for m_a in (False, True):
        for m_b in (False, True):
            for m_c in (False, True):
                x, y, z = ((e, torch.tensor(m)) for e, m in ((a, m_a), (b, m_b), (c, m_c)))
                left, _ = operator(operator(x, y), z)
                right, _ = operator(x, operator(y, z))
                equal = all(torch.allclose(p, q) for p, q in zip(left, right, strict=True))
                assert equal != (m_b and not m_c)
    # The hole, spelled out: (a ∘ b) ∘ c joins a with c, a ∘ (b ∘ c) = a loses c.
    on, off = torch.tensor(True), torch.tensor(False)
    assert_same(operator(operator((a, off), (b, on)), (c, off))[0], combine(a, c))
    assert_same(operator((a, off), operator((b, on), (c, off)))[0], a)


@every_kind
def test_masked_operator_equals_the_identity_form(kind):
    _, combine, identity = KINDS[kind]
    operator = elements.masked(combine)

    @given(st.data())
    def law(data):
        items = data.draw(st.lists(ELEMENTS[kind], min_size=1, max_size=7))
        valid = data.draw(st.integers(1, len(items)))
        pairs = [(e, torch.tensor([i >= valid])) for i, e in enumerate(items)]
        neutral = [e if i < valid else identity(e.A) for i, e in enumerate(items)]
        assert_same(reduce(operator, pairs)[0], reduce(combine, neutral))

    law()


@given(ELEMENTS["filter"], real(-3, 3), real(0.1, 9))
def test_a_constant_forgets_what_was_before(before, mean, variance):
    constant = elements.constant_filter(Belief(mean, variance))
    joined = elements.combine_filter(before, constant)
    assert_same((joined.A, joined.b, joined.C), (torch.zeros_like(mean), mean, variance))


@given(
    real(0.1, 1), real(-3, 3), real(0.1, 9), real(-3, 3), real(0.1, 9), real(-3, 3), real(0.1, 9)
)
def test_a_step_joined_to_a_belief_is_predict_and_update(a, c, q, w, r, mean, variance):
    """m = g (a m + c) + k w and P = g p, for one step from N(mean, variance)."""
    start = elements.constant_filter(Belief(mean, variance))
    p = a * a * variance + q
    k = p / (p + r)
    after = elements.combine_filter(start, elements.step_filter(a, c, q, w, r))
    assert_same((after.b, after.C), ((1 - k) * (a * mean + c) + k * w, (1 - k) * p))
    blind = elements.combine_filter(start, elements.predict_filter(a, c, q))
    assert_same((blind.b, blind.C), (a * mean + c, p))


def test_select_takes_field_by_field():
    one, two = Affine(torch.ones(2), torch.ones(2)), Affine(torch.zeros(2), torch.full((2,), 5.0))
    mixed = elements.select(torch.tensor([True, False]), one, two)
    assert isinstance(mixed, Affine)
    assert mixed.A.tolist() == [1, 0]
    assert mixed.b.tolist() == [1, 5]
