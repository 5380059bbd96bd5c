"""Environments in processes of their own: the same results, and one clear line when one fails."""

import json
import multiprocessing
import os
import sys
import traceback

import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence

from kalmanac._envs.action_codecs import action_codec
from kalmanac._envs.checkpointable import environment_state, restore_environment
from kalmanac._envs.observation_codecs import privileged_space
from kalmanac._envs.registry import ENVS, make_vector, worker_count
from kalmanac._envs.sensors import Corruption
from kalmanac._envs.workers import (
    WorkerError,
    Workers,
    describe_exception,
    describe_remote_exception,
)
from kalmanac._files.run_reader import read_metrics
from kalmanac._lab.experiment import Experiment
from kalmanac._lab.run import run

NOISY = Corruption(noise=0.3, action_noise=0.1, dropout=0.2, delay=1)
# As Gymnasium reports what happened in a process:
reported = pytest.mark.filterwarnings("ignore::UserWarning")


def play(env, steps, seed=0):
    codec, rng = action_codec(env.single_action_space), np.random.default_rng(seed)
    return [env.step(codec.decode(codec.sample(rng, env.num_envs))) for _ in range(steps)]


@pytest.mark.parametrize(
    ("name", "workers"),
    [
        ("popgym/NoisyPositionOnlyPendulumHard", 2),
        pytest.param("popgym/MineSweeperEasy", 3, marks=pytest.mark.slow),
        pytest.param("dmc/reacher-easy", 1, marks=pytest.mark.slow),
    ],
)
def test_results_do_not_depend_on_the_workers(name, workers):
    how = Corruption(noise=0.3) if "Mine" in name else NOISY
    here = make_vector(name, 3, corruption=how)
    there = make_vector(name, 3, corruption=how, workers=workers)
    assert isinstance(there, Workers)
    assert privileged_space(there) == privileged_space(here)
    assert data_equivalence(here.reset(seed=4), there.reset(seed=4), exact=True)
    assert data_equivalence(play(here, 40), play(there, 40), exact=True)
    # left here, entered there, and the other way round
    states = environment_state(here), environment_state(there)
    assert data_equivalence(states[0]["copies"], states[1]["copies"], exact=True)
    ahead = play(here, 30, seed=1)
    restore_environment(there, states[0])
    assert data_equivalence(ahead, play(there, 30, seed=1), exact=True)
    restore_environment(here, states[1])
    assert data_equivalence(ahead, play(here, 30, seed=1), exact=True)
    processes = there._async.processes
    there.close()
    assert not any(process.is_alive() for process in processes)
    there.close()  # twice does no harm


def test_a_training_leaves_the_same_metrics_with_and_without_workers(tmp_path):
    experiment = Experiment(
        env="popgym/RepeatPreviousEasy", noise=0.1, num_envs=2, total_steps=60, learning_starts=20,
        batch_size=4, context_length=8, update_to_data=0.25, actor_hidden=(8,), critic_hidden=(8,),
        eval_every=1000, eval_episodes=1, log_every=20, encoder="memoryless",
    )  # fmt: skip
    for workers in (0, 2):
        run(experiment, tmp_path / str(workers), workers=workers, events=False, device="cpu")
    one, other = (list(read_metrics(tmp_path / name)) for name in ("0", "2"))
    assert one == other
    assert len(one) == 3


@reported
@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("dies", r"environment 1 \(seed 11\): its process ended with exit code \[-9\]"),
        ("hangs", r"environment 1 \(seed 11\): did not answer within 2 s"),
        (
            "raises",
            r"environment 1 \(seed 11\): raised FloatingPointError: the rope broke \(.*faulty.py",
        ),
    ],
)
def test_a_failing_worker_is_named_and_all_of_them_end(fault, told):
    env = make_vector("tests.envs.faulty:Faulty", 2, workers=2, fault=fault)
    env.timeout = 2.0  # from now on: a process may take its time to start
    processes = env._async.processes
    _, infos = env.reset(seed=10)
    assert os.getpid() not in infos["pid"]
    assert len(set(infos["pid"])) == 2
    with pytest.raises(WorkerError, match=told):
        play(env, 5)
    assert not any(process.is_alive() for process in processes)
    env.close()


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (__file__, r"environment 0, 1: did not answer within 1 s while it was made"),
        ("dies at once", r"its process ended with exit code .*-9.* while it was made"),
    ],
)
def test_one_that_is_never_made_is_not_waited_for_for_ever(fault, told):
    before = set(multiprocessing.active_children())
    seconds = 1.0 if fault == __file__ else 60.0
    with pytest.raises(WorkerError, match=told):
        make_vector("tests.envs.faulty:Faulty", 2, workers=2, timeout=seconds, fault=fault)
    assert set(multiprocessing.active_children()) <= before


@reported
def test_a_worker_that_dies_between_two_steps_is_noticed():
    env = make_vector("tests.envs.faulty:Faulty", 2, workers=1)
    env.reset(seed=0)
    victim = env._async.processes[0]
    victim.kill()
    victim.join()
    with pytest.raises(WorkerError, match=r"environment 0 \(seed 0\): its process ended with"):
        play(env, 2)
    env.close()


def test_an_environment_without_a_state_says_so():
    env = make_vector("tests.envs.faulty:Faulty", 1, workers=1)
    env.reset(seed=0)
    assert environment_state(env) is None
    play(env, 1)
    env.close()


def test_how_many_step_at_once():
    heavy, light = ENVS["dmc/cheetah-run"], ENVS["popgym/CountRecallEasy"]
    cores = len(os.sched_getaffinity(0))
    assert worker_count(heavy, 8, "auto") == (min(8, cores) if cores > 1 else 0)
    assert worker_count(heavy, 1, "auto") == worker_count(light, 8, "auto") == 0
    assert worker_count(light, 8, 3) == 3
    for bad in (-1, 9, 1.5, True, "all"):
        with pytest.raises(ValueError, match=r"workers: got .*, expected auto or 0 to 8, the env"):
            worker_count(light, 8, bad)
    with pytest.raises(ValueError, match="workers: got 2, expected 0: 'best-arm' steps many"):
        make_vector("best-arm", 2, workers=2)


def fails(call):
    with pytest.raises(BaseException) as caught:  # noqa: PT011 (any)
        call()
    return caught.value


def test_the_line_is_the_environment_s_own_and_not_that_of_a_library():
    def step():
        return json.loads("{")  # raises some calls further down

    line = step.__code__.co_firstlineno + 1
    said = describe_exception(fails(step))
    assert said.startswith("JSONDecodeError: Expecting property name ")
    assert said.endswith(f" ({__file__}, line {line})")


def test_what_has_no_message_or_two_lines_of_it_is_one_line():
    def two():
        raise KeyError("a\nb")

    assert describe_exception(fails(sys.exit)).startswith("SystemExit (")
    assert "\n" not in describe_exception(fails(two))
    assert describe_exception(ValueError("never raised")) == "ValueError: never raised"


def test_the_traceback_of_another_process_is_text():
    def step():
        raise ZeroDivisionError("motor")

    error = fails(step)
    text = "".join(traceback.format_exception(error))
    line = step.__code__.co_firstlineno + 1
    told = describe_remote_exception(ZeroDivisionError("motor"), text)
    assert told == f"ZeroDivisionError: motor ({__file__}, line {line})"
    assert describe_remote_exception(ZeroDivisionError("motor"), "") == "ZeroDivisionError: motor"
