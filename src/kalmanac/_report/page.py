"""One HTML file with everything in it: curves, agents compared, pictures, tables, all settings.

It needs no network and nothing beside it: plotly.js, data, style and pictures are inside.
"""

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from plotly.offline import get_plotlyjs

from kalmanac._files.durable import write_whole
from kalmanac._messages import one_line
from kalmanac._report.figure_parts import mean_line, title_styles
from kalmanac._report.groups import WORDS, Group
from kalmanac._report.paper import Missing
from kalmanac._report.published import MAMBA
from kalmanac._report.run_pictures import RunPicture
from kalmanac._report.runs import Run
from kalmanac._report.scores import (
    LENGTH,
    NORMALIZED,
    RETURN,
    WINS,
    Curve,
    curve,
    last,
    places,
    scale_is_one,
    training_curve,
)
from kalmanac._report.statistics import mean_interval
from kalmanac._report.table import Table
from kalmanac._version import __version__

NAMES = {RETURN: "return", NORMALIZED: "return / scale", LENGTH: "length", WINS: "win rate"}
PLACES = {"in": "", "out": ", out of distribution"}
BEST_SO_FAR = "best return so far (MMER)"
KINDS = ("evaluations", "training", "losses and diagnostics")  # of numbers over the training
TRAINING = {"rollout/ep_rew_mean": "training return", "rollout/ep_len_mean": "training length"}
NOTICES = 12  # that a reader sees at once
DIGITS = 5  # of a number on the page
MOST_EXACT = 2**53  # beyond it, and where it is not finite, a browser has no such number


class SavedFigure(NamedTuple):
    """A figure's number in the paper ("": it is not in it), and its files."""

    number: str
    title: str
    name: str
    caption: str


def write_page(
    file: Path, title: str, groups: Sequence[Group], *, data: Mapping[str, Any],
    figures: Sequence[SavedFigure], missing: Sequence[Missing], tables: Sequence[Table],
    notices: Sequence[str], drawn: Path, pictures: Sequence[RunPicture],
) -> None:  # fmt: skip
    """Write `file` with `page_data`; the PNG files of `figures` lie in `drawn`, beside it."""
    runs = [run for group in groups for run in group.runs]
    labels = sorted({group.label for group in groups if group.label})
    parts = {
        "title": escape(title),
        "style": _resource("page.css"),
        "counts": escape(_counts(groups, runs)),
        "labels": "".join(
            f'<p class="label">{escape(label)}: such runs are not the paper\'s, and are marked '
            "wherever they appear</p>"
            for label in labels
        ),
        "notices": _notices(notices),
        "pictures": _pictures(pictures),
        "figures": _figures("figures", "Figures", [f for f in figures if not f.number], drawn)
        + _figures("paper", "The paper's figures", [f for f in figures if f.number], drawn),
        "missing": _missing(missing),
        "tables": "".join(map(_table, tables)),
        "footer": escape(f"Made by kalmanac {__version__} from run folders alone."),
        "plotly": get_plotlyjs().replace("</script", "<\\/script"),
        # no tag begins in it, whatever a browser takes for one inside a script
        "data": json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
        "script": _resource("page.js"),
    }
    template = _resource("page.html")
    sections = re.sub(
        r"\{\{(notices|pictures|figures|missing)\}\}", lambda m: parts[m[1]], template
    )
    parts["contents"] = _contents(sections)
    html = re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)
    write_whole(file, html.encode())  # whoever reloads it meanwhile sees the old one


def page_data(groups: Sequence[Group]) -> dict[str, Any]:
    """What the page's script draws: agents, numbers to choose from, groups with curves, runs."""
    variants = {group.agent_title for group in groups if not group.main}
    agents = {
        title: {**style._asdict(), "variant": title in variants}
        for title, style in title_styles(groups).items()
    }
    rows: list[dict[str, Any]] = []
    group_rows: list[dict[str, Any]] = []
    for group in groups:
        first = len(rows)
        rows += [_run(run, group) for run in group.runs]
        group_rows.append(
            {
                "family": group.family,
                "task": group.task_title,
                "agent": group.agent_title,
                "curves": dict(zip(KINDS, (_curves(group), *_training_curves(group)), strict=True)),
                "last": _last(group),
                "seed_numbers": [run.seed for run in group.runs],
                "runs": list(range(first, len(rows))),
            }
        )
    metrics = {
        kind: list(dict.fromkeys(name for group in group_rows for name in group["curves"][kind]))
        for kind in KINDS
    }
    return {"agents": agents, "metrics": metrics, "groups": group_rows, "runs": rows}


def _curves(group: Group) -> dict[str, dict[str, Any]]:
    keys = [f"{place}/{name}" for name in NAMES for place in places([group])]
    keys = [key for key in keys if any(key in run.values for run in group.runs)]
    curves = {}
    for key in keys:
        place, _, name = key.partition("/")
        if name != NORMALIZED or not scale_is_one(group):
            where = PLACES.get(place, f", {one_line(place, WORDS)}")
            curves[NAMES[name] + where] = _curve(group, key)
    if f"in/{RETURN}" in keys:
        curves[BEST_SO_FAR] = _curve(group, f"in/{RETURN}", best_so_far=True)
    return curves


def _curve(group: Group, key: str, *, best_so_far: bool = False) -> dict[str, Any]:
    return _drawn(curve(group, key, best_so_far=best_so_far))


def _training_curves(group: Group) -> Iterator[dict[str, dict[str, Any]]]:
    keys = dict.fromkeys(key for run in group.runs for key in run.training)
    yield {TRAINING[k]: _drawn(training_curve(group, k)) for k in TRAINING if k in keys}
    yield {one_line(k, WORDS): _drawn(training_curve(group, k)) for k in keys if k not in TRAINING}


def _drawn(whole: Curve) -> dict[str, Any]:
    mean = mean_line(whole)
    return {
        "x": whole.steps.tolist(),
        "mean": _numbers(mean.middle),
        "error": _numbers(np.asarray(mean.high) - np.asarray(mean.middle)),
        "seeds": [_numbers(row) for row in whole.values],
    }


def _last(group: Group) -> dict[str, Any] | None:
    """The last return of every run, their mean and its interval."""
    if not (values := last(group)).size:
        return None
    mean, low, high = _numbers(mean_interval(values))
    return {"seeds": _numbers(values), "mean": mean, "low": low, "high": high}


def _run(run: Run, group: Group) -> dict[str, Any]:
    known = run.values.get(f"in/{RETURN}", np.zeros(0))
    known = known[np.isfinite(known)]
    return {
        "name": run.name,
        "task": group.task_title,
        "agent": group.agent_title,
        "seed": run.seed,
        "status": run.status,
        "step": max(run.summary.get("step", 0), int(run.training_steps[-1])),
        "last": float(known[-1]) if known.size else None,
        "best": float(known.max()) if known.size else None,
        "hours": None if run.seconds is None else _page_value(round(run.seconds / 3600, 3)),
        "version": run.version,
        "began": _page_value(run.provenance.get("began")),
        "experiment": _page_value(run.experiment),
        "provenance": _page_value(run.provenance),
    }


def _page_value(value: Any) -> Any:
    """A value of a run's files as a page can hold it."""
    if isinstance(value, Mapping):
        return {one_line(name, WORDS): _page_value(inside) for name, inside in value.items()}
    if isinstance(value, list | tuple):
        return [_page_value(inside) for inside in value]
    exact = not isinstance(value, int | float) or abs(value) <= MOST_EXACT
    return value if exact and not isinstance(value, str) else one_line(value)


def _numbers(values: Any) -> list[float | None]:
    return [
        float(f"{x:.{DIGITS}g}") if np.isfinite(x) else None for x in np.asarray(values).tolist()
    ]


def _counts(groups: Sequence[Group], runs: Sequence[Run]) -> str:
    tasks = len({group.task_title for group in groups})
    agents = len({group.agent_title for group in groups})
    unfinished = sum(not run.finished for run in runs)
    totals = [(len(runs), "run"), (tasks, "task"), (agents, "agent")]
    words = [f"{number:,} {word}{'s' * (number != 1)}" for number, word in totals]
    return " · ".join([*words, *([f"{unfinished:,} not finished"] if unfinished else [])])


def _contents(body: str) -> str:
    """Links to all sections that there are."""
    sections = re.findall(r'<section id="(\w+)"[^>]*>\s*<h2>([^<]*)</h2>', body)
    return "".join(f'<a href="#{name}">{text}</a>' for name, text in sections)


def _notices(notices: Sequence[str]) -> str:
    if not notices:
        return ""
    lines = [f"<li>{escape(text)}</li>" for text in notices]
    head = '<section id="notices" class="warning"><h2>What to know first</h2>'
    first, rest = "".join(lines[:NOTICES]), "".join(lines[NOTICES:])
    summary = f"{len(lines) - NOTICES} more"
    more = f"<details><summary>{summary}</summary><ul>{rest}</ul></details>" if rest else ""
    return f"{head}<ul>{first}</ul>{more}</section>"


def _pictures(pictures: Sequence[RunPicture]) -> str:
    runs: dict[str, str] = {}
    for one in pictures:
        image = f'<img alt="{escape(one.name)}" src="{one.address}">'
        if one.moving:
            image = f"<details><summary>{escape(one.name)}, moving</summary>{image}</details>"
        runs[one.run] = runs.get(one.run, "") + f"<figure>{image}</figure>"
    blocks = "".join(
        f"<details open><summary>{escape(run)}</summary><div class='grid'>{images}</div></details>"
        for run, images in runs.items()
    )
    head = '<section id="episodes"><h2>Episodes</h2>'
    return f"{head}{blocks}</section>" if blocks else ""


def _figures(key: str, title: str, figures: Sequence[SavedFigure], pictures: Path) -> str:
    blocks = []
    for figure in figures:
        data = base64.b64encode((pictures / f"{figure.name}.png").read_bytes()).decode()
        number = f"{figure.number} · " if figure.number else ""
        links = "".join(
            f'<a href="{pictures.name}/{escape(figure.name)}.{kind}">{kind.upper()}</a>'
            for kind in ("png", "pdf")
        )
        blocks.append(
            f'<figure id="{escape(figure.name)}"><h3>{number}{escape(figure.title)}</h3>'
            f'<img alt="{escape(figure.title)}" src="data:image/png;base64,{data}">'
            f"<figcaption>{escape(figure.caption)} {links}</figcaption></figure>"
        )
    head = f'<section id="{key}"><h2>{escape(title)}</h2>'
    return f"{head}{''.join(blocks)}</section>" if blocks else ""


def _missing(missing: Sequence[Missing]) -> str:
    if not missing:
        return ""
    lines = "".join(
        f"<li>{one.number} · {escape(one.title)}: needs {escape(one.needs)}</li>" for one in missing
    )
    return f'<section id="missing"><h2>Not drawn, for want of data</h2><ul>{lines}</ul></section>'


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in table.head)
    rows = "".join(
        "<tr>" + "".join(f"<td>{_cell(text)}</td>" for text in row) + "</tr>" for row in table.rows
    )
    notes = "".join(
        f'<p class="{"claim" if text == MAMBA else "note"}">{escape(text)}</p>'
        for text in table.notes
    )
    links = f'<a href="tables/{escape(table.name)}.csv">CSV</a>'
    return (
        f'<details id="table-{escape(table.name)}" open><summary>{escape(table.title)}</summary>'
        f'{notes}<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody>'
        f"</table></div><p class='note'>{links}</p></details>"
    )


def _cell(text: str) -> str:
    return escape(text).replace("\n", "<br>")


def _resource(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")
