"""The demo's picture: learning curves, one episode of Best Arm, and a signal with gaps."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from kalmanac.demo.bandit import BANDIT, Played
from kalmanac.demo.tracking import FITTED, JUDGED, MISSING, Tracked, gaps_of
from kalmanac.demo.training import Trained
from kalmanac.envs import ABOVE, BELOW, Ceiling
from kalmanac.experiment import check_environment
from kalmanac.run_reader import read_metrics, series

matplotlib.use("Agg")
import matplotlib.pyplot as plt

# Okabe & Ito's colors, told apart by all readers
BLUE, GREEN, RED = "#0072B2", "#009E73", "#D55E00"
YELLOW, GREY, PALE = "#F0E442", "#5A5A5A", "#A0A0A0"
SHOWN = {  # how the picture calls the agents, and with which color and marker
    "oracle": ("oracle: is shown the Bayes posterior", GREEN, "s"),
    "vssm+kf": ("vssm+kf: remembers, as a Kalman filter", BLUE, "o"),
    "memoryless": ("memoryless: sees the last sample only", RED, "^"),
}
STYLE = {
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "legend.frameon": False,
}
BAND = 2  # standard deviations


def draw(
    title: str, arms: Mapping[str, Trained], ceiling: Ceiling, played: Played, tracked: Tracked,
    path: Path,
) -> None:  # fmt: skip
    """Best Arm above, curves beside an episode; the signal with gaps below; as one PNG file."""
    with plt.rc_context(STYLE):
        figure = plt.figure(figsize=(12.5, 11), layout="constrained")
        above, below = figure.subfigures(2, 1, height_ratios=(1.12, 1))
        above.suptitle(title, fontsize=13, fontweight="bold")
        left, right = above.subplots(1, 2)
        draw_curves(left, arms, ceiling)
        draw_episode(right, played)
        for axes in (left, right):
            axes.legend(loc="upper left", bbox_to_anchor=(0, -0.14))
        seed = arms["vssm+kf"].experiment.seed
        below.suptitle(
            f"Track: where is a wandering target? Noisy readings, {MISSING:.0%} of them missing, "
            f"seed {seed}",
            fontsize=13, fontweight="bold",
        )  # fmt: skip
        signal = below.subplots()
        draw_tracking(signal, tracked)
        signal.legend(loc="upper left", bbox_to_anchor=(0, -0.14), ncols=2)
        figure.savefig(path, dpi=110)
        plt.close(figure)


def draw_curves(axes: Any, arms: Mapping[str, Trained], ceiling: Ceiling) -> None:
    """All evaluations in distribution, each with its standard error."""
    for agent, (name, color, marker) in SHOWN.items():
        experiment, place, _ = arms[agent]
        rows = read_metrics(place)
        steps, mean = (np.asarray(x) for x in series(rows, "eval/in/normalized"))
        spread = np.asarray(series(rows, "eval/in/std_reward")[1])
        scale = check_environment(experiment).normaliser * experiment.eval_episodes**0.5
        low, high = mean - spread / scale, mean + spread / scale
        axes.fill_between(steps / 1000, low, high, color=color, alpha=0.15, lw=0)
        axes.plot(steps / 1000, mean, f"{marker}-", color=color, ms=5, lw=2, label=name)
    axes.axhline(
        ceiling.normalised_return, color="black", ls="--", lw=1.3,
        label="Bayes threshold: no agent; is told how noisy the samples are",
    )  # fmt: skip
    episodes = experiment.eval_episodes
    axes.set_title(f"Learning: mean of {episodes} test episodes ± standard error")
    axes.set(xlabel="training steps (thousands)", ylabel="return / 10     (1: right at once)")
    axes.set_xlim(left=0)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(axis="y", alpha=0.25)


def draw_episode(axes: Any, played: Played) -> None:
    """The samples, what could be known after each of them, and the decision."""
    mean, std = np.asarray(played.mean), np.asarray(played.std)
    steps = np.arange(1, len(mean) + 1)
    axes.axhline(0, color="black", lw=1)
    axes.plot(steps, played.samples, "o", color=BLUE, ms=6, label="samples: what the agent sees")
    axes.axhline(BANDIT["mu"], color=GREEN, ls="--", lw=1.5, label="true mean: hidden from it")
    axes.plot(steps, mean, color=GREY, lw=2, label="mean of the Bayes posterior, and")
    axes.fill_between(
        steps, mean - 3 * std, mean + 3 * std, color=PALE, alpha=0.25, lw=0,
        label="its ± 3σ band: for comparison, hidden too",
    )  # fmt: skip
    axes.axvline(steps[-1], color=BLUE, lw=1.5, ls=":")
    said = {ABOVE: "“above”", BELOW: "“below”", None: "no decision"}[played.decision]
    verdict = "right" if played.won else "wrong"
    axes.set_title(f"vssm+kf, one episode: {said} after {len(steps)} samples, {verdict}")
    axes.set(xlabel="samples so far", ylabel="value of a sample")
    axes.xaxis.get_major_locator().set_params(integer=True)


def draw_tracking(axes: Any, tracked: Tracked) -> None:
    """The target, its readings and gaps, the exact filter's band and the agent's own."""
    seen = tracked.watched
    steps = np.arange(1, len(seen.target) + 1)
    gaps = gaps_of(seen.observed)
    for start, end in gaps:
        label = "readings missing; the agent is told so" if start == gaps[0][0] else None
        axes.axvspan(start + 0.5, end + 0.5, color=YELLOW, alpha=0.3, lw=0, zorder=0, label=label)
    _band(axes, steps, tracked.exact_mean, tracked.exact_band, PALE, 0.35, "-")
    _band(axes, steps, seen.estimate, tracked.band, BLUE, 0.12, ":")
    axes.plot(steps, seen.target, color="black", lw=1.4, label="target: hidden from both")
    axes.plot(
        steps[seen.observed], seen.reading[seen.observed], "x", color=RED, ms=6, mew=1.6,
        label="noisy readings: what both see",
    )  # fmt: skip
    exact = f"exact Kalman filter, ± {BAND}σ: knows the law of target and noise"
    axes.plot(steps, tracked.exact_mean, color=GREY, lw=2.2, ls="--", label=exact)
    own = (
        f"vssm+kf: its estimate, learnt from rewards alone,\n± {BAND}σ from its filter's own "
        f"variances (their mean × one\nfactor, fitted on {FITTED} other episodes)"
    )
    axes.plot(steps, seen.estimate, color=BLUE, lw=2.2, label=own)
    ratio = tracked.error / tracked.exact_error
    axes.set_title(
        f"One episode; in {JUDGED}, its squared error is {ratio:.2f} × the exact filter's"
    )
    axes.set(xlabel="step", ylabel="position", xlim=(0.5, len(steps) + 0.5))


def _band(axes: Any, steps: Any, mean: Any, std: Any, color: str, alpha: float, edge: str) -> None:
    low, high = mean - BAND * std, mean + BAND * std
    axes.fill_between(steps, low, high, color=color, alpha=alpha, lw=0)
    for side in (low, high):
        axes.plot(steps, side, edge, color=color, lw=1.2)
