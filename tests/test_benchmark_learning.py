"""Runs become small files with all their evaluations, and a table."""

import json
from pathlib import Path
from typing import Any

from kalmanac._lab.experiment import Experiment
from kalmanac._lab.run import run


def read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_all_evaluations_and_the_clock_are_kept(bench, tmp_path, capsys):
    folder = tmp_path / "memoryless-seed3"
    often = {"eval_every": 100, "eval_episodes": 1, "log_every": 50}
    few = {"num_envs": 4, "learning_starts": 200, "batch_size": 2, "context_length": 8}
    told = Experiment("track", encoder="memoryless", seed=3, total_steps=400, **often, **few)
    run(told, folder, events=False)
    assert bench("learning").main([str(folder), "--out", str(tmp_path / "kept")]) == 0
    first, *rows = read(tmp_path / "kept" / "memoryless-seed3.jsonl")
    evaluated = [row for row in read(folder / "metrics.jsonl") if "eval/in/mean_reward" in row]
    assert [row["step"] for row in rows] == [row["step"] for row in evaluated]
    assert [row["eval/in/mean_reward"] for row in rows] == [
        float(f"{row['eval/in/mean_reward']:.5g}") for row in evaluated
    ]
    assert len(rows) == 4
    assert (first["status"], first["step"], first["experiment"]["seed"]) == ("finished", 400, 3)
    timing = read(folder / "timing.jsonl")
    assert [row["step"] for row in first["clock"]] == [timing[i]["step"] for i in (0, 1, 3, 5, 7)]
    assert first["seconds"] == float(f"{timing[-1]['time/elapsed']:.5g}")
    assert "memoryless-seed3  finished" in capsys.readouterr().out
