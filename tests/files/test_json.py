"""JSON of others: an object, or one line that says what came."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kalmanac._files.json import DEEPEST, lines_of, parse_object, parse_row, read_object
from tests.hostile import ANY_VALUE, dump


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "got no JSON"),
        (b"[1]", "got a list"),
        (b"null", "got null"),
        (b"7", "got a number"),
        (b"\xff{}", "got bytes that are no text"),
        (b'{"a": ' + b"9" * 301 + b"}", "got a number of 301 digits"),
        (b'{"a": -' + b"9" * 10_000 + b"}", "got a number of 10,001 digits"),
        (b'{"a": ' + b"[" * 50 + b"]" * 50 + b"}", "got more than 50 lists"),
        (b"[" * 10**6, "got more than 50 lists"),
        (b'{"a":' * 10**5 + b"1" + b"}" * 10**5, "got more than 50 lists"),
    ],
)
def test_what_is_no_object_is_said_in_one_line(tmp_path, content, words):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(ValueError, match=rf"a\.json: {words}.*, expected a thing$") as caught:
        read_object(tmp_path / "a.json", "a thing")
    assert "\n" not in str(caught.value)


def test_what_is_not_too_deep_is_read():
    deep = {"a": 1}
    for _ in range(DEEPEST - 1):
        deep = {"a": deep}
    assert parse_object(json.dumps(deep).encode()) == deep


def parsed(content):
    """An object, or the words of a ValueError."""
    try:
        return parse_object(content)
    except ValueError as error:
        return str(error)


@given(ANY_VALUE)
def test_whatever_comes_is_an_object_or_a_short_line(value):
    result = parsed(dump(value).encode())
    assert isinstance(result, dict) or len(result) < 500


@given(st.binary(max_size=200))
def test_any_bytes_are_an_object_or_a_short_line(content):
    result = parsed(content)
    assert isinstance(result, dict) or len(result) < 500


@pytest.mark.parametrize(
    "row", ['{"a": 1}', '{"step": 1.5}', '{"step": -1}', '{"step": true}', '{"step": 1, "a": "b"}',
            '{"step": 1, "a": [1]}', '{"step": 1, "a": true}', "[]", f'{{"step": {2**63}}}'],
)  # fmt: skip
def test_a_row_has_a_step_and_numbers(tmp_path, row):
    with pytest.raises(ValueError, match=r"got .* in line 3, expected a JSON object of numbers \("):
        parse_row(tmp_path / "rows", 3, row.encode())


def test_a_line_without_an_end_in_sight_is_not_read_to_it(tmp_path):
    with (tmp_path / "rows").open("wb") as file:
        file.truncate(2**40)  # zeros that take no room
    with pytest.raises(ValueError, match=r"got more than 1,048,576 bytes in line 1"):
        list(lines_of(tmp_path / "rows"))
