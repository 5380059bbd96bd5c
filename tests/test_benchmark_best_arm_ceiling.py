"""What a Bayesian player of Best Arm wins that does not know σ."""

import json

import numpy as np
import pytest


@pytest.fixture
def ceiling(bench):
    return bench("best_arm_ceiling")


def test_its_confidence_is_how_often_it_is_right(ceiling):
    """In distribution; where it has never seen such noise, it is sure too early."""
    calibration = {}
    for where in ceiling.WHERE:
        found = ceiling.play(where, 1500, seed=1)
        calibration[where] = found.right[:, 20].mean() - found.confidence[:, 20].mean()
    assert abs(calibration["in"]) < 0.03
    assert calibration["out"] < calibration["in"]


def test_a_threshold_that_nothing_reaches_asks_to_the_end(ceiling):
    found = ceiling.play("in", 20)
    assert ceiling.judged(found, 2.0, 0.0)["questions"] == ceiling.QUESTIONS
    once = ceiling.judged(found, 0.5, 0.0)
    assert once["questions"] == 1
    assert once["discounted"] == once["return"] == np.where(found.right[:, 0], 1, -1).mean()


def test_its_table_and_file(ceiling, tmp_path, capsys):
    assert ceiling.main(["--episodes", "60", "--out", str(tmp_path / "found.json")]) == 0
    assert "out: questions" in capsys.readouterr().out
    rows = json.loads((tmp_path / "found.json").read_text())["rows"]
    least, most = rows[0]["out"]["return"], rows[-1]["out"]["return"]
    assert least <= most
