"""Rows of metrics on their way out, each format read back by what is meant to read it."""

import csv
import json
import math

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from kalmanac._files.metric_writers import (
    CsvWriter,
    EventWriter,
    JsonLinesWriter,
    TableWriter,
    WandbWriter,
    json_row,
)


def test_rows_are_lines_of_json_and_follow_those_that_are_there(tmp_path):
    path = tmp_path / "m.jsonl"
    for start in (0, 2):
        writer = JsonLinesWriter(path)
        writer.write(start, {"a/b": 1.5})
        writer.close()
        writer.write(start + 1, {"c": math.nan})  # it opens again
        writer.close()
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["step"] for row in rows] == [0, 1, 2, 3]
    assert rows[:2] == [{"step": 0, "a/b": 1.5}, {"step": 1, "c": None}]


@pytest.mark.parametrize("value", ["1", True, None])
def test_what_is_no_number_is_refused(value):
    with pytest.raises(TypeError, match=r"a/b: got \w+, expected a number"):
        json_row(0, {"a/b": value})


def test_a_table_grows_by_the_columns_that_come_later(tmp_path):
    path = tmp_path / "m.csv"
    writer = CsvWriter(path)
    writer.write(10, {"a": 1.0, "b": 2})
    writer.write(20, {"a": 3.0})
    CsvWriter(path).write(30, {"c": 4.5, "a": 5.0})  # another one goes on with the same file
    writer.write(40, {"c": 6.0})
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == ["10", "20", "30", "40"]
    assert [row["a"] for row in rows] == ["1.0", "3.0", "5.0", ""]
    assert [row["b"] for row in rows] == ["2", "", "", ""]
    assert [row["c"] for row in rows] == ["", "", "4.5", "6.0"]


def test_tensorboard_reads_the_events(tmp_path):
    writer = EventWriter(tmp_path / "events")
    for step in (1, 2):
        writer.write(step, {"train/loss": step / 2})
        writer.close()
    read = EventAccumulator(str(tmp_path / "events")).Reload()
    assert [(x.step, x.value) for x in read.Scalars("train/loss")] == [(1, 0.5), (2, 1.0)]


def test_people_read_a_table(capsys):
    TableWriter().write(1200, {"train/loss": 0.123456, "alone": 2, "rollout/ep_rew_mean": -3.0})
    assert capsys.readouterr().out.splitlines() == [
        "---------------------------",
        "| step           | 1,200  |",
        "| alone          | 2      |",
        "| rollout/       |        |",
        "|    ep_rew_mean | -3     |",
        "| train/         |        |",
        "|    loss        | 0.1235 |",
        "---------------------------",
    ]


@pytest.mark.slow
def test_weights_and_biases_gets_them(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    with wandb.init(dir=tmp_path) as run:
        WandbWriter().write(3, {"train/loss": 0.5})
        WandbWriter().write(7, {"train/loss": 0.25})  # the row before is whole now
        assert wandb.run is run
        assert run.summary["train/loss"] == 0.5
        assert run.step == 7


def test_without_weights_and_biases_one_line_says_so(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="wandb: Weights & Biases is not installed; pip"):
        WandbWriter()
