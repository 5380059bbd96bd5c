"""The benchmark beside public agents: our part as it is, a peer by a process that prints lines."""

import json

import numpy as np
import pytest

from kalmanac._envs.registry import make_vector

SHORT = ["--task", "novel/Pendulum", "--seed", "3", "--steps", "300", "--every", "150"]
SMALL = ["learning_starts=250", "batch_size=2", "context_length=4", "actor_hidden=[8]"]


def read(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_ours_leaves_its_settings_its_evaluations_and_both_clocks(bench, tmp_path, capsys):
    words = ["--ours", "memoryless", *SHORT, "--update-to-data", "0.5", "--episodes", "2"]
    words += ["--set", *SMALL, "--out", str(tmp_path)]
    assert bench("peers_training").main(words) == 0
    first, *rows = read(tmp_path / "Pendulum-memoryless-seed3.jsonl")
    assert (first["task"], first["seed"], first["steps"]) == ("novel/Pendulum", 3, 300)
    assert first["settings"]["update_to_data"] == 0.5
    assert first["all_settings"]["gamma"] == 0.99
    assert "--task novel/Pendulum" in first["command"]
    assert str(tmp_path) not in first["command"]
    assert {"torch", "kalmanac"} <= first["versions"].keys()
    assert [(row["step"], row["updates"]) for row in rows] == [(150, 0), (300, 25)]
    assert all(len(row["returns"]) == len(row["lengths"]) == 2 for row in rows)
    assert rows[1]["cpu_seconds"] >= rows[0]["cpu_seconds"] > 0
    assert np.isfinite(rows[1]["train/q_mean"])
    mean = np.mean(rows[1]["returns"])
    assert f"from 90% of the steps on: {mean:.1f}, mean of 1 evaluations" in capsys.readouterr().out


PRINTS = """#!/bin/sh
echo '{"agent": "RecurrentPPO", "versions": {"rl_zoo3": "9"}, "settings": {"gamma": "0.9"}}'
echo '{"step": 300, "seconds": 2, "cpu_seconds": 1, "returns": [1, 3], "lengths": [1, 1]}'
echo '{"step": 304, "after": "x", "seconds": 2, "cpu_seconds": 1, "returns": [9], "lengths": [1]}'
exit $STATUS
"""


def test_the_peers_lines_are_kept_with_its_versions(bench, tmp_path, capsys, monkeypatch):
    (python := tmp_path / "python").write_text(PRINTS)
    python.chmod(0o755)
    words = ["--peer-python", str(python), *SHORT, "--out", str(tmp_path)]
    monkeypatch.setenv("STATUS", "0")
    assert bench("peers_training").main(words) == 0
    first, *rows = read(tmp_path / "Pendulum-recurrent-ppo-seed3.jsonl")
    assert first["versions"] == {"rl_zoo3": "9"}
    assert [row["step"] for row in rows] == [300, 304]
    assert "steps on: 2.0, mean of 1 evaluations" in capsys.readouterr().out
    monkeypatch.setenv("STATUS", "3")
    with pytest.raises(SystemExit, match="peer: ended with status 3, expected 0"):
        bench("peers_training").main(words)


TELLS = """#!/bin/sh
echo "{\\"agent\\": \\"$*\\", \\"versions\\": {}, \\"settings\\": {}}"
echo '{"step": 300, "seconds": 2, "cpu_seconds": 1, "returns": [1, 3], "lengths": [1, 1]}'
"""


def test_another_peer_has_its_script_its_checkout_and_its_settings(bench, tmp_path):
    (python := tmp_path / "python").write_text(TELLS)
    python.chmod(0o755)
    words = ["--peer-python", str(python), "--peer", "pomdp-baselines", "--peer-source", "theirs"]
    words += [*SHORT, "--set", "sampled_seq_len=64", "--out", str(tmp_path)]
    assert bench("peers_training").main(words) == 0
    first, _ = read(tmp_path / "Pendulum-pomdp-baselines-seed3.jsonl")
    told = first["agent"]
    assert "peer_pomdp_baselines.py --task novel/Pendulum --source theirs --device cpu" in told
    assert "--set sampled_seq_len=64 --seed 3 --steps 300" in told


def test_their_pendulum_is_ours_by_old_gym_s_rules(bench):
    theirs, ours = bench("peer_pomdp_baselines").Positions(), make_vector("novel/Pendulum", 1)
    theirs.seed(5)
    seen, (also, _) = theirs.reset(), ours.reset(seed=5)
    np.testing.assert_array_equal(seen, also[0])
    for step in range(1, 201):
        action = theirs.action_space.sample()
        seen, reward, done, told = theirs.step(action)
        also, rewards, _, truncated, _ = ours.step(2 * action[None])
        assert done == truncated[0] == (step == 200)
        assert reward == pytest.approx(rewards[0], rel=1e-5)
    assert told == {"TimeLimit.truncated": True}
