"""The whole report in order: read, group, tabulate, draw, bind. An odd run stops no others."""

import os
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, TypeVar

from kalmanac._messages import one_line
from kalmanac._report.groups import Group, labels, make_groups
from kalmanac._report.page import SavedFigure, page_data, write_page
from kalmanac._report.paper import ITEMS, Missing, draw_item
from kalmanac._report.run_pictures import run_pictures
from kalmanac._report.runs import read_runs
from kalmanac._report.style import save, styled
from kalmanac._report.table import Table
from kalmanac._report.tables import make_tables, settings_table

Value = TypeVar("Value")


def without_odd_runs(
    make: Callable[[Sequence[Group]], Value], groups: Sequence[Group], notices: list[str],
    what: str, attempt: Callable[[Sequence[Group]], object] | None = None,
) -> Value | None:  # fmt: skip
    """Call `make` with all groups or, where it fails, without the odd runs, which are named.

    Readers have checked what they could, so that this is for what nobody has thought of. None where
    `make` fails, though each run is sound: a bug, whose traceback goes to standard error. An
    OSError is nobody's: the disk is full.

    Args:
        what: the name of the result, for the notices.
        attempt: the same as `make`, without leaving anything behind.
    """
    try:
        return make(groups)
    except OSError:
        raise
    except Exception:
        pass
    odd: dict[str, str] = {}
    _find_odd_runs(
        [replace(g, runs=(run,)) for g in groups for run in g.runs], attempt or make, odd
    )
    notices += [f"{name}: left out of {what}: {reason}" for name, reason in odd.items()]
    sound = []
    for group in groups:
        if runs := tuple(run for run in group.runs if run.name not in odd):
            sound.append(replace(group, runs=runs))
    try:
        return make(sound)
    except OSError:
        raise
    except Exception as error:
        traceback.print_exc()
        notices.append(f"{what}: left out: {one_line(repr(error))}")
        return None


def _find_odd_runs(
    alone: Sequence[Group], attempt: Callable[[Sequence[Group]], object], odd: dict[str, str]
) -> None:
    """Name the runs with which `attempt` fails, by halves: most runs are sound."""
    try:
        attempt(alone)
    except OSError:
        raise
    except Exception as error:
        if len(alone) == 1:
            odd[alone[0].runs[0].name] = one_line(repr(error))
            return
        middle = len(alone) // 2
        _find_odd_runs(alone[:middle], attempt, odd)
        _find_odd_runs(alone[middle:], attempt, odd)


PAGE, FIGURES, TABLES = "index.html", "figures", "tables"
MANY = 200  # runs, above which a second process draws too


class Report(NamedTuple):
    """What a report consists of, and what it had to leave out."""

    runs: int
    figures: list[SavedFigure]
    missing: list[Missing]
    tables: list[Table]
    notices: list[str]
    labels: list[str]


def make_report(folder: Path, out: Path, say: Callable[[str], None] = lambda text: None) -> Report:
    """Everything that the runs below `folder` allow, written to `out`.

    Args:
        say: is called with what happens next, in words.
    """
    say(f"reading {folder}")
    runs, notices = read_runs(folder, leave_out=out)
    groups = make_groups(runs, notices)
    runs = [run for group in groups for run in group.runs]
    say(f"drawing {len(runs):,} runs")
    if not groups:
        return Report(0, [], [], [], notices, [])
    for name in (FIGURES, TABLES):
        (out / name).mkdir(parents=True, exist_ok=True)
    figures, missing, tables = _work(groups, out, notices)
    pictures = list(run_pictures(runs, notices))
    for table in tables:
        (out / TABLES / f"{table.name}.csv").write_text(table.csv(), encoding="utf-8")
        (out / TABLES / f"{table.name}.md").write_text(table.markdown(), encoding="utf-8")
    data = without_odd_runs(page_data, groups, notices, "the page") or page_data([])
    write_page(
        out / PAGE, f"Report: {one_line(folder.resolve().name, 80)}", groups, data=data,
        figures=figures, missing=missing, tables=tables, notices=notices, drawn=out / FIGURES,
        pictures=pictures,
    )  # fmt: skip
    marks = [label for label in labels(groups) if label]
    return Report(len(runs), figures, missing, tables, notices, marks)


Entries = list[SavedFigure | Missing]


def draw(which: int, groups: Sequence[Group], folder: Path) -> tuple[Entries, list[str]]:
    """Draw and save one of the paper's items; name what could not be read or drawn."""
    notices: list[str] = []
    with styled(), TemporaryDirectory() as aside:
        outcome = without_odd_runs(
            lambda some: _draw(which, some, folder), groups, notices, f"“{ITEMS[which].title}”",
            lambda some: _draw(which, some, Path(aside)),
        )  # fmt: skip
    entries, own_notices = outcome or ([], [])
    return entries, [*own_notices, *notices]


def _draw(which: int, groups: Sequence[Group], folder: Path) -> tuple[Entries, list[str]]:
    entries: Entries = []
    notices: list[str] = []
    names: Counter[str] = Counter()
    for one in draw_item(which, groups, notices):
        if isinstance(one, Missing):
            entries.append(one)
            continue
        names[one.name] += 1
        again = names[one.name]  # settings that differ by a sign that no file's name can have
        name = f"{one.name}-{again}" if again > 1 else one.name
        save(one.figure, folder, name)
        heading = " ".join(one.figure.get_suptitle().split()) or ITEMS[which].title
        entries.append(SavedFigure(ITEMS[which].number, heading, name, one.caption))
    return entries, notices


def _work(
    groups: Sequence[Group], out: Path, notices: list[str]
) -> tuple[list[SavedFigure], list[Missing], list[Table]]:
    """Figures and tables; with many runs, figures are drawn by two processes of their own."""
    evaluated = [
        replace(group, runs=some)
        for group in groups
        if (some := tuple(run for run in group.runs if run.steps.size))
    ]
    many = sum(len(group.runs) for group in groups) >= MANY and (os.cpu_count() or 1) > 1

    def tabulate() -> list[Table]:
        tables = without_odd_runs(make_tables, evaluated, notices, "the tables") or []
        settings = without_odd_runs(settings_table, groups, notices, "the table of settings")
        return _unique_names([*tables[:1], *([settings] if settings else []), *tables[1:]])

    if many:
        with ProcessPoolExecutor(2, get_context("spawn")) as pool:
            jobs = [pool.submit(draw, i, evaluated, out / FIGURES) for i in range(len(ITEMS))]
            tables = tabulate()
            results = [job.result() for job in jobs]
    else:
        results = [draw(i, evaluated, out / FIGURES) for i in range(len(ITEMS))]
        tables = tabulate()
    entries = [one for some, _ in results for one in some]
    notices += dict.fromkeys(text for _, some in results for text in some)
    figures = [one for one in entries if isinstance(one, SavedFigure)]
    return figures, [one for one in entries if isinstance(one, Missing)], tables


def _unique_names(tables: Sequence[Table]) -> list[Table]:
    """The tables with a number behind each name that occurs again."""
    names: Counter[str] = Counter()
    renamed = []
    for table in tables:
        names[table.name] += 1
        again = names[table.name]
        renamed.append(replace(table, name=f"{table.name}-{again}") if again > 1 else table)
    return renamed
