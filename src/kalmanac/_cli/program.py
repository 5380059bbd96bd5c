"""The one entry point: `kalmanac VERB …`, the same as `python -m kalmanac VERB …`.

A verb is a module of this package with a `VERB`. It is imported only when it is called, so that
`kalmanac --help` answers at once.
"""

import difflib
import io
import sys
from collections.abc import Sequence
from typing import NamedTuple

from kalmanac._cli.verb import listed, run_verb
from kalmanac._version import __version__

PURPOSE = (
    "kalmanac: Kalman-filter layers and recurrent actor-critic agents for partial observability."
)


class Entry(NamedTuple):
    """Where a verb lives, and what it does in one line."""

    module: str
    summary: str


VERBS = {
    "train": Entry(
        "kalmanac._cli.train", "train an agent: kalmanac train best-arm --encoder vssm+kf"
    ),
    "resume": Entry(
        "kalmanac._cli.resume", "go on with a run that was stopped: kalmanac resume RUN"
    ),
    "eval": Entry(
        "kalmanac._cli.evaluate", "play new episodes with a trained agent: kalmanac eval RUN"
    ),
    "watch": Entry(
        "kalmanac._cli.watch", "see an agent play: pictures and an animation of episodes"
    ),
    "export": Entry(
        "kalmanac._cli.export", "one file for other programs, ONNX or PyTorch: kalmanac export RUN"
    ),
    "card": Entry("kalmanac._cli.card", "a folder to share an agent: kalmanac card RUN"),
    "runs": Entry("kalmanac._cli.runs", "list the runs in a folder, and how far they have come"),
    "suites": Entry("kalmanac._cli.suites", "the paper's experiments: how many runs, how long"),
    "sweep": Entry(
        "kalmanac._cli.sweep", "run whole suites, or all of the paper: kalmanac sweep best-arm"
    ),
    "status": Entry("kalmanac._cli.status", "what of a sweep is done, running, failed or waiting"),
    "search": Entry(
        "kalmanac._cli.search", "search for settings: kalmanac search TASK --vary NAME=LOW:HIGH"
    ),
    "report": Entry(
        "kalmanac._cli.report", "figures, tables and a page from all runs: kalmanac report runs"
    ),
    "envs": Entry("kalmanac._cli.envs", "every environment: its spaces, horizon and noise"),
    "doctor": Entry(
        "kalmanac._cli.doctor", "what is installed here, and a self-test of every scan"
    ),
    "demo": Entry("kalmanac._cli.demo", "train four agents in minutes, and draw what they learned"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit status; 2 for a call that cannot be understood."""
    words = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a file's name may be no text
    if not words or words[0] in ("-h", "--help", "help"):
        print(usage())
        return 0 if words else 2
    if words[0] == "--version":
        print(f"kalmanac {__version__}")
        return 0
    name, *rest = words
    if name not in VERBS:
        print(f"kalmanac: unknown verb {name!r}{_nearest(name)}", file=sys.stderr)
        return 2
    return run_verb(name, VERBS[name].module, rest)


def usage() -> str:
    """The text of `kalmanac --help`."""
    return (
        f"{PURPOSE}\n\n"
        "usage: kalmanac VERB [options]      (or: python -m kalmanac VERB [options])\n\n"
        f"{listed(VERBS)}\n\n"
        "`kalmanac VERB --help` lists a verb's options; `kalmanac --version` prints the version."
    )


def _nearest(name: str) -> str:
    close = difflib.get_close_matches(name, VERBS, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; expected one of {', '.join(VERBS)}"
