"""Rows of metrics on their way out: JSON lines, CSV, TensorBoard events, Weights & Biases, text."""

import csv
import importlib.util
import io
import json
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from kalmanac._files.durable import open_rows, write_whole

Values = Mapping[str, float | int]


class MetricWriter(ABC):
    """Writes rows: numbers by their names, and the step that they belong to.

    Files and runs are opened with the first row; what is there already stays, and rows follow it.
    """

    @abstractmethod
    def write(self, step: int, values: Values) -> None:
        """Write a row."""

    def close(self) -> None:  # noqa: B027 (there may be nothing to close)
        """Let everything go; another row opens it again."""


def json_row(step: int, values: Values) -> str:
    """A row as one line of JSON, which knows neither NaN nor infinity: null stands for them."""
    row = {"step": step} | {key: _finite(key, value) for key, value in values.items()}
    return json.dumps(row, allow_nan=False) + "\n"


class JsonLinesWriter(MetricWriter):
    """A line of JSON for each row."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[str] | None = None

    def write(self, step: int, values: Values) -> None:
        """Write a row, which leaves the process at once."""
        self._file = self._file or open_rows(self._path)
        self._file.write(json_row(step, values))
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


class CsvWriter(MetricWriter):
    """A table with a column for each name. A new name writes the file anew, one column wider."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, step: int, values: Values) -> None:
        """Write a row; cells without a number stay empty."""
        rows: list[dict[str, Any]] = []
        if self._path.exists():
            with self._path.open(newline="", encoding="utf-8") as file:
                reader = csv.DictReader(file)
                names = list(reader.fieldnames or ["step"])
                if set(values) <= set(names):
                    with open_rows(self._path) as end:
                        csv.DictWriter(end, names).writerow({"step": step, **values})
                    return
                rows = list(reader)
        else:
            names = ["step"]
        names += [name for name in values if name not in names]
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, names)
        writer.writeheader()
        writer.writerows([*rows, {"step": step, **values}])
        write_whole(self._path, text.getvalue().encode())


class EventWriter(MetricWriter):
    """TensorBoard events in a folder.

    TensorBoard hides what an earlier start wrote from `purge_step` on, where that is set.
    """

    def __init__(self, folder: Path) -> None:
        if importlib.util.find_spec("tensorboard") is None:
            raise ModuleNotFoundError(
                "events: tensorboard is not installed; install it, or switch events off"
            )
        self._folder = folder
        self.purge_step: int | None = None
        self._writer: Any = None

    def write(self, step: int, values: Values) -> None:
        """Add the numbers to their curves."""
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(log_dir=str(self._folder), purge_step=self.purge_step)
        for key, value in values.items():
            self._writer.add_scalar(key, value, step)

    def close(self) -> None:
        """Flush and close the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class WandbWriter(MetricWriter):
    """The run of Weights & Biases that is under way (`wandb.init`), or else a new one.

    The run stays open for others; wandb ends it with the process, or `wandb.finish()` does.
    """

    def __init__(self) -> None:
        if importlib.util.find_spec("wandb") is None:
            raise ModuleNotFoundError(
                "wandb: Weights & Biases is not installed; pip install wandb, or leave it out"
            )

    def write(self, step: int, values: Values) -> None:
        """Log the numbers at their step."""
        import wandb

        run = wandb.run or wandb.init()
        run.log(dict(values), step=step)


class TableWriter(MetricWriter):
    """Tables for people, as SB3 prints them."""

    def __init__(self, stream: IO[str] | None = None) -> None:
        self._stream = stream

    def write(self, step: int, values: Values) -> None:
        """Print a row as a table of names and numbers, each under the word before its slash."""
        lines: list[tuple[str, str]] = [("step", f"{step:,}")]
        head = ""
        for key in sorted(values):
            group, slash, name = key.partition("/")
            if slash and group != head:
                lines.append((f"{group}/", ""))
            head = group if slash else ""
            lines.append((f"   {name}" if slash else key, f"{values[key]:.4g}"))
        left, right = (max(len(line[side]) for line in lines) for side in (0, 1))
        rule = "-" * (left + right + 7)
        rows = [f"| {name:<{left}} | {number:<{right}} |" for name, number in lines]
        print("\n".join([rule, *rows, rule]), file=self._stream or sys.stdout, flush=True)


def require_number(key: str, value: Any) -> None:
    """Raise TypeError for a value that is no number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{key}: got {type(value).__name__}, expected a number")


def _finite(key: str, value: float | int) -> float | int | None:
    require_number(key, value)
    return value if math.isfinite(value) else None
