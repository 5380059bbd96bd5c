"""What the paper's items share: a figure with its caption, and curves of groups."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple, TypeVar

import numpy as np
from matplotlib.figure import Figure

from kalmanac._messages import one_line
from kalmanac._report.figures import Line, draw_aggregate
from kalmanac._report.groups import LONG, WORDS, Group, agent_name, agent_order
from kalmanac._report.scores import (
    RETURN,
    Aggregate,
    Curve,
    Scale,
    best,
    curve,
    last,
    scaled,
    scaled_curves,
)
from kalmanac._report.statistics import iqm_interval, performance_profile, resamples
from kalmanac._report.style import LineStyle, line_styles

SEED = 0  # of all bootstrap resamples
THRESHOLDS = 101  # of a performance profile
BAND = "Lines are means over seeds, bands their standard error."
MOST_PANELS = 60  # of a figure
LONGEST_NAME = 180  # bytes of a file's, beside the figure's own
INTERVALS = "Bands are 95 % stratified bootstrap intervals over seeds."

PanelT = TypeVar("PanelT")


class CaptionedFigure(NamedTuple):
    """A finished figure: the name of its files, and what a reader has to know."""

    name: str
    figure: Figure
    caption: str


class Setting(NamedTuple):
    """Runs that belong in one figure: the same label, the same environment but for its level."""

    label: str
    conditions: tuple[tuple[str, Any], ...]
    groups: list[Group]

    @property
    def words(self) -> str:
        """The label and what is unusual about the environment, for titles; may be empty."""
        conditions = (f"{one_line(k, WORDS)} {one_line(v, WORDS)}" for k, v in self.conditions)
        return one_line(", ".join([*filter(None, [self.label]), *conditions]), LONG)

    def title(self, text: str) -> str:
        """`text`, marked with the label wherever there is one."""
        return f"{text} ({self.words})" if self.words else text

    def name(self, text: str) -> str:
        """The name of the setting's files."""
        return file_name(text, self.words)


def file_name(text: str, words: str) -> str:
    """`text` with as much of `words` as a file's name can hold."""
    plain = re.sub(r"[^\w.+]+", "-", words).strip("-")
    if len(plain.encode()) > LONGEST_NAME or (words and not plain):
        plain = f"{plain[: LONGEST_NAME // 4]}-{sha256(words.encode()).hexdigest()[:8]}".strip("-")
    return f"{text}-{plain}" if plain else text


def sheets(panels: Sequence[PanelT]) -> Iterator[Sequence[PanelT]]:
    """Panels in as many figures as it takes: a picture has no room for thousands."""
    yield from (panels[i : i + MOST_PANELS] for i in range(0, len(panels), MOST_PANELS))


def settings_of(groups: Iterable[Group], *levels: str) -> list[Setting]:
    """Groups by label and conditions, the conditions `levels` aside; the plain setting first."""
    by_setting: dict[tuple[str, Any], list[Group]] = defaultdict(list)
    for group in groups:
        rest = tuple((k, v) for k, v in group.conditions if k not in levels)
        by_setting[group.label, rest].append(group)
    ordered = sorted(by_setting, key=lambda key: (key[0] != "", key[0], str(key[1])))
    return [Setting(*key, by_setting[key]) for key in ordered]


def agent_styles(groups: Iterable[Group]) -> dict[str, LineStyle]:
    """The line style of every agent, by its name in the legend, in the paper's order."""
    agents = sorted({group.agent for group in groups}, key=agent_order)
    return {agent_name(agent): style for agent, style in line_styles(agents).items()}


def title_styles(groups: Iterable[Group]) -> dict[str, LineStyle]:
    """The line style of every agent by its whole title: a variant has its own, a label has not."""
    ordered = sorted(groups, key=lambda g: (agent_order(g.agent), g.variant, g.label))
    keys = {g.agent_title: g.agent if g.main else f"{g.agent} {g.variant}" for g in ordered}
    styles = line_styles(dict.fromkeys(keys.values()))
    return {title: styles[key] for title, key in keys.items()}


def lines(
    groups: Sequence[Group], key: str = f"in/{RETURN}", *, best_so_far: bool = False
) -> dict[str, Line]:
    """Mean and standard error over the seeds of each agent, as far as all of them came."""
    return {
        agent_name(group.agent): line(group, key, best_so_far=best_so_far)
        for group in sorted(groups, key=lambda group: agent_order(group.agent))
    }


def line(group: Group, key: str = f"in/{RETURN}", *, best_so_far: bool = False) -> Line:
    """Mean and standard error of one group's curve."""
    return mean_line(curve(group, key, best_so_far=best_so_far))


def mean_line(whole: Curve) -> Line:
    """Mean and standard error over runs, as far as all of them came."""
    steps, values = whole.shared()
    mean = values.mean(axis=0)
    runs = len(values)
    error = values.std(axis=0, ddof=1) / np.sqrt(runs) if runs > 1 else np.zeros_like(mean)
    return Line(steps, mean, mean - error, mean + error)


def seeds(groups: Iterable[Group]) -> str:
    """ "5 seeds", or "2–5 seeds", with the unfinished ones among them."""
    every = list(groups)
    counts = [len(group.runs) for group in every]
    if not counts:
        return "no seeds"
    low, high = min(counts), max(counts)
    count = f"{high} seed{'s' if high > 1 else ''}" if low == high else f"{low}–{high} seeds"
    open_ends = sum(not run.finished for group in every for run in group.runs)
    return count + (f", {open_ends} runs not finished" if open_ends else "")


def draw_sum(
    chosen: Aggregate, scales: Mapping[str, Scale], *, title: str, score: str, mmer: bool,
    names: Mapping[str, str] | None = None, styles: Mapping[str, LineStyle] | None = None,
) -> tuple[Figure, str]:  # fmt: skip
    """Interquartile mean over the training and performance profile at its end, and a caption."""
    every = {agent: scaled(g, scales, best if mmer else last) for agent, g in chosen.agents.items()}
    top = max(1.2, 1.05 * max(float(x.max()) for rows in every.values() for x in rows))
    low = min(0.0, min(float(x.min()) for rows in every.values() for x in rows))
    thresholds = np.linspace(max(low, -1.0), min(top, 3.0), THRESHOLDS)
    labels = names or {agent: agent_name(agent) for agent in chosen.agents}
    curves, profiles = {}, {}
    for agent in sorted(chosen.agents, key=agent_order):
        rng = np.random.default_rng(SEED)
        indices = resamples([len(x) for x in every[agent]], rng)
        profiles[labels[agent]] = performance_profile(every[agent], thresholds, indices)
        steps, values = scaled_curves(chosen.agents[agent], scales, best_so_far=mmer)
        if steps.size:
            point, below, above = iqm_interval(values, indices)
            curves[labels[agent]] = Line(steps, point, below, above)
    groups = [group for row in chosen.agents.values() for group in row]
    figure = draw_aggregate(
        curves, profiles, thresholds, styles or agent_styles(groups), title=title, score=score
    )
    tasks = f"{len(chosen.tasks)} tasks" if len(chosen.tasks) > 1 else chosen.tasks[0]
    left_out = "".join(f" {text[0].upper()}{text[1:]}." for text in chosen.left_out)
    return figure, f"{tasks}, {seeds(groups)}. {INTERVALS}{left_out}"
