"""One parser and one funnel: words and flags in any order, errors as lines, bugs as themselves."""

import json
import math
import sys
import types
from dataclasses import dataclass

import gymnasium
import numpy
import pytest

from kalmanac._cli.verb import Call, RefusedError, Verb, our_fault, read_call, run_verb
from kalmanac._lab.failure import RunFailedError
from kalmanac._sac.environment_failure import EnvironmentFailedError


@dataclass(frozen=True)
class Options:
    """Of a verb that does nothing."""

    seed: int = 0
    """A number."""
    loud: bool = False
    """A switch."""
    names: tuple[str, ...] = ()
    """Words."""


def nothing(call: Call) -> int:
    return 0


@pytest.mark.parametrize(
    ("line", "words", "options"),
    [
        ("a b", ["a", "b"], Options()),
        ("a --seed 3 b", ["a", "b"], Options(seed=3)),
        ("--seed=3 a", ["a"], Options(seed=3)),
        ("--loud a --no-loud b", ["a", "b"], Options()),
        ("--loud True a", ["a"], Options(loud=True)),
        ("a --names b c", ["a"], Options(names=("b", "c"))),
    ],
)
def test_words_and_flags_stand_in_any_order(line, words, options):
    call = read_call("verb", Verb(nothing, Options, "", "WORD …", most=math.inf), line.split())
    assert (call.words, call.options) == (words, options)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "word: got none, expected kalmanac verb WORD [options]"),
        ("a b", "word: got a b, expected kalmanac verb WORD [options]"),
        ("a --seed 1 2", "--seed: got 1 2, expected int"),
        ("a --loud b", "--loud: got b, expected true or false"),
    ],
)
def test_words_that_are_too_many_or_too_few_are_refused(line, message):
    verb = Verb(nothing, Options, "", "WORD", least=1, most=1)
    with pytest.raises(ValueError, match="got") as refusal:
        read_call("verb", verb, line.split())
    assert str(refusal.value) == message


def raising(error, monkeypatch):
    return running("raise error", monkeypatch, error=error)


def running(line, monkeypatch, **names):
    """Run a verb of the package that consists of one line."""
    module = types.ModuleType("kalmanac.test_verb")
    vars(module).update(names)
    exec(f"def run(call): {line}", vars(module))
    module.VERB = Verb(module.run, Options, "")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return run_verb("verb", module.__name__, [])


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ValueError("name: got 1,\n expected 2"), 2),
        (TypeError("name: got 1, expected 2"), 2),
        (ModuleNotFoundError("name: got 1, expected 2"), 2),
        (FileNotFoundError("name: got 1, expected 2"), 2),
        (gymnasium.error.Error("name: got 1, expected 2"), 2),
        (EnvironmentFailedError("name: got 1, expected 2"), 1),
        (RunFailedError("name: got 1, expected 2"), 1),
        (RefusedError("name: got 1, expected 2", 7), 7),
    ],
)
def test_expected_errors_are_one_line_and_a_status(error, status, monkeypatch, capsys):
    assert raising(error, monkeypatch) == status
    assert capsys.readouterr() == ("", "kalmanac verb: name: got 1, expected 2\n")


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("int('x')", ValueError),
        ("len(1)", TypeError),
        ("1 + None", TypeError),
        ("call()", TypeError),
        ("numpy.zeros(2) + numpy.zeros(3)", ValueError),
        ("json.loads('{')", ValueError),
    ],
)
def test_an_error_that_nobody_here_has_worded_is_a_bug(line, kind, monkeypatch, capsys):
    with pytest.raises(kind):
        running(line, monkeypatch, numpy=numpy, json=json)
    assert capsys.readouterr() == ("", "")


def test_a_bug_is_raised_as_it_is(monkeypatch, capsys):
    with pytest.raises(AttributeError, match="a bug"):
        raising(AttributeError("a bug"), monkeypatch)
    error = ValueError("a bug that looks like a refusal")
    with pytest.raises(Exception, match="a bug that looks") as carried, our_fault():
        raise error
    with pytest.raises(ValueError, match="a bug that looks") as caught:
        raising(carried.value, monkeypatch)
    assert caught.value is error
    assert capsys.readouterr() == ("", "")
