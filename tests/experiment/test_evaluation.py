import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from kalmanac.experiment import (
    evaluate,
    resume,
    run,
)
from kalmanac.runlog import read_metrics
from tests.experiment.tiny import TINY, Counts, Scripted

SHARES = [f"{name}_{a}" for name in ("action", "last_action") for a in range(3)]


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


def test_on_the_device_an_evaluation_tells_the_same_numbers_of_other_episodes(tmp_path):
    truth, found = tmp_path / "host", tmp_path / "device"
    how = TINY.changed({"seed": 3, "eval_episodes": 20})
    run(how, truth, events=False)
    run(how.changed({"eval_on_device": True}), found, events=False)
    differs = False
    for a, b in zip(read_metrics(truth), read_metrics(found), strict=True):
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
