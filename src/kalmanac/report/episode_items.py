"""The paper's figures of single Best Arm episodes, from files that trained agents left."""

from collections.abc import Iterator, Sequence
from functools import partial

from matplotlib.figure import Figure

from kalmanac.episode_file import PlayedEpisode, read_episode
from kalmanac.printable import one_line
from kalmanac.report.drawing import panels
from kalmanac.report.drawn import Drawing, file_name
from kalmanac.report.episode_figure import heading
from kalmanac.report.episode_panels import draw_samples
from kalmanac.report.groups import BEST_ARM, Group
from kalmanac.report.latent_figure import latent_figure
from kalmanac.run_reader import EVALUATIONS

SHOWN = ((0.5, 0.5), (0.5, 1.0))  # μ and σ of the paper's two examples
ADVERSARIAL = "adversarial"  # the title of an episode that begins with misleading samples
MOST_COLUMNS = 3
FIRST = "vssm+kf"  # of several agents that played the same bandit


def examples(groups: Sequence[Group], notices: list[str]) -> Iterator[Drawing]:
    """Two episodes, those whose bandits are nearest to the paper's (figure 3)."""
    by_label: dict[str, list[PlayedEpisode]] = {}
    for episode in read_episodes(groups, notices):
        if episode.posterior_mean is not None and episode.about.title != ADVERSARIAL:
            by_label.setdefault(episode.about.label, []).append(episode)
    for label, found in sorted(by_label.items()):
        chosen: list[PlayedEpisode] = []
        for mu, sigma in SHOWN:
            left = [one for one in found if all(one is not other for other in chosen)]
            if left:
                chosen.append(min(left, key=partial(_distance, mu=mu, sigma=sigma)))
        word = f" ({label})" if label else ""
        yield Drawing(
            file_name("best-arm-episodes", label),
            draw_examples(chosen, f"Best Arm: example episodes{word}"),
            "Red: the Bayes posterior of the hidden mean, with known noise, and 3 standard "
            "deviations around it. Of the episodes that the runs left, those nearest to the "
            f"paper's bandits, won or lost; {FIRST}'s, if it has one.",
        )


def latent_rollouts(groups: Sequence[Group], notices: list[str]) -> Iterator[Drawing]:
    """Ways through a latent space of two channels, over the policy's decisions (figure 6)."""
    by_label: dict[str, dict[str, PlayedEpisode]] = {}
    for episode in read_episodes(groups, notices):
        if episode.latent is not None:
            agents = by_label.setdefault(episode.about.label, {})
            if episode.about.title == ADVERSARIAL or episode.about.agent not in agents:
                agents[episode.about.agent] = episode
    for label, agents in sorted(by_label.items()):
        chosen = [agents[name] for name in sorted(agents)][:MOST_COLUMNS]
        yield Drawing(
            file_name("best-arm-latent", label),
            latent_figure(chosen),
            "Circle and star: the first and the last step. Regions: what the policy would do "
            "there, for the last observation. One episode for each agent, adversarial where a "
            f"run left such a one{f'; {label} runs' if label else ''}.",
        )


def draw_examples(episodes: Sequence[PlayedEpisode], title: str) -> Figure:
    """Samples and posterior of each episode, side by side."""
    names = ["hidden mean", "Bayes posterior, ± 3 σ", "samples: all that the agent sees"]
    figure, axes = panels(
        1, len(episodes), title=title, width=4.2, height=2.4, names=names, gap=(0.6, 0.5)
    )
    for axis, episode in zip(axes.flat, episodes, strict=True):
        draw_samples(axis, episode)
        told, ending = heading(episode).split("\n")
        axis.set_title(f"{told.partition(', hidden')[0]}: μ = {episode.about.mu:.2g}, "
                       f"σ = {episode.about.sigma:.2g}\n{ending}")  # fmt: skip
        axis.set_xlabel("step")
        axis.xaxis.get_major_locator().set_params(integer=True)
    for axis in axes.flat[1:]:
        axis.set_ylabel("")
    figure.legend(
        *axes.flat[0].get_legend_handles_labels(), loc="lower center", ncols=3, borderaxespad=0.2
    )
    return figure


def read_episodes(groups: Sequence[Group], notices: list[str]) -> Iterator[PlayedEpisode]:
    """All episode files of Best Arm runs, variants too; what is none is named."""
    for group in groups:
        for run in group.runs if group.family == BEST_ARM else ():
            for file in sorted((run.folder / EVALUATIONS).glob("*.npz")):
                try:
                    yield read_episode(file)
                except (OSError, ValueError):
                    told = one_line(f"{EVALUATIONS}/{file.name}")
                    notices.append(f"{run.name}: {told} is no episode file")


def _distance(episode: PlayedEpisode, mu: float, sigma: float) -> tuple[float, bool]:
    """Between two bandits, then between agents; the sign of the mean does not matter."""
    about = episode.about
    apart = abs(abs(about.mu or 0.0) - mu) + abs((about.sigma or 0.0) - sigma)
    return apart, about.agent != FIRST
