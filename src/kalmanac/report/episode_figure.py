"""The picture of a played episode (paper, Fig. 3, and what went on inside the agent)."""

import os
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.transforms import ScaledTranslation

from kalmanac.episode_file import PlayedEpisode
from kalmanac.report.episode_panels import BLUE, GREY, RED, panels

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
        shown = panels(episode)
        heights = [panel.height for panel in shown]
        with matplotlib.rc_context(STYLE):
            size = (WIDTH, 0.9 + HEIGHT_A_PANEL * sum(heights))
            self.figure = Figure(figsize=size, dpi=DPI, layout="constrained")
            FigureCanvasAgg(self.figure)
            grid = self.figure.subplots(
                len(shown), 1, sharex=True, squeeze=False, height_ratios=heights
            )
            self.axes: list[Any] = list(grid[:, 0])
            for axes, panel in zip(self.axes, shown, strict=True):
                panel.draw(axes, episode)
                axes.set_title(panel.title, loc="left", fontsize=9, fontweight="bold", color=GREY)
                if axes.get_legend_handles_labels()[0]:
                    axes.legend(
                        loc="lower right", bbox_to_anchor=(1.0, 0.98), ncols=4,
                        borderaxespad=0.0, handlelength=1.4, columnspacing=1.2,
                    )  # fmt: skip
            self.axes[-1].set(xlabel="step", xlim=(0.5, episode.steps + 0.5))
            self.axes[-1].xaxis.get_major_locator().set_params(integer=True)
            self.reach = [panel.reach for panel in shown]
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
        self.figure.canvas.draw()  # the layout is made once, with everything in view
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
        path: where the picture goes; its folder is made.

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
    """Who plays what, and, after so many steps (all of them unless given), what it does."""
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
    """Hides everything to its right, but for `points` that the marker there needs."""
    aside = ScaledTranslation(points / 72, 0, axes.figure.dpi_scale_trans)
    across = axes.get_xaxis_transform() + aside
    curtain = Rectangle((0, 0), steps + 1, 1, transform=across, color="white", lw=0, zorder=50)
    curtain.set_clip_on(False)  # markers reach over the edge
    curtain.set_in_layout(False)
    return curtain
