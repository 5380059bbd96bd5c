"""What a training in Python writes down, and where."""

import csv
import json

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from kalmanac._sac.eval_callback import EvalCallback
from kalmanac._sac.recurrent_sac import RecurrentSAC
from kalmanac._sac.training_log import Logger, next_folder
from tests.sac.small import Listener, small, wandering


def rows_of(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_rows_hold_the_means_since_the_row_before(tmp_path):
    model, listener = small("memoryless", wandering(2)), Listener()
    model.set_logger(Logger(tmp_path, ["jsonl", "csv"]))
    model.learn(50, listener, log_interval=20)
    rows = rows_of(tmp_path)
    assert [row["step"] for row in rows] == [20, 40, 50], "the last one holds the rest"
    assert [row["train/updates"] for row in rows] == [0, 20, 30]
    for row, (first, last) in zip(rows[1:], [(0, 20), (20, 30)], strict=True):
        for name in listener.metrics[0]:
            mean = np.mean([metrics[name] for metrics in listener.metrics[first:last]])
            assert row[name] == pytest.approx(mean, rel=1e-5)
    assert sum(row["rollout/episodes"] for row in rows) == len(listener.episodes)
    returns = sum(row["rollout/ep_rew_mean"] * row["rollout/episodes"] for row in rows)
    assert returns == pytest.approx(sum(e.total_reward for e in listener.episodes))
    assert all(row["train/learning_rate"] == model.settings.learning_rate for row in rows)
    assert all({"time/fps", "time/elapsed", "rollout/ep_len_mean"} <= set(row) for row in rows)
    with (tmp_path / "metrics.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert [float(row["rollout/ep_rew_mean"]) for row in table] == [
        row["rollout/ep_rew_mean"] for row in rows
    ]
    model.learn(20, log_interval=20)
    assert [row["step"] for row in rows_of(tmp_path)] == [20, 40, 50, 60, 70], "and goes on"
    assert rows_of(tmp_path)[-1]["train/updates"] == model.num_updates == 50


def test_verbose_prints_a_table(capsys):
    model = small("memoryless", wandering(2), verbose=1).learn(40, log_interval=20)
    said = capsys.readouterr().out
    assert said.count("| step ") == 2
    assert "ep_rew_mean" in said
    assert "critic_loss" in said
    small("memoryless", wandering(2)).learn(40, log_interval=20)
    assert capsys.readouterr().out == ""
    assert model.num_timesteps == 40


def test_tensorboard_gets_a_folder_for_each_model(tmp_path, capsys):
    for verbose in (0, 1):
        model = small("memoryless", wandering(2), tensorboard_log=tmp_path, verbose=verbose)
        model.learn(40, log_interval=20)
    assert capsys.readouterr().out.count("| step ") == 2
    model.learn(20, log_interval=20)
    model.learn(20, log_interval=20, tb_log_name="again")
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["RecurrentSAC_1", "RecurrentSAC_2", "again_1"]
    for name, steps in {"RecurrentSAC_1": [20, 40], "RecurrentSAC_2": [20, 40, 60]}.items():
        read = EventAccumulator(str(tmp_path / name)).Reload()
        assert [x.step for x in read.Scalars("rollout/ep_rew_mean")] == steps
        assert "train/critic_loss" in read.Tags()["scalars"]
    model.save(tmp_path / "m")
    loaded = RecurrentSAC.load(tmp_path / "m", wandering(2), tensorboard_log=tmp_path, verbose=1)
    loaded.learn(4)
    assert (tmp_path / "RecurrentSAC_3").is_dir()
    assert RecurrentSAC.load(tmp_path / "m").tensorboard_log is None


@pytest.mark.parametrize("name", ["a", "a[1]", "a*", "?", "a/b", ".."])
def test_the_number_after_the_highest_follows_a_name_whatever_it_holds(name, tmp_path):
    parent = tmp_path / "a" / "logs"
    for n in (1, 2):
        folder = next_folder(parent, name)
        assert folder == parent / f"{name}_{n}"
        folder.mkdir(parents=True)
    (parent / f"{name}_9").mkdir()
    (parent / f"{name}_x").mkdir()
    (parent / "ab_30").mkdir()
    assert next_folder(parent, name) == parent / f"{name}_10"


def test_what_is_written_down_changes_nothing(tmp_path):
    ends = []
    for logged in (False, True):
        model = small("memoryless", wandering(2))
        if logged:
            model.set_logger(Logger(tmp_path))
        watch = EvalCallback(wandering(2), eval_freq=20, n_eval_episodes=2, verbose=0)
        model.learn(40, watch if logged else None, log_interval=10)
        ends.append(model.learner.optimizer.values)
    assert torch.equal(*ends)


def test_evaluations_and_own_numbers_are_rows_too(tmp_path):
    model = small("memoryless", wandering(2))
    model.set_logger(Logger(tmp_path, ["jsonl"]))
    watch = EvalCallback(wandering(2), eval_freq=20, n_eval_episodes=3, verbose=0)

    def own(model):
        model.logger.record("my/steps", np.float32(model.num_timesteps))

    model.learn(40, [watch, own], log_interval=30)
    rows = rows_of(tmp_path)
    assert [row["step"] for row in rows] == [20, 30, 40, 40]
    evaluated = [row for row in rows if "eval/mean_reward" in row]
    for row, (step, evaluation) in zip(evaluated, watch.evaluations, strict=True):
        mean, std = evaluation
        assert (row["step"], row["eval/mean_reward"], row["eval/std_reward"]) == (step, mean, std)
        assert row["eval/mean_ep_length"] == evaluation.mean_length
    assert [row["my/steps"] for row in rows if "my/steps" in row] == [18, 30, 38, 40]
    with pytest.raises(TypeError, match="my/word: got str, expected a number"):
        model.logger.record("my/word", "seven")


def test_wrong_formats_are_refused(tmp_path):
    with pytest.raises(ValueError, match="formats: got 'json'; did you mean 'jsonl'"):
        Logger(tmp_path, ["json"])
    with pytest.raises(ValueError, match="folder: got None, expected one for stdout, csv"):
        Logger(formats=["stdout", "csv"])
    for how in ({"tensorboard_log": tmp_path}, {"verbose": 1}, {}):
        model = small("memoryless", wandering(1), **how)
        logger = model.logger
        with pytest.raises(
            ValueError, match="log_interval: got 0, expected an integer of at least"
        ):
            model.learn(1, log_interval=0, progress_bar=True)
        assert model.logger is logger
    assert list(tmp_path.iterdir()) == [], "nothing before the first row"
