"""`kalmanac demo`: three agents learn the shortened Best Arm; one picture and one table come out.

Memoryless sees the last sample alone, vssm+kf remembers, Oracle is shown the Bayes posterior. The
task is not the paper's: it ends after 100 steps instead of 1000, so that minutes suffice. Every
line, title and table that comes from it says "shortened".
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from kalmanac.envs import ABOVE, BELOW, BestArm, Ceiling, bayes_threshold
from kalmanac.experiment import (
    Experiment,
    Progress,
    check_environment,
    evaluate,
    evaluation_environment,
    run,
)
from kalmanac.runlog import (
    MODELS,
    duration,
    is_run,
    read_metrics,
    read_summary,
    read_timing,
    series,
)
from kalmanac.sac import RecurrentSAC
from kalmanac.suites import PRESETS

PRESET = "best-arm-demo"
AGENTS = ("memoryless", "oracle", "vssm+kf")  # the quick ones first
SHOWN = {  # how the picture calls and colours them: Okabe & Ito's, told apart by all readers
    "vssm+kf": ("vssm+kf: remembers, as a Kalman filter", "#0072B2"),
    "oracle": ("oracle: is shown the Bayes posterior", "#009E73"),
    "memoryless": ("memoryless: sees the last sample only", "#D55E00"),
}
NEW_EPISODES, NEW_SEED = 1000, 1_000_003  # apart from the seeds of training and its evaluations
PLACES = ("in", "out")  # where the best models play them
BANDIT = {"mu": 0.2, "sigma": 1.0}  # of the episode that is drawn
LEAST_SAMPLES, TRIES = 8, 200
PICTURE, TABLE = "best-arm-shortened.png", "best-arm-shortened.md"


class Trained(NamedTuple):
    """A run: "finished" (now or earlier), "interrupted" or "diverged"."""

    experiment: Experiment
    place: Path
    status: str


class Played(NamedTuple):
    """One episode: the samples seen, the posterior of the mean after each, and how it ended."""

    samples: list[float]
    mean: list[float]
    std: list[float]
    decision: int | None  # None: asked until the end
    won: bool


class Row(NamedTuple):
    """An agent's line of the table; returns are divided by the reward of a right decision."""

    best: float  # of the evaluations during training
    last: float
    new: Mapping[str, Mapping[str, float]]  # place → the best model in episodes of its own
    seconds: float


def train(agent: str, folder: Path, steps: int | None) -> Trained:
    """Train, unless the folder holds this very run and it is finished."""
    experiment = PRESETS[PRESET].experiment(agent)
    if steps is not None:
        experiment = experiment.changed({"total_steps": steps})
    place = folder / f"{agent}-{experiment.hash}"
    name = f"{agent} ({experiment.label} {experiment.env}, seed {experiment.seed})"
    if is_run(place) and read_summary(place).get("status") == "finished":
        print(f"{name}: trained already, {place}", flush=True)
        return Trained(experiment, place, "finished")
    print(f"{name}: {experiment.total_steps:,} steps", flush=True)
    bar = Progress(experiment.total_steps)
    outcome = run(experiment, place, device="cpu", progress=bar, overwrite=True)
    return Trained(experiment, place, outcome.status)


def measure(trained: Trained) -> Row:
    """The best and the last evaluation of a run, and new episodes of its best model."""
    experiment, place, _ = trained
    scale = check_environment(experiment).normaliser
    model = RecurrentSAC.load(place / MODELS["best"], device="cpu")
    new = {}
    for name in PLACES:
        env = evaluation_environment(experiment, name, NEW_EPISODES)
        new[name] = evaluate(model, env, NEW_EPISODES, seed=NEW_SEED, normaliser=scale)
        env.close()
    _, returns = series(read_metrics(place), "eval/in/normalized")
    _, seconds = series(read_timing(place), "time/elapsed")
    return Row(max(returns), returns[-1], new, seconds[-1] if seconds else 0.0)


def threshold(experiment: Experiment, place: str) -> Ceiling:
    """The best fixed threshold on the clarity of the Bayes posterior, in this very task."""
    changes = check_environment(experiment).evaluations[place]
    return bayes_threshold(**{**experiment.env_settings, **changes})


def play(model: RecurrentSAC, settings: Mapping[str, Any]) -> Played:
    """The first episode, counting seeds from 0, that takes LEAST_SAMPLES samples or more.

    An episode of two samples shows nothing. Whether it was won does not matter. Where TRIES seeds
    bring none, it is the longest of them.
    """
    env = BestArm(**settings)
    longest: Played | None = None
    for seed in range(TRIES):
        played = play_once(model, env, seed)
        if longest is None or len(played.samples) > len(longest.samples):
            longest = played
        if len(played.samples) >= LEAST_SAMPLES:
            break
    assert longest is not None
    return longest


def play_once(model: RecurrentSAC, env: BestArm, seed: int) -> Played:
    """One episode without exploration."""
    session = model.session()
    observation, info = env.reset(seed=seed, options=dict(BANDIT))
    samples, beliefs, over = [], [], False
    while not over:
        samples.append(float(observation[0]))
        beliefs.append(info["privileged"])
        action = int(session.act(observation))
        observation, _, over, _, info = env.step(action)
    mean, std = np.asarray(beliefs, dtype=float).T.tolist()
    return Played(samples, mean, std, action if action in (ABOVE, BELOW) else None, info["win"])


def as_table(title: str, rows: Mapping[str, Row], ceilings: Mapping[str, Ceiling]) -> str:
    """A Markdown table that reads well on a terminal, too."""
    head = ["agent", "best evaluation", "last evaluation", "return", "win rate", "steps"]
    body = [[*head, "return, noisier", "trained in"]]
    for agent, row in rows.items():
        found = row.new["in"]
        mine = (found["normalized"], found["win_rate"], found["length"])
        numbers = _rounded(row.best, row.last, *mine, row.new["out"]["normalized"])
        body.append([agent, *numbers, duration(row.seconds)])
    best = ceilings["in"]
    known = _rounded(
        best.normalised_return, best.win_rate, best.length, ceilings["out"].normalised_return
    )
    body.append(["Bayes threshold", "–", "–", *known, "–"])
    wide = [max(map(len, column)) for column in zip(*body, strict=True)]
    lines = ["| " + " | ".join(map(str.ljust, row, wide)) + " |" for row in body]
    lines.insert(1, "|" + "|".join("-" * (n + 2) for n in wide) + "|")
    notes = (
        "Returns are divided by 10, the reward of a right decision. Evaluations: the picture's, "
        "during training.",
        f"The next columns: the best model in {NEW_EPISODES:,} new episodes; noisier: σ from 2 "
        "to 3 instead of 0 to 2, never seen in training.",
        "Bayes threshold: the best fixed threshold on |mean| / std of the posterior, with σ known; "
        "no agent, and not the best of all policies.",
        f"The picture's episode: the first, counting seeds from 0, with {LEAST_SAMPLES} samples or "
        f"more (else the longest of {TRIES}), won or lost.",
        "One seed and a short training: a look, not a comparison.",
    )
    return "\n".join([title, "", *lines, "", *notes, ""])


def _rounded(*numbers: float) -> list[str]:
    return [f"{x:.1f}" if abs(x) >= 2 else f"{x:.2f}" for x in numbers]


def draw(
    title: str, trained: Mapping[str, Trained], ceiling: Ceiling, played: Played, path: Path
) -> None:
    """Learning curves on the left, one episode on the right, as one PNG file."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    style = {"font.size": 11, "axes.spines.top": False, "axes.spines.right": False}
    with plt.rc_context(style):
        figure, (left, right) = plt.subplots(1, 2, figsize=(13.5, 6.8), layout="constrained")
        figure.suptitle(f"{title}\n", fontsize=13, fontweight="bold")
        draw_curves(left, trained, ceiling)
        draw_episode(right, played)
        for axes in (left, right):
            axes.legend(loc="upper left", bbox_to_anchor=(0, -0.13), frameon=False)
        figure.savefig(path, dpi=110)
        plt.close(figure)


def draw_curves(axes: Any, trained: Mapping[str, Trained], ceiling: Ceiling) -> None:
    """All evaluations in distribution, each with its standard error."""
    for agent, (name, colour) in SHOWN.items():
        experiment, place, _ = trained[agent]
        rows = read_metrics(place)
        steps, mean = (np.asarray(x) for x in series(rows, "eval/in/normalized"))
        spread = np.asarray(series(rows, "eval/in/std_reward")[1])
        scale = check_environment(experiment).normaliser * experiment.eval_episodes**0.5
        low, high = mean - spread / scale, mean + spread / scale
        axes.fill_between(steps / 1000, low, high, color=colour, alpha=0.15, lw=0)
        axes.plot(steps / 1000, mean, "o-", color=colour, ms=4, lw=2, label=name)
    axes.axhline(
        ceiling.normalised_return, color="black", ls="--", lw=1.3,
        label="Bayes threshold: no agent; is told how noisy the samples are",
    )  # fmt: skip
    episodes = experiment.eval_episodes
    axes.set_title(
        f"Learning: mean of {episodes} test episodes (band: ± standard error)\n", size=12
    )
    axes.set(xlabel="training steps (thousands)", ylabel="return / 10     (1: right at once)")
    axes.set_xlim(left=0)
    axes.grid(axis="y", alpha=0.25)


def draw_episode(axes: Any, played: Played) -> None:
    """The samples, what could be known after each of them, and the decision."""
    mean, std = np.asarray(played.mean), np.asarray(played.std)
    steps = np.arange(1, len(mean) + 1)
    blue = SHOWN["vssm+kf"][1]
    axes.axhline(0, color="black", lw=1)
    axes.plot(steps, played.samples, "o", color=blue, ms=6, label="samples: what the agent sees")
    axes.axhline(BANDIT["mu"], color="#009E73", ls="--", lw=1.5, label="true mean: hidden from it")
    axes.plot(steps, mean, color="#5A5A5A", lw=2, label="mean of the Bayes posterior, and")
    axes.fill_between(
        steps, mean - 3 * std, mean + 3 * std, color="#8A8A8A", alpha=0.25, lw=0,
        label="its ± 3σ band: for comparison, hidden too",
    )  # fmt: skip
    axes.axvline(steps[-1], color=blue, lw=1.5, ls=":")
    said = {ABOVE: "decides “above”", BELOW: "decides “below”", None: "never decides"}
    verdict = "right" if played.won else "wrong"
    axes.text(
        steps[-1], 1.01, f"after {len(steps)} samples it {said[played.decision]}: {verdict}",
        transform=axes.get_xaxis_transform(), ha="right", va="bottom", color=blue,
        fontweight="bold",
    )  # fmt: skip
    axes.set_title("One episode of vssm+kf: is the mean of the samples above zero?\n", size=12)
    axes.set(xlabel="samples so far", ylabel="value of a sample")
    axes.xaxis.get_major_locator().set_params(integer=True)


def demo(folder: Path, steps: int | None) -> int:
    """Train what is missing, then measure and draw. 130: interrupted; 1: diverged."""
    trained: dict[str, Trained] = {}
    print("Three agents, one after the other, minutes in all; Ctrl-C keeps what is finished.")
    for agent in AGENTS:
        trained[agent] = train(agent, folder, steps)
        if trained[agent].status == "interrupted":
            raise KeyboardInterrupt
        if trained[agent].status != "finished":
            _, place, status = trained[agent]
            print(f"kalmanac demo: {agent} {status}: {place}", file=sys.stderr)
            return 1
    told, place, _ = trained["vssm+kf"]
    settings = told.env_settings
    title = (
        f"Best Arm, {told.label}: at most {settings['horizon']} steps, {settings['cost']} a sample "
        f"(not the paper's task), seed {told.seed}"
    )
    rows = {agent: measure(trained[agent]) for agent in reversed(AGENTS)}
    ceilings = {name: threshold(told, name) for name in PLACES}
    played = play(RecurrentSAC.load(place / MODELS["best"], device="cpu"), settings)
    draw(title, trained, ceilings["in"], played, folder / PICTURE)
    table = as_table(title, rows, ceilings)
    (folder / TABLE).write_text(table, encoding="utf-8")
    print(f"\n{table}\npicture: {folder / PICTURE}\ntable:   {folder / TABLE}")
    return 0


def main(argv: Sequence[str]) -> int:
    """The verb."""
    parser = argparse.ArgumentParser(
        prog="kalmanac demo",
        description="Train vssm+kf, oracle and memoryless on the shortened Best Arm, in minutes, "
        f"and leave one picture ({PICTURE}) and one table. Runs that are finished are kept: a "
        "second start goes on with the first that is not.",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("runs/demo"), metavar="FOLDER", help="default: %(default)s"
    )
    parser.add_argument("--steps", type=int, metavar="N", help="of each agent; default: the preset")
    options = parser.parse_args(argv)
    if options.steps is not None and options.steps < 1:
        parser.error(f"--steps: got {options.steps}, expected at least 1")
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        print("kalmanac demo: needs matplotlib: pip install 'kalmanac[report]'", file=sys.stderr)
        return 1
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the tensors are too small for more: on a busy machine more is slower
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        return demo(options.out, options.steps)
    except OSError as error:
        print(f"kalmanac demo: --out {options.out}: {error.strerror}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; finished runs are kept, and a second start goes on from there")
        return 130
    finally:
        torch.set_num_threads(threads)
