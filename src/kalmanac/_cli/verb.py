"""What a verb is made of, and the one function that runs it: the parser before, errors after."""

import dis
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from kalmanac._cli.flags import read_words, show_help
from kalmanac._messages import MESSAGE, one_line


class Call(NamedTuple):
    """What somebody asks a verb for."""

    words: list[str]  # that belong to no flag
    options: Any  # a value of the verb's dataclass
    changes: Mapping[str, Any]  # settings of an experiment, for verbs that take these too


class Verb(NamedTuple):
    """How a verb is called, and what it does then.

    Args:
        run: does it and returns the exit status. An error that the caller can do something about is
            raised; `run_verb` makes one line of it.
        options: a dataclass with a default and a docstring for each flag.
        description: for the help, above the flags.
        words: what to put before the flags, such as "RUN".
        least, most: number of such words.
        settings: gives, for the words of a call, the experiment whose settings are flags, too, with
            the defaults that the help shows.
    """

    run: Callable[[Call], int]
    options: type
    description: str
    words: str = ""
    least: int = 0
    most: float = 0
    settings: Callable[[Sequence[str]], Any] | None = None


@dataclass(frozen=True)
class NoOptions:
    """None."""


class RefusedError(Exception):
    """Ends a verb with one line and a status of its own."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class _BugError(Exception):
    """Carries an error that nobody is to blame for but this package."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def run_verb(name: str, module: str, argv: Sequence[str]) -> int:
    """Read the words, run the `VERB` of a module, and return its exit status.

    Every error that is expected, usage mistakes included, is one line on standard error; any other
    one is raised.
    """
    try:
        verb: Verb = importlib.import_module(module).VERB
        return verb.run(read_call(name, verb, argv))
    except KeyboardInterrupt:
        return _refuse(name, "interrupted", 130)
    except _BugError as carrier:
        raise carrier.error from carrier.error.__cause__
    except Exception as error:
        if (status := exit_status(error)) is None:
            raise
        return _refuse(name, str(error), status)


def read_call(name: str, verb: Verb, argv: Sequence[str]) -> Call:
    """What the words after `kalmanac NAME` ask for; --help prints it and leaves."""
    flags = [verb.options]
    usage = f"kalmanac {name} {verb.words}".rstrip()
    if {"-h", "--help"} & set(argv):
        words = [word for word in argv if not word.startswith("-")]
        more = {} if verb.settings is None else {"experiment": verb.settings(words)}
        show_help(usage, verb.description, run=verb.options(), **more)
    if verb.settings is not None:
        flags.append(type(verb.settings(())))
    words, (values, *changes) = read_words(argv, verb.most, *flags)
    if not verb.least <= len(words) <= verb.most:
        what = verb.words.partition(" ")[0].strip("[]").lower() or "words"
        raise ValueError(f"{what}: got {' '.join(words) or 'none'}, expected {usage} [options]")
    return Call(words, verb.options(**values), changes[0] if changes else {})


def exit_status(error: Exception) -> int | None:
    """2 for what was asked for, 1 for what went wrong outside; None for a bug of ours."""
    if isinstance(error, RefusedError):
        return error.status
    if isinstance(error, ValueError | TypeError):
        return 2 if _is_refusal(error) else None
    if isinstance(error, ModuleNotFoundError | OSError):
        return 2
    import gymnasium

    from kalmanac._lab.failure import RunFailedError
    from kalmanac._sac.environment_failure import EnvironmentFailedError

    if isinstance(error, gymnasium.error.Error):
        return 2
    return 1 if isinstance(error, EnvironmentFailedError | RunFailedError) else None


def _is_refusal(error: Exception) -> bool:
    """Whether a `raise` of this package made the error: one that Python makes is a bug of ours."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return False
    package, _, _ = str(trace.tb_frame.f_globals.get("__name__")).partition(".")
    last = trace.tb_frame.f_code.co_code[trace.tb_lasti]
    return package == "kalmanac" and last == dis.opmap["RAISE_VARARGS"]


@contextmanager
def our_fault() -> Iterator[None]:
    """Whatever is raised inside is a bug, even where its kind is one that `run_verb` expects."""
    try:
        yield
    except Exception as error:
        raise _BugError(error) from error


def expect_at_least(least: int, options: Any, *names: str) -> None:
    """ValueError unless these options are None or large enough."""
    for name in names:
        if (number := getattr(options, name)) is not None and number < least:
            raise ValueError(f"{name}: got {number}, expected at least {least}")


def listed(entries: Mapping[str, Any]) -> str:
    """Names with their summaries, a line each, for help texts."""
    wide = max(map(len, entries))
    return "\n".join(f"  {name:<{wide}}  {entry.summary}" for name, entry in entries.items())


def need(*libraries: str, extra: str = "report") -> None:
    """Refuse to go on without libraries that an extra brings."""
    for library in libraries:
        if importlib.util.find_spec(library) is None:
            what = f'{library} is not installed: pip install "kalmanac[{extra}]"'
            raise RefusedError(what, 2)


def _refuse(name: str, text: str, status: int) -> int:
    print(f"kalmanac {name}: {one_line(text, MESSAGE)}", file=sys.stderr)
    return status
