"""Dataclasses whose fields check themselves: one line holds a field's type, bounds and default.

    @dataclass(frozen=True)
    class Optimizer(CheckedFields):
        learning_rate: Annotated[float, Above(0)] = 3e-4
        \"\"\"Step size of Adam.\"\"\"

Type checkers and editors see a plain float. Whoever makes an Optimizer gets a float, or one error
in one line: "learning_rate: got -1.0, expected a number above 0".
"""

import dataclasses
import functools
import inspect
import math
import types
from collections.abc import Mapping
from contextlib import suppress
from numbers import Integral, Real
from typing import Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from kalmanac._messages import expect_known, spell

Number = TypeVar("Number", int, float)


class AtLeast(NamedTuple):
    """A number must not be smaller."""

    least: int

    def holds(self, number: float) -> bool:
        """Whether the number is within the bound."""
        return number >= self.least

    def __str__(self) -> str:
        return f"of at least {self.least}"


class Above(NamedTuple):
    """A number must be larger."""

    bound: int

    def holds(self, number: float) -> bool:
        """Whether the number is within the bound."""
        return number > self.bound

    def __str__(self) -> str:
        return f"above {self.bound}"


class Within(NamedTuple):
    """A number must lie in an interval; `ends` says which of its ends belong to it."""

    low: int
    high: int
    ends: Literal["[]", "(]", "[)"] = "[]"

    def holds(self, number: float) -> bool:
        """Whether the number is within the bounds."""
        above = number > self.low if self.ends[0] == "(" else number >= self.low
        return above and (number < self.high if self.ends[1] == ")" else number <= self.high)

    def __str__(self) -> str:
        return f"in {self.ends[0]}{self.low}, {self.high}{self.ends[1]}"


@dataclasses.dataclass(frozen=True)
class MayBeInfinite:
    """A number may be infinite, such as a limit that limits nothing."""

    def holds(self, number: float) -> bool:
        """Whether the number is within the bound: it always is."""
        return True


class _PlainSignature:
    """The signature of a dataclass with types alone: `help` shows it without bounds and marks."""

    def __get__(self, instance: object, kind: type) -> inspect.Signature:
        _, *arguments = inspect.signature(kind.__init__).parameters.values()  # type: ignore[misc]
        hints = _hints(kind)
        return inspect.Signature([x.replace(annotation=hints[x.name]) for x in arguments])


@dataclasses.dataclass(frozen=True)
class CheckedFields:
    """Gives every field the type that its annotation names, and refuses what does not fit.

    Bounds hold for the field's number, or for each one in its tuple; None and words pass. What
    fields demand of each other is checked by `check`, which calls its parents' first.
    """

    __signature__ = _PlainSignature()

    def __post_init__(self) -> None:
        kind: type = type(self)
        for name, hint in _hints(kind).items():
            value = fitting(name, _plain(getattr(self, name)), hint)
            bounds = _bounds(kind)[name]
            if MayBeInfinite() not in bounds:
                _require_finite(name, value)
            for bound in bounds:
                _require(name, value, bound)
            object.__setattr__(self, name, value)
        self.check()

    def check(self) -> None:
        """Raise ValueError where fields do not go together."""


def field_notes(kind: type) -> dict[str, tuple[Any, ...]]:
    """What the annotations of a dataclass's fields hold beside their types, by the field's name."""
    hints = get_type_hints(kind, include_extras=True)
    return {
        entry.name: getattr(hints[entry.name], "__metadata__", ())
        for entry in dataclasses.fields(kind)
    }


def fitting(name: str, value: Any, hint: Any) -> Any:
    """`value` as type `hint`; numbers of other libraries become Python's, ints pass for floats."""
    if type(value) is hint and hint is not float:  # as most are; a float may be none
        return value
    if get_origin(hint) in (Union, types.UnionType):
        return _one_of(name, value, hint)
    if get_origin(hint) is Literal:
        expect_known(name, value, get_args(hint))
        return value
    if get_origin(hint) is tuple:
        kinds = get_args(hint)
        if isinstance(value, tuple):
            if Ellipsis not in kinds and len(kinds) != len(value):
                raise TypeError(f"{name}: got {value!r}, expected a list of {len(kinds)}")
            return tuple(fitting(name, item, kinds[0]) for item in value)
    elif hint in (int, float):
        number = Integral if hint is int else Real
        if not isinstance(value, bool) and isinstance(value, number):
            if math.isnan(value):
                raise ValueError(f"{name}: got {value!r}, expected a finite number")
            return hint(value)
    elif hint is bool and getattr(getattr(value, "dtype", None), "kind", "") == "b":
        return bool(value)
    elif isinstance(value, get_origin(hint) or hint):
        return value
    raise TypeError(f"{name}: got {value!r}, expected {spell(hint)}")


def bounded(name: str, value: Any, kind: type[Number], bound: AtLeast | Within) -> Number:
    """An argument as the number that it is to be: what a field takes, and one error for the rest.

    "updates: got 1.5, expected an integer of at least 0" is that error. Steps are often written as
    1e5: a whole float is an integer here.
    """
    if kind is int and isinstance(value, float) and value.is_integer():
        value = int(value)
    with suppress(TypeError, ValueError):
        number: Number = fitting(name, value, kind)
        if bound.holds(number):
            return number
    noun = "an integer" if kind is int else "a number"
    raise ValueError(f"{name}: got {value!r}, expected {noun} {bound}")


def _one_of(name: str, value: Any, hint: Any) -> Any:
    refused: ValueError | None = None
    for option in get_args(hint):
        try:
            return fitting(name, value, option)
        except TypeError:
            continue
        except ValueError as error:  # the type is right; a word that is none of those is not
            refused = refused if get_origin(option) is Literal else error
    raise refused or TypeError(f"{name}: got {value!r}, expected {spell(hint)}")


def _require_finite(name: str, value: Any) -> None:
    for number in value if isinstance(value, tuple) else (value,):
        if type(number) is float and not math.isfinite(number):
            raise ValueError(f"{name}: got {value!r}, expected a finite number")


def _require(name: str, value: Any, bound: AtLeast | Above | Within | MayBeInfinite) -> None:
    for number in value if isinstance(value, tuple) else (value,):
        if type(number) in (int, float) and not bound.holds(number):
            noun = "an integer" if type(number) is int else "a number"
            raise ValueError(f"{name}: got {value!r}, expected {noun} {bound}")


def _plain(value: Any) -> Any:
    """Own copies of mappings, and tuples for lists, so that a round trip through JSON is equal."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return tuple(map(_plain, value)) if isinstance(value, list | tuple) else value


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    """The fields' types; reading them takes longer than all the rest."""
    return get_type_hints(kind)


@functools.cache
def _bounds(kind: type) -> dict[str, list[Any]]:
    """The bounds of every field."""
    return {
        name: [x for x in extras if isinstance(x, AtLeast | Above | Within | MayBeInfinite)]
        for name, extras in field_notes(kind).items()
    }
