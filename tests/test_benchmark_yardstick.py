"""The yardstick's jobs are commands that exist, and its table says what the files hold."""

import json

import pytest

from kalmanac._cli.flags import read_words
from kalmanac._lab.experiment import Experiment


@pytest.mark.parametrize("when", ["before", "now", "clock", "timed", "rewards", "cold"])
def test_jobs_are_trainings_of_seeds_in_order(bench, capsys, when):
    assert bench("yardstick").main(["jobs", when, "--seeds", "2", "--only", "cart-pole"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed] == [f"cart-pole.{when}-seed{i}" for i in (0, 1)]
    for seed, line in enumerate(printed):
        _, task, *flags = line.split()
        _, (changes,) = read_words(flags, 0, Experiment)
        assert task == "popgym/NoisyPositionOnlyCartPoleHard"
        assert (changes["total_steps"], changes["seed"]) == (300_000, seed)
        assert changes.get("actor_objective") == {"before": "value"}.get(when)
        assert changes.get("entropy_in_target", True) == (when not in ("clock", "rewards"))
        assert changes.get("critic_clock", False) == (when in ("clock", "timed"))
        assert changes.get("initial_ent_coef", 1) == (0.01 if when == "cold" else 1)


def test_the_table_has_the_mean_the_worst_seed_and_the_worst_evaluation(bench, tmp_path, capsys):
    for seed, scores in enumerate(([0, 1, 9, 9, 9, 9, 9, 9], [0, 0, 5, 5, 1, 5, 5, 5])):
        rows = [
            {"step": i, "eval/in/mean_reward": float(x), "train/q_mean": -x}
            for i, x in enumerate(scores)
        ]
        text = "".join(json.dumps(row) + "\n" for row in ({"experiment": {}}, *rows))
        (tmp_path / f"cart-pole.now-seed{seed}.jsonl").write_text(text)
    picture = tmp_path / "curves.png"
    assert bench("yardstick").main(["table", str(tmp_path), "--picture", str(picture)]) == 0
    words = capsys.readouterr().out.splitlines()[1].split()
    # mean of the last five: 9 and 4.2
    assert words == ["cart-pole", "now", "2", "6.6", "4.2", "1", "9", "9"]
    assert picture.stat().st_size > 10_000


def test_a_variant_of_a_rival_is_no_run_of_it(bench, tmp_path):
    rows = '{"experiment": {}}\n{"step": 1, "eval/in/mean_reward": 1}\n'
    for name in ("clock-seed0", "clock-seed10", "clock-ends-seed0", "slow-clock-seed0"):
        (tmp_path / f"pendulum.{name}.jsonl").write_text(rows)
    assert {key: len(runs) for key, runs in bench("yardstick").read(tmp_path).items()} == {
        ("pendulum", "clock"): 2
    }


def test_a_folder_without_runs_is_told_of(bench, tmp_path, capsys):
    assert bench("yardstick").main(["table", str(tmp_path)]) == 1
    assert "got no runs" in capsys.readouterr().out
