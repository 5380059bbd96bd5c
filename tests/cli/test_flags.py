import pytest

from kalmanac._cli.flags import read_config, read_words
from kalmanac._lab.experiment import Experiment
from tests.lab.tiny import TINY


def test_flags_are_read_by_their_types():
    words = [
        *("--steps", "1_000", "--agent", "oracle", "--actor-hidden", "3", "4", "--ent-coef", "0.5"),
        *("--target-entropy", "-1", "--buffer-size", "None", "--no-privileged", "--label=a b"),
        *("--true-previous-action", "--evaluations", "in"),
        *("--env-settings", "cost=0.1", "name=x", "sigma=[0,1]"),
    ]
    _, (settings,) = read_words(words, 0, Experiment)
    assert settings == {
        "total_steps": 1000, "encoder": "oracle", "actor_hidden": (3, 4), "ent_coef": 0.5,
        "target_entropy": -1.0, "buffer_size": None, "privileged": False,
        "true_previous_action": True, "evaluations": ("in",), "label": "a b",
        "env_settings": {"cost": 0.1, "name": "x", "sigma": [0, 1]},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (["--bootstrap-truncated"], True),
        (["--no-bootstrap-truncated"], False),
        (["--bootstrap-truncated", "auto"], "auto"),
    ],
)
def test_a_switch_that_can_be_left_to_the_program(words, value):
    assert read_words(words, 0, Experiment) == ([], [{"bootstrap_truncated": value}])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--lr 1", "flag: got '--lr'; did you mean '--learning-rate'?"),
        ("--sed 1", "flag: got '--sed'; did you mean '--seed'?"),
        ("--seed x", "--seed: got x, expected int"),
        ("--seed", "--seed: got nothing, expected int"),
        ("--seed 1 2", "--seed: got 1 2, expected int"),
        ("--buffer-size x", "--buffer-size: got x, expected int or None"),
        ("--drawing epsodes", "--drawing: got 'epsodes'; did you mean 'episodes'?"),
        ("--env-settings cost", "--env-settings: got cost, expected NAME=VALUE"),
    ],
)
def test_a_wrong_flag_is_refused_in_one_line(words, message, capsys):
    with pytest.raises(ValueError, match=r"got .*") as refusal:
        read_words(words.split(), 0, Experiment)
    assert str(refusal.value) == message
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
    ("name", "text", "message"),
    [
        ("a.toml", "steps = ", "Invalid value"),
        ("a.json", "{", "Expecting"),
        ("a.json", "[1]", "expected names with values"),
        ("a.yaml", "", "expected a .toml or a .json file"),
        ("b.toml", None, "No such file"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, name, text, message):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises((ValueError, TypeError)) as refusal:
        read_config(tmp_path / name)
    assert message in str(refusal.value)
    assert name in str(refusal.value)
