"""What the paper's printed POPGym scores imply, from players that are known."""

import json

import numpy as np
import pytest

pytest.importorskip("popgym")


@pytest.fixture
def scores(bench):
    return bench("printed_scores")


def test_a_perfect_player_misses_only_the_answer_that_cannot_be_given(scores):
    found = np.array(list(scores.returns("CountRecallEasy", scores.counting, 300)))
    wrong = (1 - found) / 2 * 51
    np.testing.assert_allclose(wrong, wrong.round(), atol=1e-4)
    assert 0.95 < found.mean() < 0.975
    assert found.max() == pytest.approx(1, abs=1e-5)


def test_one_suit_all_the_time_is_right_in_a_quarter_of_the_episodes(scores):
    found = np.array(list(scores.returns("RepeatFirstEasy", scores.saying_the_same, 200)))
    np.testing.assert_allclose(np.unique(found), [-1, 1], atol=1e-5)
    assert -0.75 < found.mean() < -0.25


def test_the_luckiest_evaluation_is_what_the_paper_prints_of_chance(scores):
    best = scores.luckiest(np.array([1.0, -1.0, -1.0, -1.0]))
    assert 0.05 < best.mean() < 0.12


def test_its_table_and_file(scores, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(scores, "DRAWS", 10)
    assert scores.main(["--episodes", "16", "--out", str(tmp_path / "found.json")]) == 0
    assert "CountRecallEasy" in capsys.readouterr().out
    rows = json.loads((tmp_path / "found.json").read_text())["rows"]
    assert [row["episodes"] for row in rows] == [16, 16, 16]
