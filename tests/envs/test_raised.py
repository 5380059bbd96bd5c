import json
import sys
import traceback

import pytest

from kalmanac.envs.raised import words, words_of_a_process


def fails(call):
    with pytest.raises(BaseException) as caught:  # noqa: PT011 (any)
        call()
    return caught.value


def test_the_line_is_the_environment_s_own_and_not_that_of_a_library():
    def step():
        return json.loads("{")  # raises some calls further down

    line = step.__code__.co_firstlineno + 1
    said = words(fails(step))
    assert said.startswith("JSONDecodeError: Expecting property name ")
    assert said.endswith(f" ({__file__}, line {line})")


def test_what_has_no_message_or_two_lines_of_it_is_one_line():
    def two():
        raise KeyError("a\nb")

    assert words(fails(sys.exit)).startswith("SystemExit (")
    assert "\n" not in words(fails(two))
    assert words(ValueError("never raised")) == "ValueError: never raised"


def test_the_traceback_of_another_process_is_text():
    def step():
        raise ZeroDivisionError("motor")

    error = fails(step)
    text = "".join(traceback.format_exception(error))
    line = step.__code__.co_firstlineno + 1
    told = words_of_a_process(ZeroDivisionError("motor"), text)
    assert told == f"ZeroDivisionError: motor ({__file__}, line {line})"
    assert words_of_a_process(ZeroDivisionError("motor"), "") == "ZeroDivisionError: motor"
