import dataclasses
import inspect
import io
import json
import sys
import time
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given
from hypothesis import strategies as st

from kalmanac.agent import AgentSettings
from kalmanac.agent.capture import WARM_UP
from kalmanac.encoders import ENCODERS
from kalmanac.experiment import (
    AGENTS,
    Experiment,
    Progress,
    check_environment,
    estimate,
    evaluate,
    evaluation_environment,
    make_model,
    run,
    training_environment,
)
from kalmanac.experiment.description import expect_known
from kalmanac.experiment.estimate import full_batch, mean_seconds, replay_gb, update_as_trained
from kalmanac.experiment.flags import read_config, read_flags
from kalmanac.experiment.progress import duration
from kalmanac.experiment.recording import Recorder, evaluation_seed, evaluations_due
from kalmanac.replay import Sizes
from kalmanac.rollout import Episode
from kalmanac.runlog import (
    FolderTakenError,
    RunFolder,
    read_metrics,
    read_summary,
    read_timing,
    series,
)
from kalmanac.sac import Callback, RecurrentSAC, TrainingSettings

TINY = Experiment(
    env="best-arm",
    env_settings={"horizon": 5},
    encoder="memoryless",
    total_steps=96,
    num_envs=4,
    actor_hidden=(8,),
    critic_hidden=(8,),
    batch_size=4,
    context_length=4,
    update_to_data=0.5,
    learning_starts=16,
    eval_every=40,
    eval_episodes=6,
    log_every=24,
    evaluations=("in", "out"),
)
EXPERIMENTS = st.builds(
    Experiment,
    env_settings=st.dictionaries(st.sampled_from(["cost", "horizon"]), st.integers(1, 9)),
    encoder=st.sampled_from(list(ENCODERS)),
    privileged=st.booleans(),
    seed=st.integers(0, 2**40),
    ent_coef=st.just("auto") | st.floats(0, 10),
    buffer_size=st.none() | st.integers(1, 10**9),
    actor_hidden=st.lists(st.integers(1, 9)).map(tuple),
    gamma=st.floats(0, 1),
)


@given(EXPERIMENTS)
def test_a_round_trip_through_json_gives_the_same_experiment(experiment):
    again = Experiment.from_json(experiment.to_json())
    assert again == experiment
    assert again.hash == experiment.hash


@given(EXPERIMENTS, EXPERIMENTS)
def test_equal_hashes_mean_equal_experiments(a, b):
    assert (a.hash == b.hash) == (a == b)


def test_the_hash_is_the_same_on_every_machine():
    assert Experiment().changed({"seed": 1}).hash == Experiment(seed=1).hash
    assert len(Experiment().hash) == 12
    a = Experiment(env_settings={"cost": 1.0, "horizon": 3})
    assert a.hash == Experiment(env_settings={"horizon": 3, "cost": 1.0}).hash


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"sed": 1}, "setting: got 'sed'; did you mean 'seed'?"),
        ({"encoder": "vsm+kf"}, "encoder: got 'vsm+kf'; did you mean 'vssm+kf'?"),
        ({"encoder": "qqq"}, "encoder: got 'qqq'; expected one of oracle, vssm"),
        ({"encoder_settings": {"d_stat": 2}}, "got 'd_stat'; did you mean 'd_state'?"),
        ({"drawing": "epsodes"}, "drawing: got 'epsodes'; did you mean 'episodes'?"),
        ({"seed": 1.5}, "seed: got 1.5, expected int"),
        ({"seed": True}, "seed: got True, expected int"),
        ({"seed": -1}, "seed: got -1, expected at least 0"),
        ({"privileged": 1}, "privileged: got 1, expected true or false"),
        ({"ent_coef": "hot"}, "ent_coef: got 'hot', expected a number or auto"),
        ({"actor_hidden": 3}, "actor_hidden: got 3, expected a list of int"),
        ({"num_envs": 0}, "num_envs: got 0, expected at least 1"),
        ({"batch_size": 0}, "batch_size: got 0, expected an integer of at least 1"),
        ({"tau": 3}, "tau: got 3.0"),
        ({"evaluations": ()}, "evaluations: got ()"),
        ({"env_settings": 3}, "env_settings: got 3, expected names with values"),
        ({"log_std_range": (1.0,)}, "log_std_range: got (1.0,), expected two numbers"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(changes, told):
    with pytest.raises((ValueError, TypeError)) as refusal:
        Experiment().changed(changes)
    assert told in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_whole_numbers_pass_for_floats_and_lists_for_tuples():
    given_as_file = Experiment.from_data({"ent_coef": 1, "actor_hidden": [3, 4]})
    assert given_as_file == Experiment(ent_coef=1.0, actor_hidden=(3, 4))


def test_settings_are_merged_unless_their_owner_changes():
    first = Experiment(env_settings={"cost": 0.5}, encoder="gru", encoder_settings={"d_state": 2})
    both = first.changed({"env_settings": {"horizon": 9}, "encoder_settings": {"layers": 2}})
    assert both.env_settings == {"cost": 0.5, "horizon": 9}
    assert both.encoder_settings == {"d_state": 2, "layers": 2}
    other = both.changed({"encoder": "vssm"})
    assert (other.env_settings, other.encoder_settings) == (both.env_settings, {})
    assert both.changed({"env": "CartPole-v1"}).env_settings == {}


@pytest.mark.parametrize("agent", AGENTS)
def test_every_agent_has_its_name(agent):
    assert Experiment().changed({"encoder": agent}).agent == agent


def test_the_oracle_is_the_memoryless_agent_with_another_view():
    oracle = TINY.changed({"encoder": "oracle"})
    assert (oracle.encoder, oracle.privileged) == ("memoryless", True)
    assert training_environment(oracle).single_observation_space.shape == (2,)
    assert not oracle.changed({"encoder": "gru"}).privileged


def test_the_experiment_decides_every_setting_of_the_agent():
    asked = set(inspect.signature(RecurrentSAC).parameters) - {"env", "device"}
    assert asked <= {entry.name for entry in dataclasses.fields(Experiment)}
    changed = TINY.changed({"tau": 0.5, "burn_in": 3, "max_grad_norm": 2.0, "head_gain": 0.5})
    model = make_model(changed, training_environment(changed), "cpu")
    assert changed.part(TrainingSettings) == dataclasses.asdict(model.settings)
    assert model.agent_settings == AgentSettings(**changed.part(AgentSettings), context=7)
    assert model.seed == changed.seed


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"env_settings": {"cst": 1}}, "env_settings: got 'cst'; did you mean 'cost'?"),
        ({"evaluations": ("oot",)}, "evaluations: got 'oot'; did you mean 'out'?"),
        ({"env": "bestarm"}, "did you mean 'best-arm'?"),
    ],
)
def test_what_the_environment_does_not_know_is_refused(changes, told):
    with pytest.raises(ValueError, match=r"got .*") as refusal:
        check_environment(Experiment().changed(changes))
    assert told in str(refusal.value)


def test_evaluations_keep_the_settings_of_the_training():
    out = evaluation_environment(TINY, "out").unwrapped
    assert out.num_envs == TINY.eval_episodes
    _, infos = out.reset(seed=0)
    assert (infos["sigma"] >= 2).all()
    for _ in range(4):
        out.step(np.zeros(6, np.int64))
    assert out.step(np.zeros(6, np.int64))[2].all()


def test_a_name_that_is_known_passes():
    expect_known("fruit", "fig", ["fig", "pear"])


class Counts(gymnasium.Env):
    """So many steps an episode; the observation is the step's number."""

    def __init__(self, length=4):
        self.length = length
        self.observation_space = gymnasium.spaces.Box(0, 9, (1,))
        self.action_space = gymnasium.spaces.Discrete(3, start=5)

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.full(1, self.steps, np.float32), 1.0, self.steps == self.length, False, {}


class Steers(Counts):
    """The same with actions that must be numbers."""

    def __init__(self):
        super().__init__()
        self.action_space = gymnasium.spaces.Box(-1, 1, (1,))


class Scripted:
    """Action 5 at first, then 6, and 7 as an episode's last."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        return np.array([5, 6, 6, 7, 6])[observation[:, 0].astype(int)], state


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
@pytest.mark.parametrize("episodes", [1, 3, 5])
def test_actions_are_counted_in_the_episodes_that_count(mode, episodes):
    env = SyncVectorEnv([Counts] * 3, autoreset_mode=mode)
    found = evaluate(Scripted(), env, episodes, seed=0, normaliser=8.0)
    shares = {"action_0": 0.25, "action_1": 0.5, "action_2": 0.25}
    last = {"last_action_0": 0.0, "last_action_1": 0.0, "last_action_2": 1.0}
    means = {"mean_reward": 4.0, "std_reward": 0.0, "normalized": 0.5, "length": 4.0}
    assert found == means | shares | last


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_actions_of_episodes_beyond_the_quota_are_not_counted(mode):
    env = SyncVectorEnv([lambda: Counts(1), lambda: Counts(4)], autoreset_mode=mode)
    found = evaluate(Scripted(), env, 2, seed=0)
    assert [found[f"action_{a}"] for a in range(3)] == [0.4, 0.4, 0.2]
    assert [found[f"last_action_{a}"] for a in range(3)] == [0.5, 0.0, 0.5]


def test_rows_hold_means_since_the_row_before(tmp_path):
    model = make_model(TINY, training_environment(TINY), "cpu")
    with RunFolder(tmp_path, TINY.to_data(), events=False) as folder:
        recorder = Recorder(TINY.changed({"eval_every": 10_000}), folder)
        for step, losses in ((24, (2.0, 4.0)), (48, (10.0,)), (72, ())):
            for loss in losses:
                recorder.on_update(model, {"train/critic_loss": torch.tensor(loss)})
            recorder.on_episode(model, Episode(step, 3, True, 0, {}))
            model.num_timesteps = step
            assert recorder.on_step(model)
    rows = read_metrics(tmp_path)
    assert series(rows, "train/critic_loss") == ([24, 48], [3.0, 10.0])
    assert series(rows, "rollout/ep_rew_mean") == ([24, 48, 72], [24, 48, 72])
    assert series(rows, "train/updates") == ([24, 48, 72], [2, 3, 3])


def test_agents_that_reach_an_evaluation_at_different_steps_play_the_same_episodes(
    tmp_path, monkeypatch
):
    seeds = []

    def evaluate(model, env, episodes, *, seed, normaliser):
        seeds.append(seed)
        return {"mean_reward": 0.0}

    monkeypatch.setattr("kalmanac.experiment.recording.evaluate", evaluate)
    model = make_model(TINY, training_environment(TINY), "cpu")
    monkeypatch.setattr(model, "diagnostics", dict)
    for name, steps in (("a", (40, 79, 80, 96)), ("b", (41, 44, 83, 95, 98))):
        with RunFolder(tmp_path / name, TINY.to_data(), events=False) as folder:
            recorder = Recorder(TINY, folder)
            for step in steps:
                model.num_timesteps = step
                recorder.on_step(model)
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
    assert outcome == ("finished", folder, 96)
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
        "step", "time/elapsed", "time/fps", "time/updates_per_second", "time/memory_gb"
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

    monkeypatch.setattr("kalmanac.experiment.recording.evaluate", interrupt)
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
        {"env": f"{__name__}:Steers", "learning_rate": 1e38, "evaluations": ("in",)}
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
        recorder = Recorder(TINY, folder)
        model.num_timesteps = 40
        with torch.no_grad():
            next(model.learner.critic.parameters()).view(-1)[-1] = torch.nan
        assert not recorder.on_step(model)
        recorder.finish(model, "diverged")
    assert (tmp_path / "last.safetensors").read_text() == "good"
    assert series(read_metrics(tmp_path), "eval/in/mean_reward") == ([], [])


def test_what_cannot_be_built_leaves_the_folder_as_it_was(tmp_path, monkeypatch):
    small = TINY.changed({"total_steps": 8})
    run(small, tmp_path / "a", events=False)
    before = {file.name: file.read_bytes() for file in (tmp_path / "a").iterdir()}

    def fail(experiment, name):
        raise RuntimeError("no such world")

    monkeypatch.setattr("kalmanac.experiment.recording.evaluation_environment", fail)
    for name in ("a", "b"):
        with pytest.raises(RuntimeError, match="no such world"):
            run(small, tmp_path / name, events=False, overwrite=True)
    assert {file.name: file.read_bytes() for file in (tmp_path / "a").iterdir()} == before
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("kind", [RuntimeError, ValueError])
def test_an_error_is_raised_and_the_run_marked(tmp_path, monkeypatch, kind):
    def fail(self, model):
        raise kind("a bug")

    monkeypatch.setattr(Progress, "on_step", fail)
    with pytest.raises(kind, match="a bug"):
        run(TINY, tmp_path / "a", events=False, progress=Progress(96, io.StringIO()))
    assert read_summary(tmp_path / "a")["status"] == "failed"


def test_progress_says_return_length_speed_and_time_left(monkeypatch):
    import kalmanac.experiment.progress as shown

    clock = [0.0]
    monkeypatch.setattr(shown.time, "perf_counter", lambda: clock[0])
    model = make_model(TINY, training_environment(TINY), "cpu")
    out = io.StringIO()

    class Later(Callback):
        def on_step(self, model):
            clock[0] += 5.0

    model.learn(80, callback=[Later(), Progress(400, out)])
    (*_, line) = out.getvalue().splitlines()
    assert line.startswith("80 of 400 steps  return ")
    assert "length " in line
    assert line.endswith("0 updates/s  7 min left")  # 4 steps take 5 s


def test_progress_lines_of_evaluations_name_every_place():
    out = io.StringIO()
    values = {"eval/in/normalized": 0.5, "eval/in/length": 3.0, "eval/in/win_rate": 0.75}
    Progress(10, out).evaluated(7, values | {"eval/out/normalized": 0.1, "eval/out/length": 2.0})
    assert out.getvalue() == "step 7: in 0.5 (length 3, wins 0.75)  out 0.1 (length 2)\n"


def test_a_terminal_gets_a_bar():
    pytest.importorskip("rich")

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    model = make_model(TINY, training_environment(TINY), "cpu")
    out = Terminal()
    model.learn(40, callback=Progress(40, out))
    assert "100%" in out.getvalue()
    assert "updates/s" in out.getvalue()


@pytest.mark.parametrize(
    ("seconds", "told"), [(3, "3 s"), (150, "2 min"), (2460, "41 min"), (8000, "2.2 h")]
)
def test_durations(seconds, told):
    assert duration(seconds) == told


def test_an_estimate_grows_with_the_run_and_is_said_in_one_line():
    short = estimate(TINY, device="cpu", seconds=0.02)
    long = estimate(TINY.changed({"total_steps": 96_000}), device="cpu", seconds=0.02)
    assert 0 < short.seconds < long.seconds / 20
    eager = estimate(TINY.changed({"update_to_data": 500.0}), device="cpu", seconds=0.02)
    assert eager.seconds > 20 * short.seconds
    assert 0.1 < short.memory_gb < 8
    assert str(short._replace(seconds=2460.0, memory_gb=1.26)) == "about 41 min, 1.3 GB"


def test_the_estimate_times_the_update_that_a_training_runs(monkeypatch):
    monkeypatch.setattr(sys.modules[estimate.__module__], "CapturedUpdate", lambda x: ("graph", x))
    gpu = SimpleNamespace(device=torch.device("cuda"), update=None)
    assert update_as_trained(gpu) == ("graph", gpu)
    cpu = make_model(TINY, training_environment(TINY), "cpu").learner
    assert update_as_trained(cpu) == cpu.update


def test_the_recording_of_an_update_is_not_timed():
    calls = []

    def work():
        calls.append(None)
        if len(calls) <= WARM_UP + 1:  # the last of them records
            time.sleep(0.05)

    assert mean_seconds(work, torch.device("cpu"), 0.0) < 0.01
    assert len(calls) == WARM_UP + 1 + 3


def test_the_replay_is_estimated_by_what_it_keeps():
    sizes = Sizes(observation=100, action=3, discrete=True)
    all_kept = replay_gb(TINY.changed({"total_steps": 10**6}), sizes)
    bounded = replay_gb(TINY.changed({"total_steps": 10**6, "buffer_size": 10**5}), sizes)
    assert all_kept == pytest.approx(10 * bounded)
    assert all_kept > 10**6 * 100 * 4 / 1e9


@pytest.mark.parametrize("encoder", ["memoryless", "gru"])
def test_the_estimate_s_batch_is_one_that_the_agent_learns_from(encoder):
    experiment = TINY.changed({"encoder": encoder, "burn_in": 1})
    model = make_model(experiment, training_environment(experiment), "cpu")
    batch = full_batch(model.learner.sizes, experiment, model.device)
    assert batch.reward.shape == (4, 5)
    assert model.learner.update(batch)["train/critic_loss"].isfinite()


def test_flags_are_read_by_their_types():
    words = [
        *("--steps", "1_000", "--agent", "oracle", "--actor-hidden", "3", "4", "--ent-coef", "0.5"),
        *("--target-entropy", "-1", "--buffer-size", "None", "--no-privileged", "--label=a b"),
        *("--true-previous-action", "--evaluations", "in"),
        *("--env-settings", "cost=0.1", "name=x", "sigma=[0,1]"),
    ]
    (found,) = read_flags(words, Experiment)
    assert found == {
        "total_steps": 1000, "encoder": "oracle", "actor_hidden": (3, 4), "ent_coef": 0.5,
        "target_entropy": -1.0, "buffer_size": None, "privileged": False,
        "true_previous_action": True, "evaluations": ("in",), "label": "a b",
        "env_settings": {"cost": 0.1, "name": "x", "sigma": [0, 1]},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--sed 1", "flag: got '--sed'; did you mean '--seed'?"),
        ("--seed x", "--seed: got x, expected int"),
        ("--seed", "--seed: got nothing, expected int"),
        ("--seed 1 2", "--seed: got 1 2, expected int"),
        ("--buffer-size x", "--buffer-size: got x, expected int or None"),
        ("--drawing epsodes", "--drawing: got 'epsodes'; did you mean 'episodes'?"),
        ("--env-settings cost", "--env-settings: got cost, expected NAME=VALUE"),
        ("3", "flag: got '3', expected --NAME VALUE"),
    ],
)
def test_a_wrong_flag_is_refused_in_one_line(words, told, capsys):
    with pytest.raises(ValueError, match=r"got .*") as refusal:
        read_flags(words.split(), Experiment)
    assert str(refusal.value) == told
    assert capsys.readouterr() == ("", "")


def test_a_file_says_what_flags_say(tmp_path):
    file = tmp_path / "a.toml"
    file.write_text('steps = 30\nagent = "oracle"\n[env_settings]\ncost = 0.5\n')
    assert read_config(file) == {
        "total_steps": 30, "encoder": "oracle", "env_settings": {"cost": 0.5}
    }  # fmt: skip
    file = tmp_path / "a.json"
    file.write_text(TINY.to_json())
    assert Experiment.from_data(read_config(file)) == TINY


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.toml", "steps = ", "Invalid value"),
        ("a.json", "{", "Expecting"),
        ("a.json", "[1]", "expected names with values"),
        ("a.yaml", "", "expected a .toml or a .json file"),
        ("b.toml", None, "No such file"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, name, text, told):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises((ValueError, TypeError)) as refusal:
        read_config(tmp_path / name)
    assert told in str(refusal.value)
    assert name in str(refusal.value)
