import io
import signal

import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from kalmanac._cli.program import main
from kalmanac._files.run_reader import read_metrics, read_summary, resumable
from kalmanac._lab.active_run import StopSignals
from kalmanac._lab.evaluation import evaluate, evaluation_line
from kalmanac._lab.experiment import Experiment
from kalmanac._lab.factory import most_steps
from kalmanac._lab.run import resume, run
from kalmanac._sac.evaluation import MOST_STEPS
from kalmanac._sac.progress import Progress
from tests.lab.failing import Endless
from tests.lab.test_resuming import DISCRETE, same_bytes
from tests.lab.tiny import TINY, Counts, Scripted

SHARES = [f"{name}_{a}" for name in ("action", "last_action") for a in range(3)]


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
@pytest.mark.parametrize("episodes", [1, 3, 5])
def test_actions_are_counted_in_the_episodes_that_count(mode, episodes):
    env = SyncVectorEnv([Counts] * 3, autoreset_mode=mode)
    metrics = evaluate(Scripted(), env, episodes, seed=0, return_scale=8.0)
    shares = {"action_0": 0.25, "action_1": 0.5, "action_2": 0.25}
    last = {"last_action_0": 0.0, "last_action_1": 0.0, "last_action_2": 1.0}
    means = {"mean_reward": 4.0, "std_reward": 0.0, "normalized": 0.5, "length": 4.0}
    assert metrics == means | shares | last


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_actions_of_episodes_beyond_the_quota_are_not_counted(mode):
    env = SyncVectorEnv([lambda: Counts(1), lambda: Counts(4)], autoreset_mode=mode)
    metrics = evaluate(Scripted(), env, 2, seed=0)
    assert [metrics[f"action_{a}"] for a in range(3)] == [0.4, 0.4, 0.2]
    assert [metrics[f"last_action_{a}"] for a in range(3)] == [0.5, 0.0, 0.5]


def test_on_the_device_an_evaluation_tells_the_same_numbers_of_other_episodes(tmp_path):
    truth, folder = tmp_path / "host", tmp_path / "device"
    how = TINY.changed({"seed": 3, "eval_episodes": 20})
    run(how, truth, events=False)
    run(how.changed({"eval_on_device": True}), folder, events=False)
    differs = False
    for a, b in zip(read_metrics(truth), read_metrics(folder), strict=True):
        assert a.keys() == b.keys()
        evaluated = {name for name in a if name.startswith("eval/")}
        differs = differs or any(a[name] != b[name] for name in evaluated)
        assert {n: a[n] for n in a.keys() - evaluated} == {n: b[n] for n in b.keys() - evaluated}
        for place in ("in", "out") if evaluated else ():
            values = {name: b[f"eval/{place}/{name}"] for name in SHARES}
            assert sum(values.values()) == pytest.approx(2)
            wins = (b[f"eval/{place}/mean_reward"] + 10) / 20
            assert wins == pytest.approx(b[f"eval/{place}/win_rate"])
    assert differs


def test_on_the_device_the_seed_decides_and_resumed_runs_end_the_same(tmp_path):
    how = TINY.changed({"eval_on_device": True, "encoder": "oracle", "overlap": True})
    run(how, tmp_path / "whole", events=False)
    stops = iter([False] * 11 + [True])
    run(how, tmp_path / "halves", events=False, stop=lambda: next(stops))
    assert resume(tmp_path / "halves", events=False).status == "finished"
    whole, halves = (tmp_path / name / "metrics.jsonl" for name in ("whole", "halves"))
    assert whole.read_bytes() == halves.read_bytes()


@pytest.mark.parametrize(
    ("changes", "came"),
    [
        ({"env": "track", "env_settings": {}, "evaluations": ("in",)}, "True for track"),
        ({"dropout": 0.1}, "True for best-arm with dropout 0.1"),
    ],
)
def test_on_the_device_only_best_arm_can_be_played(changes, came, tmp_path):
    how = TINY.changed({"eval_on_device": True} | changes)
    with pytest.raises(ValueError, match=f"eval_on_device: got {came}, expected best-arm as it is"):
        run(how, tmp_path / "a", events=False)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_actions_of_an_episode_that_is_cut_are_counted_up_to_there(mode):
    env = SyncVectorEnv([lambda: Counts(1), lambda: Counts(9)], autoreset_mode=mode)
    metrics = evaluate(Scripted(), env, 4, seed=0, max_steps=3)
    assert metrics["cut"] == 1
    assert metrics["length"] == pytest.approx(5 / 3)
    assert [metrics[f"action_{a}"] for a in range(3)] == [0.6, 0.4, 0.0]
    assert [metrics[f"last_action_{a}"] for a in range(3)] == pytest.approx([2 / 3, 1 / 3, 0])


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ({}, 1000),
        ({"env_settings": {"horizon": 5}}, 5),
        ({"env_settings": {"horizon": 5}, "frame_repeat": 2}, 3),
        ({"eval_max_steps": 7}, 7),
        ({"env": "CartPole-v1"}, 500),
        ({"env": "CartPole-v1", "env_settings": {"max_episode_steps": 900}}, 900),
        ({"env": "CartPole-v1", "env_settings": {"max_episode_steps": -1}}, MOST_STEPS),
        ({"env": "tests.lab.tiny:Counts"}, MOST_STEPS),
        # of a stranger's settings nobody knows what they mean
        ({"env": "tests.lab.tiny:Counts", "env_settings": {"horizon": 5}}, MOST_STEPS),
    ],
)
def test_the_bound_is_the_horizon_where_one_is_known(settings, steps):
    assert most_steps(Experiment(**settings), "in") == steps


def test_a_bound_is_a_number_of_steps():
    with pytest.raises(ValueError, match="eval_max_steps: got 0, expected an integer"):
        TINY.changed({"eval_max_steps": 0})


ENDLESS = TINY.changed(
    {"env": "tests.lab.failing:Endless", "evaluations": ("in",), "eval_max_steps": 20}
    | {"env_settings": {}}
)


def test_a_run_whose_episodes_never_end_ends_and_says_what_was_cut(tmp_path, capsys):
    folder, lines = tmp_path / "run", io.StringIO()
    assert run(ENDLESS, folder, events=False, progress=Progress(96, lines)).status == "finished"
    rows = [row for row in read_metrics(folder) if "eval/in/length" in row]
    assert [(row["eval/in/length"], row["eval/in/cut"]) for row in rows] == [(20, 6)] * 3
    assert "step 40: in 20 (length 20, 6 cut)" in lines.getvalue()
    assert main(["eval", str(folder), "--max-steps", "30", "--episodes", "2"]) == 0
    output = capsys.readouterr().out
    assert "cut" in output
    assert "30.000" in output


def test_a_long_evaluation_says_how_far_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr("kalmanac._sac.progress.SECONDS_A_LINE", 0.0)
    lines = io.StringIO()
    run(ENDLESS, tmp_path, events=False, progress=Progress(96, lines))
    assert "evaluating in: 0 of 6 episodes, 19 steps\n" in lines.getvalue()


def test_sigterm_stops_an_endless_evaluation_before_its_next_step(tmp_path):
    """The 52nd step of all: two of the first evaluation's vector steps, of six each, are over."""
    folder, Endless.taken = tmp_path / "run", 0
    endless = ENDLESS.changed({"env_settings": {"signalled": 52}, "eval_max_steps": 10**9})
    with StopSignals() as stop:
        outcome = run(endless, folder, events=False, checkpoint_every=1000, stop=stop)
    assert stop.number == signal.SIGTERM
    assert (outcome.status, outcome.step) == ("interrupted", 40)
    assert Endless.taken == 52, "the vector step under way was the last"
    assert resumable(folder) == 40
    assert not any("eval/in/length" in row for row in read_metrics(folder))


def stop_in(number):
    """Whether to stop: after the first step of evaluation `number`; and who tells it of steps."""
    begun = []

    def evaluating(name, steps, done, episodes):
        if (name, steps) == ("in", 0):
            begun.append(name)

    return {"stop": lambda: len(begun) >= number, "on_evaluation_step": evaluating}


@pytest.mark.parametrize("number", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_a_run_that_is_stopped_in_an_evaluation_ends_the_same(number, tmp_path):
    """The third evaluation comes after the last step."""
    folder, truth = tmp_path / "run", tmp_path / "truth"
    run(DISCRETE, truth, events=False)
    at = {1: 40, 3: 120}[number]
    how = {"events": False, "checkpoint_every": 24}
    for start in range(2):
        if start == 0:
            outcome = run(DISCRETE, folder, **how, **stop_in(number))
        else:
            outcome = resume(folder, **how, **stop_in(1))
        assert outcome[:3] == ("interrupted", folder, at)
        assert resumable(folder) == at
        assert read_summary(folder)["status"] == "interrupted"
    assert resume(folder, events=False).status == "finished"
    same_bytes(truth, folder)
    summary = read_summary(folder)
    assert summary.pop("resumed") == [{"step": at, "episodes": "the same"}]
    assert summary == read_summary(truth)


def test_on_the_device_a_run_can_be_stopped_in_an_evaluation_too(tmp_path):
    folder, truth = tmp_path / "run", tmp_path / "truth"
    played = TINY.changed({"eval_on_device": True})
    run(played, truth, events=False, device="cpu")
    asked = []

    def evaluating(name, *now):
        asked.append(name)

    outcome = run(played, folder, events=False, device="cpu", stop=lambda: len(asked) == 1,
                  on_evaluation_step=evaluating)  # fmt: skip
    assert asked == ["in, out"]
    assert outcome.status == "interrupted"
    assert resume(folder, events=False, device="cpu").status == "finished"
    same_bytes(truth, folder)


def test_an_evaluation_s_line_names_every_place():
    values = {"eval/in/normalized": 0.5, "eval/in/length": 3.0, "eval/in/win_rate": 0.75}
    line = evaluation_line(values | {"eval/out/normalized": 0.1, "eval/out/length": 2.0})
    assert line == "in 0.5 (length 3, wins 0.75)  out 0.1 (length 2)"
