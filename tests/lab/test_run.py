import io
import json

import numpy as np
import pytest
import torch

from kalmanac._files.run_folder import FolderTakenError, RunFolder
from kalmanac._files.run_reader import read_metrics, read_summary, read_timing, series
from kalmanac._lab.factory import make_model, training_environment
from kalmanac._lab.run import run
from kalmanac._lab.run_logger import RunLogger, evaluation_seed, evaluations_due
from kalmanac._sac.episode_streams import Episode
from kalmanac._sac.progress import Progress
from kalmanac._sac.recurrent_sac import RecurrentSAC
from tests.lab.tiny import TINY


def test_rows_hold_means_since_the_row_before(tmp_path):
    model = make_model(TINY, training_environment(TINY), "cpu")
    with RunFolder(tmp_path, TINY.to_data(), events=False) as folder:
        logger = RunLogger(TINY.changed({"eval_every": 10_000}), folder)
        for step, losses in ((24, (2.0, 4.0)), (48, (10.0,)), (72, ())):
            for loss in losses:
                logger.on_update(model, {"train/critic_loss": torch.tensor(loss)})
            logger.on_episode(model, Episode(step, 3, True, 0, {}))
            model.num_timesteps = step
            assert logger.on_step(model)
    rows = read_metrics(tmp_path)
    assert series(rows, "train/critic_loss") == ([24, 48], [3.0, 10.0])
    assert series(rows, "rollout/ep_rew_mean") == ([24, 48, 72], [24, 48, 72])
    assert series(rows, "train/updates") == ([24, 48, 72], [2, 3, 3])


def test_agents_that_reach_an_evaluation_at_different_steps_play_the_same_episodes(
    tmp_path, monkeypatch
):
    seeds = []

    def evaluate(model, env, episodes, *, seed, **_):
        seeds.append(seed)
        return {"mean_reward": 0.0}

    monkeypatch.setattr("kalmanac._lab.run_logger.evaluate", evaluate)
    model = make_model(TINY, training_environment(TINY), "cpu")
    monkeypatch.setattr(model, "diagnostics", dict)
    for name, steps in (("a", (40, 79, 80, 96)), ("b", (41, 44, 83, 95, 98))):
        with RunFolder(tmp_path / name, TINY.to_data(), events=False) as folder:
            logger = RunLogger(TINY, folder)
            for step in steps:
                model.num_timesteps = step
                logger.on_step(model)
    assert len(seeds) == 2 * 3 * len(TINY.evaluations)
    assert seeds[:6] == seeds[6:]
    assert len(set(seeds)) == 6


def test_the_last_evaluation_has_its_number_even_if_the_one_before_was_skipped():
    early = TINY.changed({"total_steps": 81})
    assert [evaluations_due(early, step) for step in (39, 40, 79, 80, 81, 84)] == [0, 1, 1, 2, 3, 3]
    even = TINY.changed({"total_steps": 80})
    assert [evaluations_due(even, step) for step in (79, 80, 83)] == [1, 2, 2]


def test_every_evaluation_has_episodes_of_its_own():
    seeds = {evaluation_seed(*which) for which in np.ndindex(3, 4, 2)}
    assert len(seeds) == 24


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "a"
    return folder, run(TINY, folder, events=False)


def test_a_run_leaves_its_models_and_how_it_ended(finished):
    folder, outcome = finished
    assert outcome[:3] == ("finished", folder, 96)
    summary = read_summary(folder)
    assert (summary["status"], summary["step"], summary["updates"]) == ("finished", 96, 40)
    steps, returns = series(read_metrics(folder), "eval/in/mean_reward")
    assert steps == [40, 80, 96]
    assert summary["last"]["step"] == 96
    assert summary["last"]["eval/in/mean_reward"] == returns[-1]
    assert summary["best"]["eval/in/mean_reward"] == max(returns)
    assert summary["best"]["step"] == steps[returns.index(max(returns))]
    for which in ("best", "last"):
        model = RecurrentSAC.load(folder / f"{which}.safetensors", device="cpu")
        assert model.num_timesteps == summary[which]["step"]


def test_a_run_logs_training_evaluation_and_diagnostics(finished):
    rows = read_metrics(finished[0])
    assert [row["step"] for row in rows] == [24, 40, 48, 72, 80, 96]
    (evaluated,) = (row for row in rows if row["step"] == 40)
    for place in ("in", "out"):
        for name in ("mean_reward", "normalized", "length", "win_rate", "action_0"):
            assert f"eval/{place}/{name}" in evaluated
        shares = [evaluated[f"eval/{place}/last_action_{a}"] for a in range(3)]
        assert sum(shares) == pytest.approx(1)
    assert {"train/q_action_0", "train/policy_action_2"} <= evaluated.keys()
    trained = rows[-1]
    wanted = ["entropy", "ent_coef", "q_mean", "grad_norm_actor", "grad_norm_critic"]
    assert {f"train/{name}" for name in wanted} <= trained.keys()
    assert {"rollout/ep_rew_mean", "rollout/ep_len_mean", "rollout/episodes"} <= trained.keys()
    assert trained["train/updates"] == 40
    (first, *_) = read_timing(finished[0])
    assert first.keys() == {
        "step", "time/elapsed", "time/evaluating", "time/fps", "time/updates_per_second",
        "time/memory_gb",
    }  # fmt: skip


def test_the_same_seed_gives_the_same_bytes_and_another_does_not(finished, tmp_path):
    run(TINY, tmp_path / "same", events=False, progress=Progress(96, io.StringIO()))
    run(TINY.changed({"seed": 1}), tmp_path / "other", events=False)
    truth = (finished[0] / "metrics.jsonl").read_bytes()
    assert (tmp_path / "same" / "metrics.jsonl").read_bytes() == truth
    assert (tmp_path / "other" / "metrics.jsonl").read_bytes() != truth


def test_kalman_encoders_log_gain_and_variance(tmp_path):
    kalman = TINY.changed(
        {"encoder": "vssm+kf", "total_steps": 40, "encoder_settings": {"d_state": 4}}
    )
    run(kalman, tmp_path / "a", events=False)
    evaluated = read_metrics(tmp_path / "a")[-1]
    assert 0 < evaluated["train/gain_mean"] < 1
    assert evaluated["train/posterior_variance_mean"] > 0


def test_a_folder_of_another_experiment_is_left_alone(finished):
    before = read_metrics(finished[0])
    with pytest.raises(FolderTakenError):
        run(TINY.changed({"seed": 7}), finished[0], events=False)
    with pytest.raises(FolderTakenError):
        run(TINY, finished[0], events=False)
    assert read_metrics(finished[0]) == before


def test_ctrl_c_leaves_the_last_model(tmp_path, monkeypatch):
    def interrupt(self, model):
        if model.num_timesteps >= 60:
            raise KeyboardInterrupt

    monkeypatch.setattr(Progress, "on_step", interrupt)
    outcome = run(TINY, tmp_path / "a", events=False, progress=Progress(96, io.StringIO()))
    assert (outcome.status, outcome.step) == ("interrupted", 60)
    assert RecurrentSAC.load(tmp_path / "a" / "last.safetensors").num_timesteps == 60
    assert RecurrentSAC.load(tmp_path / "a" / "best.safetensors").num_timesteps == 40
    assert read_summary(tmp_path / "a")["status"] == "interrupted"
    assert series(read_metrics(tmp_path / "a"), "train/updates") == ([24, 48, 60], [4, 16, 22])


def test_an_evaluation_that_is_interrupted_takes_no_row_with_it(tmp_path, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("kalmanac._lab.run_logger.evaluate", interrupt)
    outcome = run(TINY.changed({"eval_every": 48}), tmp_path / "a", events=False)
    assert (outcome.status, outcome.step) == ("interrupted", 48)
    assert series(read_metrics(tmp_path / "a"), "train/updates") == ([24, 48], [4, 16])


def test_the_end_of_a_run_is_in_its_last_row(tmp_path):
    run(TINY.changed({"total_steps": 52}), tmp_path / "a", events=False)
    (*_, before, last) = read_metrics(tmp_path / "a")
    assert (before["step"], last["step"]) == (48, 52)
    assert (before["train/updates"], last["train/updates"]) == (16, 18)
    assert {"train/critic_loss", "eval/in/mean_reward"} <= last.keys()
    assert [row["step"] for row in read_timing(tmp_path / "a")] == [24, 48, 52]


def test_a_run_whose_losses_are_no_numbers_stops(tmp_path):
    wild = TINY.changed({"learning_rate": 1e38, "ent_coef": 0.1})
    outcome = run(wild, tmp_path / "a", events=False)
    assert outcome.status == "diverged"
    assert outcome.step < 96
    json.loads((tmp_path / "a" / "summary.json").read_text())


def test_losses_that_are_no_numbers_are_seen_after_the_last_row_too(tmp_path):
    wild = TINY.changed({"learning_rate": 1e38, "ent_coef": 0.1, "log_every": 10_000})
    outcome = run(wild.changed({"eval_every": 10_000}), tmp_path / "a", events=False)
    assert (outcome.status, outcome.step) == ("diverged", 96)
    (row,) = read_metrics(tmp_path / "a")
    assert row["train/critic_loss"] is None
    assert not list((tmp_path / "a").glob("*.safetensors"))


def test_a_diverged_agent_s_actions_end_the_run_and_the_last_good_model_stays(tmp_path):
    wild = TINY.changed(
        {"env": "tests.lab.tiny:Steers", "learning_rate": 1e38, "evaluations": ("in",)}
        | {"eval_every": 8, "log_every": 10_000}
    )
    outcome = run(wild, tmp_path / "a", events=False)
    assert (outcome.status, outcome.step) == ("diverged", 20)
    summary = read_summary(tmp_path / "a")
    assert (summary["status"], summary["last"]["step"]) == ("diverged", 16)
    model = RecurrentSAC.load(tmp_path / "a" / "last.safetensors", device="cpu")
    assert model.num_timesteps == 16
    assert all(x.isfinite().all() for x in model.learner.actor.parameters())


def test_a_model_with_weights_that_are_no_numbers_is_not_saved(tmp_path):
    model = make_model(TINY, training_environment(TINY), "cpu")
    with RunFolder(tmp_path, TINY.to_data(), events=False) as folder:
        (tmp_path / "last.safetensors").write_text("good")
        logger = RunLogger(TINY, folder)
        model.num_timesteps = 40
        with torch.no_grad():
            next(model.learner.critic.parameters()).view(-1)[-1] = torch.nan
        assert not logger.on_step(model)
        logger.finish(model, "diverged")
    assert (tmp_path / "last.safetensors").read_text() == "good"
    assert series(read_metrics(tmp_path), "eval/in/mean_reward") == ([], [])


def contents(folder):
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_what_cannot_be_built_leaves_the_folder_as_it_was(tmp_path, monkeypatch):
    small = TINY.changed({"total_steps": 8})
    run(small, tmp_path / "a", events=False)
    before = contents(tmp_path / "a")

    def fail(experiment, name):
        raise RuntimeError("no such world")

    monkeypatch.setattr("kalmanac._lab.run_logger.evaluation_environment", fail)
    for name in ("a", "b"):
        with pytest.raises(RuntimeError, match="no such world"):
            run(small, tmp_path / name, events=False, overwrite=True)
    assert contents(tmp_path / "a") == before
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("kind", [RuntimeError, ValueError])
def test_an_error_is_raised_and_the_run_marked(tmp_path, monkeypatch, kind):
    def fail(self, model):
        raise kind("a bug")

    monkeypatch.setattr(Progress, "on_step", fail)
    with pytest.raises(kind, match="a bug"):
        run(TINY, tmp_path / "a", events=False, progress=Progress(96, io.StringIO()))
    assert read_summary(tmp_path / "a")["status"] == "failed"
