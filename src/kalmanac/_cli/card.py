"""`kalmanac card RUN`: a folder for the Hugging Face Hub with the agent of a run, and its card."""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import numpy as np

from kalmanac._cli.evaluate import SEED
from kalmanac._cli.verb import Call, Verb, expect_at_least, need
from kalmanac._files.durable import refuse_link, write_whole
from kalmanac._files.episode_file import read_episode
from kalmanac._files.run_reader import EXPERIMENT, experiment_bytes
from kalmanac._lab.experiment import Experiment
from kalmanac._lab.factory import evaluation_environment, most_steps
from kalmanac._lab.play import load_run, record_episodes
from kalmanac._messages import one_line
from kalmanac._sac.environment_failure import closed
from kalmanac._sac.evaluation import Evaluation, evaluate_policy
from kalmanac._sac.recurrent_sac import RecurrentSAC

CURVE, EPISODE = "curve", "replay.gif"  # the name that the Hub shows a video by


@dataclass(frozen=True)
class Options:
    """What to share."""

    out: Path | None = None
    """The folder; None is RUN/card."""
    which: Literal["best", "last"] = "best"
    """Which model."""
    episodes: int | None = None
    """New episodes for the card's return; None is as many as in the training's evaluations."""
    policy_alone: bool = False
    """A tenth of the size: who loads it can act, but not train it further."""
    trust: bool = False
    """Run the code that a folder of somebody else names."""


def card(call: Call) -> int:
    """The verb."""
    options: Options = call.options
    expect_at_least(1, options, "episodes")
    need("matplotlib", "PIL", "plotly")
    run = Path(call.words[0])
    model, experiment = load_run(run, options.which, options.trust)
    run = run.absolute()  # an environment may change the working directory
    out = (options.out or run / "card").absolute()
    out.mkdir(parents=True, exist_ok=True)
    for name in (EXPERIMENT, f"{CURVE}.png", EPISODE):
        refuse_link(out / name)
    evaluation = _evaluation(model, experiment, options.episodes)
    seeds = _seeds_and_curve(run, out)
    _animate(model, experiment, out)
    write_whole(out / EXPERIMENT, experiment_bytes(run))
    model.push_to_folder(
        out, task=experiment.env, evaluation=evaluation, about=_about(experiment, seeds),
        policy_alone=options.policy_alone,
    )  # fmt: skip
    print(f"return {evaluation.mean_reward:.2f} ± {evaluation.std_reward:.2f}")
    print(f'ready: hf upload USER/NAME "{out}"')
    return 0


def _evaluation(model: RecurrentSAC, experiment: Experiment, episodes: int | None) -> Evaluation:
    """New episodes: the best evaluation of a training is above what its model is worth."""
    place = experiment.evaluations[0]
    env = evaluation_environment(experiment, place, episodes)
    try:
        return evaluate_policy(
            model, env, episodes or experiment.eval_episodes, seed=SEED,
            max_steps=most_steps(experiment, place),
        )  # fmt: skip
    finally:
        closed(env)


def _seeds_and_curve(run: Path, out: Path) -> dict[int, float]:
    """Draw the curve of the runs beside `run` that differ by the seed alone; their last returns."""
    from kalmanac._report.figure_parts import line, title_styles
    from kalmanac._report.figures import Panel, draw_curves
    from kalmanac._report.groups import make_groups
    from kalmanac._report.runs import read_runs
    from kalmanac._report.scores import last
    from kalmanac._report.style import styled

    groups = make_groups(read_runs(run.parent).runs, [])
    for group in groups:
        if any(one.folder.resolve() == run.resolve() for one in group.runs):
            lines = {group.agent_title: line(group)}
            with styled():
                panel = Panel(group.task_title, lines, "return")
                figure = draw_curves([panel], title_styles([group]), columns=1)
                figure.savefig(out / f"{CURVE}.png", dpi=150, metadata={"Software": None})
            known = [one for one in group.runs if one.steps.size]
            return {one.seed: value for one, value in zip(known, last(group), strict=True)}
    return {}


def _animate(model: RecurrentSAC, experiment: Experiment, out: Path) -> None:
    from kalmanac._report.episodes import animate_episode

    with TemporaryDirectory() as aside:
        (file,) = record_episodes(model, experiment, aside)
        animate_episode(read_episode(file), out / EPISODE)


def _about(experiment: Experiment, seeds: dict[int, float]) -> str:
    task = one_line(experiment.env).replace("`", "'")
    parts = [f"![an episode: what the agent sees, believes and does]({EPISODE})"]
    if seeds:
        values = np.array(list(seeds.values()))
        rows = "".join(f"| {seed} | {value:.2f} |\n" for seed, value in seeds.items())
        parts.append(
            f"## Training\n\n![return over the training, mean over seeds]({CURVE}.png)\n\n"
            f"Last evaluation of each of {len(seeds)} seeds, {values.mean():.2f} ± "
            f"{values.std():.2f} (mean and standard deviation over seeds):\n\n"
            f"| seed | return |\n|---|---|\n{rows.rstrip()}"
        )
    parts.append(
        "## Playing\n\n```sh\nhf download USER/NAME --local-dir agent\nkalmanac eval agent\n"
        f"kalmanac watch agent\n```\n\nThe environment, `{task}`, is made from its name in "
        f"`{EXPERIMENT}`; where that is somebody's own code, kalmanac asks first. "
        f"`kalmanac train --config agent/{EXPERIMENT}` trains such an agent anew."
    )
    return "\n\n".join(parts) + "\n\n"


VERB = Verb(
    card,
    Options,
    "Write a folder that can be shared as it is: the model (safetensors), its configuration, and a "
    "card with the return over new episodes, seeds, the curve, an animated episode and how to load "
    "it. `hf upload USER/NAME FOLDER` (before: huggingface-cli upload) publishes it.",
    words="RUN",
    least=1,
    most=1,
)
