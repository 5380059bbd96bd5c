"""Whose code a run folder may run: what its experiment names is imported only after this.

Names of the package's table and of Gymnasium itself are safe. Every other name is code, and runs if
this user has signed the experiment's very bytes (every run that is begun here is signed), or says
so now. Names that are typed, or given in Python, are never asked about.
"""

import os
import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

from kalmanac._envs.registry import foreign_code
from kalmanac._files.run_folder import sign_experiment
from kalmanac._files.run_reader import experiment_bytes, is_signed, parse_experiment, refuse_links
from kalmanac._lab.experiment import Experiment
from kalmanac._messages import expect_mapping

Trust = bool | Collection[Experiment]  # yes, no, or the experiments that the caller wants to run
Ask = Callable[[str], bool]
LONGEST = 300  # characters of a foreign text that are shown
FLAG = "--trust, or trust=True in Python,"


class UntrustedError(ValueError):
    """A folder or a file names code that nobody here has asked for.

    Examples:
        >>> from pathlib import Path
        >>> from kalmanac import Experiment, UntrustedError, resume
        >>> Path("received").mkdir()
        >>> text = Experiment(env="somebodys_module:Env").to_json()
        >>> written = Path("received/experiment.json").write_text(text)
        >>> try:
        ...     resume("received")
        ... except UntrustedError as error:
        ...     print(error)  # resume("received", trust=True) runs that code
        run: got ...received, whose environment 'somebodys_module:Env' would import ...
    """


def read_trusted(
    folder: str | os.PathLike[str], trust: Trust = False, ask: Ask | None = None
) -> Experiment:
    """The experiment in a run folder, if what it names may be run; else `UntrustedError`.

    Nothing is imported here. Where `trust` or the answer is yes, the experiment is signed, so that
    the folder needs no question again.

    Args:
        ask: called with a notice of what would run; returns whether it may.
    """
    refuse_links(folder)
    content = experiment_bytes(folder)
    data = parse_experiment(folder, content)
    expect_mapping("experiment", data)
    experiment = Experiment.from_data(data)
    if foreign_code(experiment.env) is None or is_signed(folder, content):
        return experiment
    if not isinstance(trust, bool):
        if experiment in trust:
            return experiment
        trust = False
    origin = f"run: got {os.fspath(folder)}"
    require_trust(origin, experiment.env, experiment.env_settings, trust, ask)
    with suppress(OSError):  # a folder that may only be read is asked about again
        sign_experiment(folder, content)
    return experiment


def require_trust(
    origin: str, env: str, settings: Mapping[str, Any], trust: bool, ask: Ask | None = None
) -> None:
    """Raise `UntrustedError` unless `env`, a name in a file, may be made with `settings`."""
    code = foreign_code(env)
    if trust or code is None:
        return
    notice = f"{origin}, whose environment {env[:LONGEST]!r} would {code[:LONGEST]}"
    if settings:
        notice += f" with {str(dict(settings))[:LONGEST]}"
    if ask is None or not ask(notice):
        raise UntrustedError(
            f"{notice}: that is code from outside of this package and of Gymnasium, in a file "
            f"that you have not written on this machine; expected {FLAG} if you trust it"
        )


def ask_on_terminal(notice: str) -> bool:
    """Ask whoever sits at the terminal; elsewhere, the answer is no."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    question = f"{notice}.\nThat code can do all that you can do. Run it? [y/N] "
    print(question, end="", file=sys.stderr, flush=True)
    try:
        return sys.stdin.readline().strip().lower() in ("y", "yes")
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return False
