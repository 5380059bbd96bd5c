"""A field's line decides what it takes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from kalmanac._checked_fields import (
    Above,
    AtLeast,
    CheckedFields,
    MayBeInfinite,
    Within,
    bounded,
)


@dataclass(frozen=True, kw_only=True)
class Filter(CheckedFields):
    rate: Annotated[float, Above(0)] = 1.0
    share: Annotated[float, Within(0, 1, "(]")] = 1.0
    order: Annotated[int | None, AtLeast(1)] = None
    noise: Annotated[float | Literal["auto"], AtLeast(0)] = "auto"
    widths: Annotated[tuple[int, ...], AtLeast(1)] = ()
    span: tuple[float, float] = (0.0, 1.0)
    kind: Literal["low", "high"] = "low"
    on: bool = True
    limit: Annotated[float | None, MayBeInfinite(), Above(0)] = None
    rest: Mapping[str, Any] = field(default_factory=dict)

    def check(self) -> None:
        if self.kind == "high" and not self.on:
            raise ValueError("kind: got 'high' for a filter that is off, expected 'low'")


def test_a_limit_may_limit_nothing():
    assert Filter(limit=float("inf")).limit == float("inf")


def test_values_take_the_types_of_their_fields():
    assert Filter(on=np.False_).on is False
    made = Filter(rate=2, order=np.int64(3), noise=np.float32(0.5), widths=[4, np.int32(5)])
    assert made == Filter(rate=2.0, order=3, noise=0.5, widths=(4, 5))
    assert [type(x) for x in (made.rate, made.order, made.noise)] == [float, int, float]
    given = {"a": [1, {"b": 2}]}
    made = Filter(rest=given)
    given["a"][1]["b"] = 3
    assert made.rest == {"a": (1, {"b": 2})}, "it has its own copy"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rate": 0}, "rate: got 0.0, expected a number above 0"),
        ({"rate": float("nan")}, "rate: got nan, expected a finite number"),
        ({"limit": float("nan")}, "limit: got nan, expected a finite number"),
        ({"limit": float("-inf")}, "limit: got -inf, expected a number above 0"),
        ({"rate": float("inf")}, "rate: got inf, expected a finite number"),
        ({"rate": "fast"}, "rate: got 'fast', expected a number"),
        ({"rate": True}, "rate: got True, expected a number"),
        ({"share": 0.0}, "share: got 0.0, expected a number in (0, 1]"),
        ({"share": 1.5}, "share: got 1.5, expected a number in (0, 1]"),
        ({"order": 0}, "order: got 0, expected an integer of at least 1"),
        ({"order": 1.0}, "order: got 1.0, expected int or None"),
        ({"noise": "much"}, "noise: got 'much', expected a number or auto"),
        ({"noise": -1}, "noise: got -1.0, expected a number of at least 0"),
        ({"noise": float("inf")}, "noise: got inf, expected a finite number"),
        ({"widths": (4, 0)}, "widths: got (4, 0), expected an integer of at least 1"),
        ({"widths": 4}, "widths: got 4, expected a list of int"),
        ({"span": (1.0,)}, "span: got (1.0,), expected a list of 2"),
        ({"kind": "hihg"}, "kind: got 'hihg'; did you mean 'high'?"),
        ({"on": 1}, "on: got 1, expected true or false"),
        ({"rest": 3}, "rest: got 3, expected NAME=VALUE"),
        ({"kind": "high", "on": False}, "kind: got 'high' for a filter that is off"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(changes, words):
    with pytest.raises((TypeError, ValueError)) as refusal:
        Filter(**changes)
    assert str(refusal.value).startswith(words)
    assert "\n" not in str(refusal.value)


def test_arguments_take_the_numbers_that_fields_take():
    assert bounded("updates", np.int64(3), int, AtLeast(0)) == 3
    assert type(bounded("updates", np.int64(3), int, AtLeast(0))) is int
    assert type(bounded("share", 1, float, Within(0, 1))) is float
    assert type(bounded("steps", 1e5, int, AtLeast(0))) is int
    for wrong in (1.5, "a", -1, True, None, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=r"^updates: got .*, expected an integer of at least"):
            bounded("updates", wrong, int, AtLeast(0))
    for wrong in ("a", -0.1, 2, True, None, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=r"^share: got .*, expected a number in \[0, 1\]$"):
            bounded("share", wrong, float, Within(0, 1))
