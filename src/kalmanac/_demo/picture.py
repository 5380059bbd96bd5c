"""The demo's picture: learning curves, one episode of Best Arm, and a signal with gaps."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from kalmanac._demo.bandit import Trained
from kalmanac._demo.tracking import FIT_EPISODES, MISSING, TEST_EPISODES, TrackingResult, gaps_of
from kalmanac._envs.bayes import Ceiling
from kalmanac._files.episode_file import PlayedEpisode
from kalmanac._files.run_reader import read_metrics, series
from kalmanac._lab.factory import check_environment
from kalmanac._report.episode_figure import BLUE, GREY, RED, draw_samples, heading
from kalmanac._report.figures import Line, Panel, draw_panel
from kalmanac._report.style import DOTS_PER_INCH, legend_handles, line_styles, styled

YELLOW, PALE = "#F0E442", "#A0A0A0"
SHOWN = {  # how the picture calls the agents
    "oracle": "oracle: is shown the Bayes posterior",
    "vssm+kf": "vssm+kf: remembers, as a Kalman filter",
    "memoryless": "memoryless: sees the last sample only",
}
SIZE = (10.2, 9.0)  # inches
BAND = 2  # standard deviations
TITLE = {"loc": "left", "fontsize": 10, "fontweight": "bold"}
BELOW = {"loc": "upper left", "bbox_to_anchor": (0, -0.14)}  # of a legend


def draw(
    title: str, arms: Mapping[str, Trained], ceiling: Ceiling, played: PlayedEpisode,
    tracked: TrackingResult, path: Path,
) -> None:  # fmt: skip
    """Best Arm above, curves beside an episode; the signal with gaps below; as one PNG file."""
    with styled():
        figure = Figure(figsize=SIZE, layout="constrained")
        parts: Any = figure.subfigures(2, 1, height_ratios=(1.12, 1))
        above, below = parts
        above.suptitle(title, fontsize=11, fontweight="bold")
        left, right = above.subplots(1, 2)
        draw_curves(left, arms, ceiling)
        draw_episode(right, played)
        seed = arms["vssm+kf"].experiment.seed
        below.suptitle(
            f"Track: where is a wandering target? Noisy readings, {MISSING:.0%} of them missing, "
            f"seed {seed}",
            fontsize=11, fontweight="bold",
        )  # fmt: skip
        draw_tracking(below.subplots(), tracked)
        figure.savefig(path, dpi=DOTS_PER_INCH, metadata={"Software": None})


def draw_curves(axes: Any, arms: Mapping[str, Trained], ceiling: Ceiling) -> None:
    """All evaluations in distribution, each with its standard error."""
    lines = {name: _curve(arms[agent]) for agent, name in SHOWN.items()}
    styles = {SHOWN[agent]: style for agent, style in line_styles(SHOWN).items()}
    episodes = arms["vssm+kf"].experiment.eval_episodes
    level = "Bayes threshold: no agent; is told how noisy the samples are"
    panel = Panel("", lines, "return / 10     (1: right at once)",
                  level=(level, ceiling.normalized_return))  # fmt: skip
    draw_panel(axes, panel, styles)
    axes.set_title(f"Learning: mean of {episodes} test episodes ± standard error", **TITLE)
    across = Line2D([], [], color="black", ls=":", lw=1, label=level)
    axes.legend(handles=[*legend_handles(styles), across], **BELOW)


def _curve(trained: Trained) -> Line:
    experiment, place, _ = trained
    rows = read_metrics(place)
    steps, mean = (np.asarray(x) for x in series(rows, "eval/in/normalized"))
    spread = np.asarray(series(rows, "eval/in/std_reward")[1])
    error = spread / (check_environment(experiment).normalizer * experiment.eval_episodes**0.5)
    return Line(steps, mean, mean - error, mean + error)


def draw_episode(axes: Any, played: PlayedEpisode) -> None:
    """The samples, what could be known after each of them, and the decision."""
    draw_samples(axes, played)
    axes.axvline(played.steps, color=BLUE, lw=1.2, ls=":")
    _, doing = heading(played).split("\n")
    axes.set_title(f"{played.about.agent}: {doing}", **TITLE)
    axes.set(xlabel="samples so far")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(**BELOW)


def draw_tracking(axes: Any, tracked: TrackingResult) -> None:
    """The target, its readings and gaps, the exact filter's band and the agent's own."""
    episode = tracked.episode
    steps = np.arange(1, len(episode.target) + 1)
    gaps = gaps_of(episode.observed)
    for start, end in gaps:
        label = "readings missing; the agent is told so" if start == gaps[0][0] else None
        axes.axvspan(start + 0.5, end + 0.5, color=YELLOW, alpha=0.3, lw=0, zorder=0, label=label)
    _band(axes, steps, tracked.exact_mean, tracked.exact_band, PALE, 0.35, "-")
    _band(axes, steps, episode.estimate, tracked.band, BLUE, 0.12, ":")
    axes.plot(steps, episode.target, color="black", lw=1.2, label="target: hidden from both")
    axes.plot(
        steps[episode.observed], episode.reading[episode.observed], "x", color=RED, ms=6, mew=1.6,
        label="noisy readings: what both see",
    )  # fmt: skip
    exact = f"exact Kalman filter, ± {BAND}σ: knows the law of target and noise"
    axes.plot(steps, tracked.exact_mean, color=GREY, lw=2.2, ls="--", label=exact)
    own = (
        f"vssm+kf: its estimate, learned from rewards alone,\n± {BAND}σ from its filter's own "
        f"variances (their mean × one\nfactor, fitted on {FIT_EPISODES} other episodes)"
    )
    axes.plot(steps, episode.estimate, color=BLUE, lw=2.2, label=own)
    ratio = tracked.error / tracked.exact_error
    axes.set_title(
        f"One episode; in {TEST_EPISODES}, its squared error is {ratio:.2f} × the exact filter's",
        **TITLE,
    )
    axes.set(xlabel="step", ylabel="position", xlim=(0.5, len(steps) + 0.5))
    axes.legend(ncols=2, **BELOW)


def _band(axes: Any, steps: Any, mean: Any, std: Any, color: str, alpha: float, edge: str) -> None:
    low, high = mean - BAND * std, mean + BAND * std
    axes.fill_between(steps, low, high, color=color, alpha=alpha, lw=0)
    for side in (low, high):
        axes.plot(steps, side, edge, color=color, lw=1.2)
