import dataclasses
import inspect

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kalmanac._encoders.registry import ENCODERS
from kalmanac._lab.experiment import AGENTS, Experiment
from kalmanac._lab.factory import (
    check_environment,
    evaluation_environment,
    make_model,
    training_environment,
)
from kalmanac._messages import expect_known
from kalmanac._sac.config import AgentSettings
from kalmanac._sac.recurrent_sac import RecurrentSAC
from kalmanac._settings import EARLIER
from tests.lab.tiny import TINY

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
    ("changes", "words"),
    [
        ({"sed": 1}, "setting: got 'sed'; did you mean 'seed'?"),
        ({"encoder": "vsm+kf"}, "encoder: got 'vsm+kf'; did you mean 'vssm+kf'?"),
        ({"encoder": "qqq"}, "encoder: got 'qqq'; expected one of oracle, vssm"),
        ({"encoder_settings": {"d_stat": 2}}, "got 'd_stat'; did you mean 'd_state'?"),
        ({"drawing": "epsodes"}, "drawing: got 'epsodes'; did you mean 'episodes'?"),
        ({"seed": 1.5}, "seed: got 1.5, expected int"),
        ({"seed": True}, "seed: got True, expected int"),
        ({"seed": -1}, "seed: got -1, expected an integer in [0, 18446744073709551616)"),
        ({"privileged": 1}, "privileged: got 1, expected true or false"),
        ({"ent_coef": "hot"}, "ent_coef: got 'hot', expected a number or auto"),
        ({"actor_hidden": 3}, "actor_hidden: got 3, expected a list of int"),
        ({"num_envs": 0}, "num_envs: got 0, expected an integer of at least 1"),
        ({"batch_size": 0}, "batch_size: got 0, expected an integer of at least 1"),
        ({"tau": 3}, "tau: got 3.0"),
        ({"evaluations": ()}, "evaluations: got ()"),
        ({"env_settings": 3}, "env_settings: got 3, expected names with values"),
        ({"log_std_range": (1.0,)}, "log_std_range: got (1.0,), expected a list of 2"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(changes, words):
    with pytest.raises((ValueError, TypeError)) as refusal:
        Experiment().changed(changes)
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_whole_numbers_pass_for_floats_and_lists_for_tuples():
    given_as_file = Experiment.from_data({"ent_coef": 1, "actor_hidden": [3, 4]})
    assert (given_as_file.ent_coef, given_as_file.actor_hidden) == (1.0, (3, 4))
    assert type(given_as_file.ent_coef) is float


def test_what_an_older_run_could_not_say_is_what_it_did():
    data = Experiment().to_data()
    for name in EARLIER:
        data.pop(name, None)
    older = Experiment.from_data(data)
    assert older == Experiment(**EARLIER)
    assert (older.actor_objective, older.average_policy) == ("value", False)
    assert Experiment.from_data(Experiment().to_data()) == Experiment()


def test_a_setting_that_is_gone_is_not_read():
    gone = {"average_tau": 0.1, "bfloat16_heads": False}
    assert Experiment.from_data({**Experiment().to_data(), **gone}) == Experiment()


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
    parameters = set(inspect.signature(RecurrentSAC).parameters) - {
        "env", "device", "verbose", "tensorboard_log",
    }  # fmt: skip
    assert parameters <= {entry.name for entry in dataclasses.fields(Experiment)}
    changed = TINY.changed({"tau": 0.5, "burn_in": 3, "max_grad_norm": 2.0, "head_gain": 0.5})
    model = make_model(changed, training_environment(changed), "cpu")
    assert model.settings == changed.part(AgentSettings)
    assert model.seed == changed.seed


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"env_settings": {"cst": 1}}, "env_settings: got 'cst'; did you mean 'cost'?"),
        ({"evaluations": ("oot",)}, "evaluations: got 'oot'; did you mean 'out'?"),
        ({"env": "bestarm"}, "did you mean 'best-arm'?"),
    ],
)
def test_what_the_environment_does_not_know_is_refused(changes, words):
    with pytest.raises(ValueError, match=r"got .*") as refusal:
        check_environment(Experiment().changed(changes))
    assert words in str(refusal.value)


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
