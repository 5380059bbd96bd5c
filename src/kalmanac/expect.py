"""Checks of what people write, each with one error: "name: got X, expected Y"."""

import difflib
import re
import types
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin


def expect_known(what: str, name: Any, known: Iterable[str]) -> None:
    """Raise ValueError with the nearest right name unless `name` is one of `known`."""
    names = list(known)
    if name in names:
        return
    close = [x for x in names if _initials(x) == str(name).strip("-")]  # lr: learning_rate
    close += difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}?" if close else f"expected one of {', '.join(names)}"
    raise ValueError(f"{what}: got {name!r}; {hint}")


def expect_mapping(name: str, value: object) -> None:
    """Raise TypeError unless `value` has names for its values."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{name}: got {value!r}, expected names with values")


def spell(hint: Any) -> str:
    """A type as a reader of an error message knows it."""
    if hint is types.NoneType:
        return "None"
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(map(spell, get_args(hint)))
    if get_origin(hint) is Literal:
        return " or ".join(map(str, get_args(hint)))
    if get_origin(hint) is tuple:
        return f"a list of {spell(get_args(hint)[0])}"
    words = {
        int: "int", float: "a number", bool: "true or false", str: "a word", Path: "a path"
    }  # fmt: skip
    return words.get(hint, "NAME=VALUE")


def _initials(name: str) -> str:
    return "".join(word[0] for word in re.split("[-_]", name) if word)
