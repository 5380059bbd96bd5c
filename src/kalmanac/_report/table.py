"""One table, as files and pages have it."""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kalmanac._report.statistics import mean_and_error

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what spreadsheets take for the start of one
_SIZE = r"\d[\d.,]*(e[+-]\d+)?|inf|nan"
NUMBER = re.compile(rf"[+-]?({_SIZE})( ± ({_SIZE}))?( ★)?$", re.MULTILINE)


@dataclass(frozen=True)
class Table:
    """Words and numbers in rows; `notes` belong to it wherever it is shown."""

    name: str
    title: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    notes: tuple[str, ...] = ()

    def csv(self) -> str:
        """The table as CSV, without the notes."""
        text = io.StringIO()
        rows = [[_no_formula(cell) for cell in row] for row in (self.head, *self.rows)]
        csv.writer(text, lineterminator="\n").writerows(rows)
        return text.getvalue()

    def markdown(self) -> str:
        """The table as Markdown, with the notes."""
        body = [[_no_markup(text) for text in row] for row in (self.head, *self.rows)]
        wide = [max(map(len, column)) for column in zip(*body, strict=True)]
        lines = ["| " + " | ".join(map(str.ljust, row, wide)) + " |" for row in body]
        lines.insert(1, "|" + "|".join("-" * (n + 2) for n in wide) + "|")
        return "\n".join([f"# {self.title}", "", *lines, "", *self.notes, ""])


def _no_formula(cell: str) -> str:
    """Put an apostrophe before a cell that a spreadsheet would take for a formula."""
    return f"'{cell}" if cell.startswith(FORMULA) and not NUMBER.match(cell) else cell


def _no_markup(cell: str) -> str:
    return re.sub(r"([\\|<])", r"\\\1", cell).replace("\n", "; ")


def pair(values: NDArray[np.float64]) -> str:
    """Mean ± standard error, or the mean alone, or nothing where there are no values."""
    if not len(values):
        return ""
    mean, error = mean_and_error(values)
    how = ".3f" if abs(mean) < 10 else ".1f" if abs(mean) < 1e9 else ".3g"
    return f"{mean:{how}} ± {error:{how}}" if np.isfinite(error) else f"{mean:{how}}"
