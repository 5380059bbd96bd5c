"""Words of others as they may be shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kalmanac._messages import duration, one_line


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("as it is", "as it is"),
        ("two\nlines\tand  more ", "two lines and more"),
        ("\x1b[2J\x07", "�[2J�"),
        ("\ud800 \udcff", "� �"),
        ("\u202eabc", "�abc"),
        ("日本語 é 😀", "日本語 é 😀"),
        (7, "7"),
    ],
)
def test_words_are_shown_on_one_line_and_nothing_obeys_them(words, shown):
    assert one_line(words) == shown


@given(st.text(st.characters(exclude_categories=()), max_size=400), st.integers(20, 100))
def test_whatever_comes_is_printable_and_short(text, most):
    shown = one_line(text, most)
    assert len(shown) <= most
    assert shown.isprintable()
    shown.encode("utf-8")


def test_long_words_that_differ_stay_apart():
    first, second = one_line("x" * 10**6 + "a", 40), one_line("x" * 10**6 + "b", 40)
    assert first != second
    assert len(first) == len(second) == 40


@pytest.mark.parametrize(
    ("seconds", "words"), [(3, "3 s"), (150, "2 min"), (2460, "41 min"), (8000, "2.2 h")]
)
def test_durations(seconds, words):
    assert duration(seconds) == words
