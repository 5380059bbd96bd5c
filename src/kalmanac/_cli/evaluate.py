"""`kalmanac eval RUN`: play new episodes with a trained agent and print what came out."""

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from kalmanac._cli.verb import Call, Verb, expect_at_least
from kalmanac._files.run_reader import read_summary
from kalmanac._lab.evaluation import evaluate
from kalmanac._lab.experiment import Experiment
from kalmanac._lab.factory import check_environment, evaluation_environment, most_steps
from kalmanac._lab.play import find_model
from kalmanac._lab.trust import ask_on_terminal, read_trusted
from kalmanac._ops.device import check_device
from kalmanac._sac.environment_failure import closed
from kalmanac._sac.progress import Progress
from kalmanac._sac.recurrent_sac import RecurrentSAC

SEED = 1_000_003  # apart from the seeds of training and its evaluations


@dataclass(frozen=True)
class Options:
    """What to play."""

    episodes: int | None = None
    """In each environment; None is as many as in the training."""
    which: Literal["best", "last"] = "best"
    """Which model."""
    env: str | None = None
    """One evaluation only, such as in or out."""
    seed: int = SEED
    """Of the episodes."""
    max_steps: int | None = None
    """An episode that is not over after so many steps is cut; None is as in the training."""
    device: str = "auto"
    """auto, cpu or cuda."""
    trust: bool = False
    """Run the code that a folder of somebody else names."""


def play(call: Call) -> int:
    """The verb."""
    options: Options = call.options
    expect_at_least(1, options, "episodes")
    expect_at_least(0, options, "seed")
    check_device(options.device)
    run = Path(call.words[0])
    experiment = read_trusted(run, options.trust, ask_on_terminal)
    run = run.absolute()  # an environment may change the working directory
    if options.max_steps is not None:
        experiment = experiment.changed({"eval_max_steps": options.max_steps})
    model_file = find_model(run, options.which)
    names = [options.env] if options.env else list(check_environment(experiment).evaluations)
    summary = read_summary(run)
    model = RecurrentSAC.load(model_file, device=options.device)
    rows = {name: _row(model, experiment, name, options.episodes, options.seed) for name in names}
    label = f", {experiment.label}" if experiment.label else ""
    print(
        f"{experiment.env} with {experiment.agent}, seed {experiment.seed}{label}: "
        f"{options.which} model, step {model.num_timesteps:,} "
        f"({summary.get('status', 'unknown')}), {options.episodes or experiment.eval_episodes} "
        "episodes each"
    )
    print(table(rows))
    return 0


def table(rows: dict[str, dict[str, float]]) -> str:
    """One line for each environment, one column for each number."""
    keys = list(dict.fromkeys(key for metrics in rows.values() for key in metrics))
    head = ["", *(key.replace("_", " ") for key in keys)]
    body = [
        [name, *(f"{metrics[key]:.3f}" if key in metrics else "" for key in keys)]
        for name, metrics in rows.items()
    ]
    wide = [max(map(len, column)) for column in zip(head, *body, strict=True)]
    lines = ("  ".join(c.rjust(n) for c, n in zip(row, wide, strict=True)) for row in [head, *body])
    return "\n".join(line.rstrip() for line in lines)


def _row(
    model: RecurrentSAC, experiment: Experiment, name: str, episodes: int | None, seed: int
) -> dict[str, float]:
    env = evaluation_environment(experiment, name, episodes)
    metrics = evaluate(
        model,
        env,
        episodes or experiment.eval_episodes,
        seed=seed,
        return_scale=check_environment(experiment).normalizer,
        max_steps=most_steps(experiment, name),
        each_step=partial(Progress(0, sys.stderr).evaluating, name),
    )
    closed(env)
    return metrics


VERB = Verb(
    play,
    Options,
    "Play new episodes with a trained agent, without exploration, and print normalized return, "
    "length and win rate. RUN is a folder that `train` has left.",
    words="RUN",
    least=1,
    most=1,
)
