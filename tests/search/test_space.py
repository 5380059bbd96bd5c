"""What --vary means, and what it refuses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kalmanac._search.study import Varied, describe, merged, read_space
from tests.lab.tiny import TINY

MEMORY = TINY.changed({"encoder": "vssm+kf"})


def test_intervals_logarithms_and_choices():
    words = ["learning_rate=1e-4:1e-2:log", "batch-size=2:8", "gamma=0.9,0.99"]
    assert read_space(words, TINY) == [
        Varied("learning_rate", 1e-4, 1e-2, log=True),
        Varied("batch_size", 2.0, 8.0, whole=True),
        Varied("gamma", choices=(0.9, 0.99)),
    ]  # fmt: skip


def test_settings_of_encoder_and_environment():
    words = ["encoder_settings.d_state=2,4", "env_settings.cost=0:0.5", "ent_coef=0.01:1"]
    space = read_space(words, MEMORY)
    assert [varied.whole for varied in space] == [True, False, False]
    values = {"encoder_settings.d_state": 4, "env_settings.cost": 0.25, "ent_coef": 0.5}
    experiment = merged(MEMORY, space, values)
    assert experiment.encoder_settings == {"d_state": 4}
    assert experiment.env_settings == {"cost": 0.25, "horizon": 5}
    assert experiment.ent_coef == 0.5


@given(st.floats(1e-6, 1.0), st.integers(1, 64))
def test_values_arrive_as_they_are(rate, batch):
    space = [Varied("learning_rate", 1e-6, 1.0), Varied("batch_size", 1, 64, whole=True)]
    experiment = merged(TINY, space, {"learning_rate": rate, "batch_size": batch})
    assert (experiment.learning_rate, experiment.batch_size) == (rate, batch)
    assert type(experiment.batch_size) is int


def test_another_space_is_another_search():
    one, other = (read_space([word], TINY) for word in ("gamma=0.5:0.9", "gamma=0.5:0.95"))
    assert describe(one, TINY) == describe(read_space(["gamma=0.5:0.9"], TINY), TINY)
    assert len({describe(one, TINY), describe(other, TINY), describe(one, MEMORY)}) == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "vary: got nothing, expected NAME=LOW:HIGH"),
        (["learning_rate"], "vary: got 'learning_rate', expected"),
        (["learning_rate=a:b"], "vary: got 'learning_rate=a:b', expected NAME=LOW:HIGH"),
        (["learning_rate=1:0"], "expected a low end below the high one"),
        (["learning_rate=0:1:log"], "expected a low end above 0 for log"),
        (["learning_rate=1:2:lin"], "vary: got 'learning_rate=1:2:lin', expected"),
        (["learning_rat=1:2"], "vary: got 'learning_rat'"),
        (["encoder=1:2"], "vary: got 'encoder'"),
        (["seed=1:2"], "vary: got 'seed'"),
        (["encoder_settings.d_stat=1:2"], "vary: got 'd_stat'"),
        (["gamma=0.5:3"], "gamma: got 3"),
        (["gamma=0.1:0.2", "gamma=0.3:0.4"], "expected each setting once"),
    ],
)
def test_what_cannot_be_varied_is_refused_in_one_line(words, message):
    with pytest.raises((ValueError, TypeError), match=message) as error:
        read_space(words, MEMORY)
    assert "\n" not in str(error.value)
