"""JSON that anybody may have written: an object whose numbers are numbers, or one ValueError.

Nothing that comes through here is nested deeper than `DEEPEST`, so that functions may call
themselves for each level, and every whole number in it can be a float.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kalmanac._messages import one_line

LARGEST = 2**24  # bytes of a file that is one object
LONGEST = 2**20  # bytes of a line, in a file of rows
DEEPEST = 50  # lists and objects inside one another
MOST_DIGITS = 300  # of a whole number,
MOST = 2**63 - 1  # and the largest where it counts something

NUMBERS = (int, float)
KINDS = {list: "a list", str: "a text", int: "a number", float: "a number", bool: "true or false",
         type(None): "null"}  # fmt: skip


def read_object(file: Path, what: str = "a JSON object") -> dict[str, Any]:
    """The JSON object in a file; ValueError in one line that begins with the file's name."""
    return object_in(file, read_bounded(file, what), what)


def read_bounded(file: Path, what: str) -> bytes:
    """All bytes of a file, unless they are too many for `what`."""
    with file.open("rb") as opened:
        content = opened.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise ValueError(f"{file}: got more than {LARGEST:,} bytes, expected {what}")
    return content


def object_in(file: Path, content: bytes, what: str) -> dict[str, Any]:
    """The JSON object in the bytes of a file."""
    try:
        return parse_object(content)
    except ValueError as error:
        raise ValueError(f"{file}: {error}, expected {what}") from None


def parse_object(content: bytes) -> dict[str, Any]:
    """The JSON object in `content`; ValueError that says what came instead."""
    try:
        value = _decode(content.decode("utf-8"))
        if not isinstance(value, dict):
            raise _OtherError(f"got {KINDS[type(value)]}")
        _refuse_deep(value)
    except _OtherError as error:
        raise ValueError(str(error)) from None
    except RecursionError:
        raise ValueError(f"got more than {DEEPEST} lists inside one another") from None
    except UnicodeDecodeError:
        raise ValueError("got bytes that are no text") from None
    except ValueError as error:
        raise ValueError(f"got no JSON ({one_line(error)})") from None
    return value


def expect_number(name: str, value: Any) -> None:
    """Raise ValueError unless a value from a file is a number."""
    if type(value) not in NUMBERS:
        raise ValueError(f"{name}: got {one_line(repr(value), 60)}, expected a number")


def expect_whole(name: str, value: Any, least: int = 0) -> None:
    """Raise ValueError unless a value from a file is a whole number as machines have them."""
    if type(value) is not int or not least <= value <= MOST:
        text = one_line(repr(value), 60)
        raise ValueError(f"{name}: got {text}, expected a whole number from {least} to {MOST}")


def expect_numbers(values: Mapping[str, Any], where: str = "") -> None:
    """Raise ValueError unless all values are numbers, or null for one that is not finite."""
    for key, value in values.items():
        if value is not None and type(value) not in NUMBERS:
            expect_number(f"{where}{one_line(key, 60)}", value)


def lines_of(file: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file with their numbers, from 1 on; the last may lack its end."""
    with file.open("rb") as opened:
        lines = iter(lambda: opened.readline(LONGEST), b"")
        for number, line in enumerate(lines, 1):
            if len(line) == LONGEST:
                raise ValueError(f"{file}: got more than {LONGEST:,} bytes in line {number}")
            yield number, line


def parse_row(file: Path, number: int | None, line: bytes) -> dict[str, Any]:
    """A line as numbers with names, "step" among them; ValueError that names file and line."""
    try:
        row = parse_object(line)
        expect_whole("step", row.get("step"))
        expect_numbers(row)
    except ValueError as error:
        start = one_line(line[:40].decode("utf-8", "replace"))
        where = "its last line" if number is None else f"line {number}"
        raise ValueError(
            f"{file}: got {start!r} in {where}, expected a JSON object of numbers ({error})"
        ) from None
    return row


class _OtherError(ValueError):
    """JSON, but not what is expected."""


def _whole(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise _OtherError(f"got a number of {len(digits):,} digits")
    return int(digits)


_decode = json.JSONDecoder(parse_int=_whole).decode


def _refuse_deep(value: Any) -> None:
    """Raise RecursionError, without a call for each level: there may be thousands."""
    level = [value]
    for _ in range(DEEPEST):
        level = [inside for tree in level for inside in _inside(tree)]
        if not level:
            return
    raise RecursionError


def _inside(tree: Any) -> Iterator[Any]:
    values = tree.values() if isinstance(tree, dict) else tree
    return (value for value in values if isinstance(value, dict | list))
