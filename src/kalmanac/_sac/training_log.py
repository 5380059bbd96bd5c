"""A training's metrics as rows: means since the row before, and a logger for them in Python."""

import glob
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from kalmanac._files.durable import make_folder
from kalmanac._files.metric_writers import (
    CsvWriter,
    EventWriter,
    JsonLinesWriter,
    MetricWriter,
    TableWriter,
    WandbWriter,
    require_number,
)
from kalmanac._messages import expect_known
from kalmanac._sac.callbacks import Callback
from kalmanac._sac.cuda_graph import Row
from kalmanac._sac.episode_streams import Episode

if TYPE_CHECKING:
    from kalmanac._sac.recurrent_sac import RecurrentSAC

FORMATS = ("stdout", "csv", "jsonl", "tensorboard", "wandb")
IN_FOLDERS = ("csv", "jsonl", "tensorboard")


class TrainingMeans:
    """Means over the episodes and the updates since the last row."""

    def __init__(self, updates: int = 0) -> None:
        self.updates = self._updates_before = updates
        self._episodes: list[Episode] = []
        self._names: list[str] = []
        self._sums: Tensor | None = None  # of all metrics, since the last row

    @property
    def new_updates(self) -> int:
        """Updates since the last row."""
        return self.updates - self._updates_before

    @property
    def losses(self) -> list[Tensor]:
        """The losses since the last row, summed; a checkpoint gives them on the host."""
        named = () if self._sums is None else zip(self._names, self._sums, strict=True)
        return [x for name, x in named if name.endswith("_loss")]

    def add_episode(self, episode: Episode) -> None:
        """Keep the episode for the next row."""
        self._episodes.append(episode)

    def add_update(self, metrics: Mapping[str, Tensor]) -> None:
        """Add the numbers up where they are: reading them would wait for the device."""
        self.updates += 1
        row = Row.of(metrics).numbers.detach()
        if self._sums is None:
            self._names, self._sums = list(metrics), row.clone()
        else:
            self._sums = self._sums.to(row.device).add_(row)  # a checkpoint gives them on the host

    def row(self) -> dict[str, float]:
        """The means; the next ones begin here."""
        values: dict[str, float] = {"rollout/episodes": len(self._episodes)}
        if self._episodes:
            values["rollout/ep_rew_mean"] = float(np.mean([e.total_reward for e in self._episodes]))
            values["rollout/ep_len_mean"] = float(np.mean([e.length for e in self._episodes]))
        self._episodes = []
        values["train/updates"] = self.updates
        if self._sums is not None:
            numbers = (self._sums / self.new_updates).tolist()
            values |= dict(zip(self._names, numbers, strict=True))
        self._updates_before, self._sums = self.updates, None
        return values

    def state_dict(self) -> dict[str, Any]:
        """All that later rows depend on. Only what they need of an episode is kept."""
        return {
            "_names": self._names,
            "_sums": [] if self._sums is None else [x.clone() for x in self._sums],
            "_updates": self.updates,
            "_updates_before": self._updates_before,
            "returns": [episode.total_reward for episode in self._episodes],
            "lengths": [episode.length for episode in self._episodes],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was called."""
        self._names = state["_names"]
        self._sums = torch.stack(state["_sums"]) if state["_sums"] else None
        self.updates, self._updates_before = state["_updates"], state["_updates_before"]
        self._episodes = [
            Episode(reward, length, False, 0, {})
            for reward, length in zip(state["returns"], state["lengths"], strict=True)
        ]


class Logger:
    """Where the metrics of `RecurrentSAC.learn` go, for `RecurrentSAC.set_logger`.

    Args:
        folder: of metrics.csv, metrics.jsonl and TensorBoard's events; rows follow those that are
            there.
        formats: any of "stdout", "csv", "jsonl", "tensorboard" and "wandb".

    Examples:
        >>> import json
        >>> from pathlib import Path
        >>> from kalmanac import Logger, RecurrentSAC, Track
        >>> model = RecurrentSAC("gru", Track(horizon=10), seed=0)
        >>> model.set_logger(Logger("log", ["csv", "jsonl"]))
        >>> def heat(model):  # a callback may record numbers of its own
        ...     model.logger.record("my/heat", 20.5)
        >>> model = model.learn(40, heat, log_interval=20)
        >>> rows = [json.loads(row) for row in Path("log/metrics.jsonl").read_text().splitlines()]
        >>> [(row["step"], row["rollout/ep_len_mean"], row["my/heat"]) for row in rows]
        [(20, 10.0, 20.5), (40, 10.0, 20.5)]
    """

    def __init__(
        self, folder: str | os.PathLike[str] | None = None, formats: Iterable[str] = IN_FOLDERS
    ) -> None:
        formats = [formats] if isinstance(formats, str) else list(formats)
        for name in formats:
            expect_known("formats", name, FORMATS)
        if folder is None and set(formats) & set(IN_FOLDERS):
            raise ValueError(f"folder: got None, expected one for {', '.join(formats)}")
        # an environment may change the working directory
        self.folder = None if folder is None else Path(folder).absolute()
        self._writers = [_writer(name, self.folder or Path()) for name in formats]
        self._values: dict[str, float | int] = {}

    @property
    def writes(self) -> bool:
        """Whether rows go anywhere."""
        return bool(self._writers)

    def record(self, key: str, value: Any) -> None:
        """Keep a number for the next row; a later one of the same name takes its place."""
        value = value.item() if hasattr(value, "item") else value
        require_number(key, value)
        self._values[key] = value

    def dump(self, step: int) -> None:
        """Write what was recorded as one row."""
        if self.folder is not None:
            make_folder(self.folder)
        for writer in self._writers:
            writer.write(step, self._values)
        self._values = {}

    def close(self) -> None:
        """Close all files; another row opens them again."""
        for writer in self._writers:
            writer.close()


def _writer(name: str, folder: Path) -> MetricWriter:
    if name == "csv":
        return CsvWriter(folder / "metrics.csv")
    if name == "jsonl":
        return JsonLinesWriter(folder / "metrics.jsonl")
    if name == "tensorboard":
        return EventWriter(folder)
    return TableWriter() if name == "stdout" else WandbWriter()


def next_folder(parent: str | os.PathLike[str], name: str) -> Path:
    """NAME_1 below the parent, or the number after the highest there."""
    first = Path(parent) / f"{name}_"  # a name may itself hold folders
    found = first.parent.glob(f"{glob.escape(first.name)}*")
    numbers = [path.name.removeprefix(first.name) for path in found]
    last = max((int(number) for number in numbers if number.isdecimal()), default=0)
    return first.with_name(f"{first.name}{last + 1}")


class LogRows(Callback):
    """Gives the model's logger a row every so many environment steps, and one at the end."""

    def __init__(self, every: int) -> None:
        self.every = every
        self._means = TrainingMeans()
        self._began = self._row_began = time.perf_counter()
        self._row_step = self._next = 0

    def on_start(self, model: "RecurrentSAC") -> None:
        """Count from where the model stands."""
        self._row_step, self._means = model.num_timesteps, TrainingMeans(model.num_updates)
        self._next = (model.num_timesteps // self.every + 1) * self.every
        self._began = self._row_began = time.perf_counter()

    def on_episode(self, model: "RecurrentSAC", episode: Episode) -> None:
        """Keep it for the next row."""
        self._means.add_episode(episode)

    def on_update(self, model: "RecurrentSAC", metrics: Mapping[str, Tensor]) -> None:
        """Keep it for the next row."""
        self._means.add_update(metrics)

    def on_step(self, model: "RecurrentSAC") -> None:
        """Write a row where it is time."""
        if model.num_timesteps >= self._next:
            self._next = (model.num_timesteps // self.every + 1) * self.every
            self._write(model)

    def on_end(self, model: "RecurrentSAC") -> None:
        """Write what has happened since the last row, and close the files."""
        if model.num_timesteps > self._row_step:
            self._write(model)
        model.logger.close()

    def _write(self, model: "RecurrentSAC") -> None:
        now, step = time.perf_counter(), model.num_timesteps
        seconds = max(now - self._row_began, 1e-9)
        rates = {
            "time/elapsed": now - self._began,
            "time/fps": (step - self._row_step) / seconds,
            "time/updates_per_second": self._means.new_updates / seconds,
        }
        for key, value in (rates | self._means.row()).items():
            model.logger.record(key, value)
        model.logger.record("train/learning_rate", model.learner.optimizer.learning_rate)
        model.logger.dump(step)
        self._row_began, self._row_step = now, step
