"""The verb `envs`, from words to exit status."""

import pytest
from gymnasium import spaces

from kalmanac._cli.envs import words
from kalmanac._cli.program import main
from kalmanac._envs.registry import ENVS


def test_it_lists_every_environment_with_spaces_horizon_and_noise(capsys):
    assert main(["envs", "best-arm", "popgym", "pendulum"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["name", "observation", "action", "true", "state", "horizon", "noise"]
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in lines if "…:" not in line}
    assert list(rows) == [
        name for name in ENVS if name == "best-arm" or "popgym" in name or "pendulum" in name
    ]
    assert rows["best-arm"] == "1 number 3 choices 2 numbers 1,000 σ ~ U(0, 2)"
    assert rows["dmc/pendulum-swingup"] == ("3 numbers 1 in [-1, 1] 3 numbers 1,000 preset: 0.1")
    assert rows["popgym/MineSweeperEasy"] == "3 in [0, 1] 16 choices 48 in [0, 1] 15"


def test_a_word_that_fits_none_is_refused(capsys):
    assert main(["envs", "chess"]) == 2
    assert capsys.readouterr().err == "kalmanac envs: no name holds chess\n"


@pytest.mark.slow
def test_all_of_them_are_listed(capsys):
    assert main(["envs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    shown = [line for line in lines[1:] if "…:" not in line]  # those name an extra
    assert [line.split()[0] for line in shown] == list(ENVS)
    missing = [line.split("/")[0] for line in lines[1:] if "…:" in line]
    unknown = {line.split("/")[0] for line in shown if "?" in line}
    assert unknown <= {"popgym" if name == "labyrinth" else name for name in missing}


def test_spaces_in_words():
    assert words(spaces.Box(-2, 1, (2, 3))) == "2 × 3 numbers"
    assert words(spaces.Box(0, 255, (8, 8), "uint8")) == "8 × 8 numbers"
    assert words(spaces.MultiBinary(3)) == "MultiBinary(3)"
