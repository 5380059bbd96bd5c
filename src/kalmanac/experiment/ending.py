"""How a run ended, for whoever started it: words and an exit status."""

from collections.abc import Mapping
from signal import SIGINT
from typing import Any

from kalmanac.experiment.description import Experiment
from kalmanac.experiment.failure import how_to_go_on
from kalmanac.experiment.progress import evaluation_line
from kalmanac.experiment.running import Outcome
from kalmanac.runlog import read_summary


def exit_status(outcome: Outcome, signal: int | None) -> int:
    """0 where the run is finished, 1 where it diverged; after a signal as shells report it."""
    interrupted = 128 + (SIGINT if signal is None else signal)
    return {"finished": 0, "diverged": 1, "interrupted": interrupted}[outcome.status]


def ending(outcome: Outcome, experiment: Experiment) -> str:
    """The best and the last evaluation, where the run lies, and how to go on with it."""
    told = {
        "finished": "finished",
        "interrupted": f"interrupted at step {outcome.step:,}; the last model is kept",
        "diverged": f"stopped at step {outcome.step:,}: losses or weights are not finite any more",
    }[outcome.status]
    on = [] if outcome.status == "finished" else [how_to_go_on(outcome.folder)]
    lines = [
        f"{which}, step {found['step']:,}: {evaluation_line(_evaluations(found))}"
        for which in ("best", "last")
        if (found := read_summary(outcome.folder).get(which))
    ]
    label = f" ({experiment.label})" if experiment.label else ""
    return "\n".join([*lines, f"{told}{label}: {outcome.folder}", *on])


def _evaluations(found: Mapping[str, Any]) -> dict[str, float]:
    return {key: value for key, value in found.items() if key != "step"}
