"""The demo's first task: agents that learn the shortened Best Arm, and what came of it."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from kalmanac._envs.bayes import Ceiling, bayes_threshold
from kalmanac._files.episode_file import PlayedEpisode
from kalmanac._files.run_reader import (
    MODELS,
    is_run,
    read_metrics,
    read_summary,
    read_timing,
    series,
)
from kalmanac._lab.evaluation import evaluate
from kalmanac._lab.experiment import Experiment
from kalmanac._lab.factory import check_environment, evaluation_environment
from kalmanac._lab.play import play
from kalmanac._lab.run import run
from kalmanac._messages import duration
from kalmanac._report.table import Table
from kalmanac._sac.progress import Progress
from kalmanac._sac.recurrent_sac import RecurrentSAC
from kalmanac._suites.registry import PRESETS

PRESET = "best-arm-demo"
AGENTS = ("memoryless", "oracle", "vssm+kf")  # the quick ones first
EVAL_EPISODES = 1000  # of an evaluation during training
NEW_EPISODES, NEW_SEED = 1000, 1_000_003  # apart from the seeds of training and its evaluations
PLACES = ("in", "out")  # where the best models play them
BANDIT = {"mu": 0.2, "sigma": 1.0}  # of the episode that is drawn
LEAST_SAMPLES, TRIES = 8, 200


class Trained(NamedTuple):
    """A run: "finished" (now or earlier), "interrupted" or "diverged"."""

    experiment: Experiment
    place: Path
    status: str


def train(experiment: Experiment, folder: Path) -> Trained:
    """Train, unless the folder holds this very run and it is finished."""
    place = folder / f"{experiment.env}-{experiment.agent}-{experiment.hash}"
    task = f"{experiment.label} {experiment.env}".strip()
    name = f"{experiment.agent} ({task}, seed {experiment.seed})"
    if is_run(place) and read_summary(place).get("status") == "finished":
        print(f"{name}: trained already, {place}", flush=True)
        return Trained(experiment, place, "finished")
    print(f"{name}: {experiment.total_steps:,} steps", flush=True)
    bar = Progress(experiment.total_steps)
    outcome = run(experiment, place, device="cpu", progress=bar, overwrite=True)
    return Trained(experiment, place, outcome.status)


def shortened(agent: str, seed: int) -> Experiment:
    """What an agent learns: the preset's task and settings, with more episodes to judge it by."""
    # all episodes at once, in half a second
    evaluation = {"eval_episodes": EVAL_EPISODES, "eval_on_device": True}
    return PRESETS[PRESET].experiment(agent).changed({"seed": seed, **evaluation})


def title_of(experiment: Experiment) -> str:
    """The task, and that it is not the paper's."""
    settings = experiment.env_settings
    return (
        f"Best Arm, {experiment.label}: at most {settings['horizon']} steps, {settings['cost']} a "
        f"sample (not the paper's task), seed {experiment.seed}"
    )


class Row(NamedTuple):
    """An agent's line of the table; returns are divided by the reward of a right decision."""

    best: float  # of the evaluations during training
    last: float
    new: Mapping[str, Mapping[str, float]]  # place → the best model in episodes of its own
    seconds: float


def measure(trained: Trained) -> Row:
    """The best and the last evaluation of a run, and new episodes of its best model."""
    experiment, place, _ = trained
    scale = check_environment(experiment).normalizer
    model = RecurrentSAC.load(place / MODELS["best"], device="cpu")
    new = {}
    for name in PLACES:
        env = evaluation_environment(experiment, name, NEW_EPISODES)
        new[name] = evaluate(model, env, NEW_EPISODES, seed=NEW_SEED, return_scale=scale)
        env.close()
    _, returns = series(read_metrics(place), "eval/in/normalized")
    _, seconds = series(read_timing(place), "time/elapsed")
    return Row(max(returns), returns[-1], new, seconds[-1] if seconds else 0.0)


def threshold(experiment: Experiment, place: str) -> Ceiling:
    """The best fixed threshold on the clarity of the Bayes posterior, in this very task."""
    changes = check_environment(experiment).evaluations[place]
    return bayes_threshold(**{**experiment.env_settings, **changes})


def play_shown(model: RecurrentSAC, experiment: Experiment) -> PlayedEpisode:
    """The first episode, counting seeds from 0, that takes LEAST_SAMPLES samples or more.

    An episode of two samples shows nothing. Whether it was won does not matter. Where TRIES seeds
    bring none, it is the longest of them.
    """
    bandit = {name: (value, value) for name, value in BANDIT.items()}
    longest: PlayedEpisode | None = None
    for seed in range(TRIES):
        played = play(model, experiment, seed=seed, changes=bandit)
        if longest is None or played.steps > longest.steps:
            longest = played
        if played.steps >= LEAST_SAMPLES:
            break
    assert longest is not None
    return longest


def as_table(title: str, rows: Mapping[str, Row], ceilings: Mapping[str, Ceiling]) -> str:
    """A Markdown table that reads well on a terminal, too."""
    head = (
        "agent", "best evaluation", "last evaluation", "return", "win rate", "steps",
        "return, noisier", "trained in",
    )  # fmt: skip
    body = []
    for agent, row in rows.items():
        new = row.new["in"]
        scores = (new["normalized"], new["win_rate"], new["length"])
        numbers = _rounded(row.best, row.last, *scores, row.new["out"]["normalized"])
        body.append((agent, *numbers, duration(row.seconds)))
    best = ceilings["in"]
    known = _rounded(
        best.normalized_return, best.win_rate, best.length, ceilings["out"].normalized_return
    )
    body.append(("Bayes threshold", "–", "–", *known, "–"))
    notes = (
        "Returns are divided by 10, the reward of a right decision. Evaluations: the picture's, "
        "during training.",
        f"The next columns: the best model in {NEW_EPISODES:,} new episodes; noisier: σ from 2 "
        "to 3 instead of 0 to 2, never seen in training.",
        "Bayes threshold: the best fixed threshold on |mean| / std of the posterior, with σ known; "
        "no agent, and not the best of all policies.",
        "The picture's episode: of the last model, the first, counting seeds from 0, with "
        f"{LEAST_SAMPLES} samples or more (else the longest of {TRIES}), won or lost.",
        "One seed and a short training: a look, not a comparison.",
    )
    return Table("demo", title, head, body, notes).markdown()


def _rounded(*numbers: float) -> list[str]:
    return [f"{x:.1f}" if abs(x) >= 2 else f"{x:.2f}" for x in numbers]
