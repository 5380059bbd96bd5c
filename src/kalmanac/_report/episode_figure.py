"""The picture of a played episode: its panels over the steps, and how they stand together."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.transforms import ScaledTranslation

from kalmanac._files.episode_file import PlayedEpisode

# Okabe & Ito's colors: every reader can tell them apart
BLUE, ORANGE, GREEN, RED, PURPLE, SKY = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9",
)  # fmt: skip
GREY, PALE = "#5A5A5A", "#C9C9C9"
LINES = (BLUE, ORANGE, GREEN, PURPLE)
MOST_LINES = len(LINES)
CHANNELS = 3  # of the belief, those with the largest influence
BAND = 3  # standard deviations of the Bayes posterior, as in the paper's figure
ACTION_COLORS = (PALE, GREEN, PURPLE, SKY)  # Best Arm: ask, above, below

Draw = Callable[[Any, PlayedEpisode], None]


class Panel(NamedTuple):
    """What to draw, under which name, and how high in comparison."""

    title: str
    draw: Draw
    height: float = 1.0
    reach: float = 0.0  # how far what belongs to a step goes beyond it


def episode_panels(episode: PlayedEpisode) -> list[Panel]:
    """The panels that this episode can fill, from observations to actions."""
    panels = _observation_panels(episode)
    if episode.belief_mean is not None:
        panels.append(Panel("the agent's belief", draw_belief, 1.2))
        panels.append(Panel("gain", draw_gain, 0.8))
    panels.append(
        Panel("the policy", draw_probability, reach=0.5)
        if episode.probability is not None
        else Panel("action", draw_action)
    )
    if episode.posterior_mean is None:
        panels.append(Panel("return so far", draw_return, 0.7))
    return panels


def _observation_panels(episode: PlayedEpisode) -> list[Panel]:
    if episode.posterior_mean is not None:
        return [Panel("what can be known", draw_samples, 1.7)]
    width = episode.observation.shape[1]
    if is_one_hot(episode.observation):
        panels = [Panel("observation", draw_symbols)]
    elif width == 1:
        panels = [Panel("observation", _one_observation(0), 1.2)]
    else:  # none at all where there is but an image
        panels = [
            Panel(f"observation {i + 1} of {width}", _one_observation(i), 0.7)
            for i in range(min(width, MOST_LINES))
        ]
    if episode.truth is not None and not truth_is_observed(episode):
        panels.append(Panel("true state", draw_truth))
    return panels


def steps_of(episode: PlayedEpisode) -> np.ndarray[Any, Any]:
    """The steps 1 … T of an episode."""
    return np.arange(1, episode.steps + 1)


def channels_of(episode: PlayedEpisode) -> list[int]:
    """The channels of the last layer with the largest influence, the largest first."""
    assert episode.influence is not None
    return np.argsort(-episode.influence, kind="stable")[:CHANNELS].tolist()


def is_one_hot(observation: np.ndarray[Any, Any]) -> bool:
    """Whether every row is a one among zeros."""
    if observation.shape[1] < 2:
        return False
    return bool(np.isin(observation, (0, 1)).all() and (observation.sum(1) == 1).all())


def truth_is_observed(episode: PlayedEpisode) -> bool:
    """Whether the true state has the observation's shape, and so stands behind the readings."""
    return episode.truth is not None and episode.truth.shape == episode.observation.shape


def draw_samples(axes: Any, episode: PlayedEpisode) -> None:
    """Best Arm (paper, Fig. 3): samples, the hidden mean, and the Bayes posterior's 3σ band."""
    assert episode.posterior_mean is not None
    assert episode.posterior_std is not None
    steps, about = steps_of(episode), episode.about
    mean, std = episode.posterior_mean, episode.posterior_std
    axes.axhline(0, color="black", lw=0.8)
    if about.mu is not None:
        axes.axhline(about.mu, color=GREEN, ls="--", lw=1.4, label="hidden mean")
    low, high = mean - BAND * std, mean + BAND * std
    axes.fill_between(steps, low, high, color=RED, alpha=0.18, lw=0)
    axes.plot(steps, mean, color=RED, lw=1.8, label=f"Bayes posterior, ± {BAND} σ")
    axes.plot(
        steps, episode.observation[:, 0], "o", color=BLUE, ms=4.5, mec="white", mew=0.5,
        label="samples: all that the agent sees",
    )  # fmt: skip
    axes.set_ylabel("value")


def _one_observation(i: int) -> Draw:
    def draw(axes: Any, episode: PlayedEpisode) -> None:
        steps = steps_of(episode)
        if truth_is_observed(episode):
            assert episode.truth is not None
            axes.plot(steps, episode.truth[:, i], color=GREEN, lw=1.6, label="true state")
            axes.plot(
                steps, episode.observation[:, i], ".", color=BLUE, ms=4, label="noisy reading"
            )
        else:
            axes.plot(steps, episode.observation[:, i], ".-", color=BLUE, ms=3, lw=0.8)
        axes.set_ylabel("value")

    return draw


def draw_symbols(axes: Any, episode: PlayedEpisode) -> None:
    """A one-hot observation as its number."""
    axes.plot(steps_of(episode), episode.observation.argmax(1), "o", color=BLUE, ms=3.5)
    axes.set_ylabel(f"symbol of {episode.observation.shape[1]}")


def draw_truth(axes: Any, episode: PlayedEpisode) -> None:
    """A true state of another shape than the observation, its first features."""
    assert episode.truth is not None
    for i, color in zip(range(episode.truth.shape[1]), LINES, strict=False):
        label = f"{i + 1} of {episode.truth.shape[1]}"
        axes.plot(steps_of(episode), episode.truth[:, i], color=color, lw=1.4, label=label)


def draw_belief(axes: Any, episode: PlayedEpisode) -> None:
    """Posterior mean and one standard deviation of the channels with the largest influence."""
    assert episode.belief_mean is not None
    assert episode.belief_variance is not None
    steps = steps_of(episode)
    for channel, color in zip(channels_of(episode), LINES, strict=False):
        mean = episode.belief_mean[-1, :, channel]
        std = np.sqrt(episode.belief_variance[-1, :, channel])
        axes.fill_between(steps, mean - std, mean + std, color=color, alpha=0.18, lw=0)
        axes.plot(steps, mean, color=color, lw=1.6, label=f"channel {channel + 1}, ± 1 σ")
    axes.set_ylabel("latent state")


def draw_gain(axes: Any, episode: PlayedEpisode) -> None:
    """How much of each reading was taken over."""
    assert episode.gain is not None
    steps = steps_of(episode)
    for channel, color in zip(channels_of(episode), LINES, strict=False):
        axes.plot(steps, episode.gain[-1, :, channel], color=color, lw=1.6)
    if episode.gain.shape[-1] > CHANNELS:
        label = f"mean of all {episode.gain.shape[-1]}"
        axes.plot(steps, episode.gain[-1].mean(-1), color=GREY, ls="--", lw=1.2, label=label)
    axes.set(ylabel="K", ylim=(-0.04, 1.04))


def draw_probability(axes: Any, episode: PlayedEpisode) -> None:
    """Discrete actions: their probabilities, stacked, or as a map where they are many."""
    assert episode.probability is not None
    steps, names = steps_of(episode), episode.about.action_names
    if len(names) <= len(ACTION_COLORS):
        bottom = np.zeros(episode.steps)
        for i, (name, color) in enumerate(zip(names, ACTION_COLORS, strict=False)):
            share = episode.probability[:, i]
            axes.bar(steps, share, 1.0, bottom=bottom, color=color, lw=0, label=name)
            bottom += share
        high = np.cumsum(episode.probability, 1)[steps - 1, episode.action]
        middle = high - episode.probability[steps - 1, episode.action] / 2
        axes.plot(steps, middle, ".", color="black", ms=5, label="taken")
        axes.set(ylabel="probability", ylim=(0, 1))
        return
    edges = (0.5, episode.steps + 0.5, -0.5, len(names) - 0.5)
    axes.imshow(
        episode.probability.T, aspect="auto", origin="lower", extent=edges, cmap="Greys",
        vmin=0, vmax=1, interpolation="nearest",
    )  # fmt: skip
    axes.plot(steps, episode.action, ".", color=RED, ms=4, label="taken")
    axes.set_ylabel("action")


def draw_action(axes: Any, episode: PlayedEpisode) -> None:
    """Continuous actions, and one standard deviation of the policy around its median."""
    assert episode.action_low is not None
    assert episode.action_high is not None
    steps, total = steps_of(episode), episode.action.shape[1]
    for i, color in zip(range(total), LINES, strict=False):
        low, high = episode.action_low[:, i], episode.action_high[:, i]
        axes.fill_between(steps, low, high, color=color, alpha=0.18, lw=0)
        label = f"{i + 1} of {total}" if total > 1 else "taken; the policy's ± 1 σ"
        axes.plot(steps, episode.action[:, i], color=color, lw=1.3, label=label)
    axes.set_ylabel("action")


def draw_return(axes: Any, episode: PlayedEpisode) -> None:
    """The sum of rewards so far."""
    axes.plot(steps_of(episode), np.cumsum(episode.reward), color=GREY, lw=1.6)
    axes.set_ylabel("return")


DPI = 110
MARKER = 3.5  # points: half the width of the largest one
WIDTH, HEIGHT_A_PANEL = 7.6, 1.55  # inches
STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "text.parse_math": False,
}


class EpisodeFigure:
    """All panels of an episode, of which `show` uncovers the first steps.

    Everything is drawn once. A white curtain over each panel hides what is still to come, so that
    an animation moves the curtain and no more.
    """

    def __init__(self, episode: PlayedEpisode) -> None:
        self.episode = episode
        panels = episode_panels(episode)
        heights = [panel.height for panel in panels]
        with matplotlib.rc_context(STYLE):
            size = (WIDTH, 0.9 + HEIGHT_A_PANEL * sum(heights))
            self.figure = Figure(figsize=size, dpi=DPI, layout="constrained")
            FigureCanvasAgg(self.figure)
            grid = self.figure.subplots(
                len(panels), 1, sharex=True, squeeze=False, height_ratios=heights
            )
            self.axes: list[Any] = list(grid[:, 0])
            for axes, panel in zip(self.axes, panels, strict=True):
                panel.draw(axes, episode)
                axes.set_title(panel.title, loc="left", fontsize=9, fontweight="bold", color=GREY)
                if axes.get_legend_handles_labels()[0]:
                    axes.legend(
                        loc="lower right", bbox_to_anchor=(1.0, 0.98), ncols=4,
                        borderaxespad=0.0, handlelength=1.4, columnspacing=1.2,
                    )  # fmt: skip
            self.axes[-1].set(xlabel="step", xlim=(0.5, episode.steps + 0.5))
            self.axes[-1].xaxis.get_major_locator().set_params(integer=True)
            self.reach = [panel.reach for panel in panels]
            self.curtains = [
                axes.add_patch(_curtain(axes, episode.steps, 0 if reach else MARKER))
                for axes, reach in zip(self.axes, self.reach, strict=True)
            ]
            self.nows = [
                axes.axvline(1, color="black", lw=0.8, ls=":", zorder=60) for axes in self.axes
            ]
            self.title = self.figure.suptitle(heading(episode), fontsize=11, fontweight="bold")
            self.figure.align_ylabels()
        self.moving: list[Any] = [*self.curtains, *self.nows, self.title]
        self.figure.canvas.draw()  # the layout is computed once, with everything in view
        self.figure.set_layout_engine("none")

    def show(self, steps: int) -> None:
        """Uncover steps 1 … `steps`."""
        over = steps >= self.episode.steps
        for curtain, now, reach in zip(self.curtains, self.nows, self.reach, strict=True):
            curtain.set_x(steps + reach)
            curtain.set_visible(not over)
            now.set_xdata([steps, steps])
            now.set_visible(not over)
        self.title.set_text(heading(self.episode, steps))
        wrong = over and self.episode.about.won is False
        self.title.set_color(RED if wrong else BLUE if over else "black")


def draw_episode(episode: PlayedEpisode, path: str | os.PathLike[str]) -> Path:
    """Draw the whole episode as a PNG file.

    Args:
        episode: as `read_episode` gives it.
        path: where the picture goes; its folder is created.

    Examples:
        >>> from pathlib import Path
        >>> import kalmanac
        >>> run = Path(kalmanac.__file__).parent / "pretrained" / "best-arm"
        >>> model = kalmanac.RecurrentSAC.load(run / "best.safetensors")
        >>> experiment = kalmanac.Experiment.from_json((run / "experiment.json").read_text())
        >>> (file,) = kalmanac.record_episodes(model, experiment, "episodes", seed=7)
        >>> kalmanac.draw_episode(kalmanac.read_episode(file), "episodes/seven.png").is_file()
        True
    """
    picture = EpisodeFigure(episode)
    picture.show(episode.steps)
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    picture.figure.savefig(target, metadata={"Software": None})
    return target


def heading(episode: PlayedEpisode, steps: int | None = None) -> str:
    """The title: agent and environment, and what the agent does after `steps` steps (None: all)."""
    about = episode.about
    steps = episode.steps if steps is None else steps
    words = [x for x in (about.title, about.label) if x]
    notes = f" ({', '.join(words)})" if words else ""
    bandit = (
        f", hidden mean {about.mu:.2g}, noise {about.sigma:.2g}" if about.mu is not None else ""
    )
    first = f"{about.agent} in {about.env}{notes}{bandit}, seed {about.seed}"
    return f"{first}\n{_doing(episode, steps)}"


def _doing(episode: PlayedEpisode, steps: int) -> str:
    about, over = episode.about, steps >= episode.steps
    if about.mu is None:
        so_far = float(episode.reward[:steps].sum())
        won = {True: ", won", False: ", lost", None: ""}[about.won] if over else ""
        return f"{_count(steps, 'step')}, return {so_far:.4g}{won}"
    last = about.action_names[int(episode.action[steps - 1])]
    if not over:
        return f"{_count(steps, 'sample')}: it {_verb(last)}"
    if last == about.action_names[0]:
        return f"after {_count(steps, 'sample')} it has not decided: lost"
    return f"after {_count(steps, 'sample')} it {_verb(last)}: {'right' if about.won else 'wrong'}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


def _verb(action: str) -> str:
    return "asks for another" if action == "ask" else f"decides “{action}”"


def _curtain(axes: Any, steps: int, points: float) -> Rectangle:
    """A patch that hides everything to its right, but for the `points` that a marker needs."""
    aside = ScaledTranslation(points / 72, 0, axes.figure.dpi_scale_trans)
    across = axes.get_xaxis_transform() + aside
    curtain = Rectangle((0, 0), steps + 1, 1, transform=across, color="white", lw=0, zorder=50)
    curtain.set_clip_on(False)  # markers reach over the edge
    curtain.set_in_layout(False)
    return curtain
