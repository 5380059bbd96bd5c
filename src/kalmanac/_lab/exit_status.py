"""How a run ended, for whoever started it: words and an exit status."""

import sys
from collections.abc import Sequence
from signal import SIGINT

from kalmanac._files.document import BadFileError
from kalmanac._files.lock import FolderInUseError
from kalmanac._files.run_folder import FolderTakenError
from kalmanac._files.run_reader import read_summary
from kalmanac._lab.active_run import Outcome, StopSignals
from kalmanac._lab.evaluation import evaluation_line
from kalmanac._lab.experiment import Experiment
from kalmanac._lab.failure import RunFailedError, how_to_go_on
from kalmanac._messages import MESSAGE, one_line


def exit_status(outcome: Outcome, signal: int | None) -> int:
    """0 where the run is finished, 1 where it diverged; after a signal as shells report it."""
    interrupted = 128 + (SIGINT if signal is None else signal)
    return {"finished": 0, "diverged": 1, "interrupted": interrupted}[outcome.status]


def print_outcomes(
    verb: str, outcomes: Sequence[Outcome | Exception], experiments: Sequence[Experiment],
    stop: StopSignals,
) -> int:  # fmt: skip
    """Print how runs ended; returns the exit status. An error that is nobody's but ours is raised.

    Of several runs, the worst end decides.
    """
    statuses = []
    for outcome, experiment in zip(outcomes, experiments, strict=True):
        if isinstance(outcome, RunFailedError | FolderInUseError | FolderTakenError | BadFileError):
            print(f"kalmanac {verb}: {one_line(outcome, MESSAGE)}", file=sys.stderr)
            statuses.append(1 if isinstance(outcome, RunFailedError) else 2)
        elif isinstance(outcome, Exception):
            raise outcome
        else:
            print(outcome_text(outcome, experiment))
            statuses.append(exit_status(outcome, stop.number))
    return max(statuses)


def outcome_text(outcome: Outcome, experiment: Experiment) -> str:
    """The best and the last evaluation, where the run lies, and how to go on with it."""
    status = {
        "finished": "finished",
        "interrupted": f"interrupted at step {outcome.step:,}; the last model is kept",
        "diverged": f"stopped at step {outcome.step:,}: losses or weights are not finite any more",
    }[outcome.status]
    on = [] if outcome.status == "finished" else [how_to_go_on(outcome.folder)]
    summary, lines = read_summary(outcome.folder), []
    for which in ("best", "last"):
        if evaluation := summary.get(which):
            step = evaluation.pop("step")
            lines.append(f"{which}, step {step:,}: {evaluation_line(evaluation)}")
    label = f" ({experiment.label})" if experiment.label else ""
    note = [f"note: {outcome.note}"] if outcome.note else []
    return "\n".join([*lines, f"{status}{label}: {outcome.folder}", *on, *note])
