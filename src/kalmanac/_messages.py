"""One line for people: words of others as they may be shown, and errors that say what came."""

import difflib
import re
import types
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

MOST = 300  # characters, unless a place has less room
MESSAGE = 2000  # characters of what a verb prints when it ends, names of files and all
LONGEST_PATH = 4096
UNKNOWN = "\N{REPLACEMENT CHARACTER}"


def one_line(words: object, most: int = MOST) -> str:
    """`words` with single spaces between them and nothing in them that a terminal would obey.

    What is too long is cut and ends in a mark that is its own, so that two long words which differ
    stay apart.
    """
    whole = str(words)
    line = " ".join(whole[: 4 * most].split())
    line = "".join(letter if letter.isprintable() else UNKNOWN for letter in line)
    if len(line) <= most and len(whole) <= 4 * most:
        return line
    mark = sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:6]
    return f"{line[: most - 7]}…{mark}"


def duration(seconds: float) -> str:
    """A length of time in the largest unit that suits it."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    if seconds < 99.5 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 1e10 else f"{seconds / 3600:.0e} h"


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
