"""The table of environments, names beyond it, and the Oracle's view."""

import subprocess
import sys

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from kalmanac._envs.action_codecs import action_codec
from kalmanac._envs.best_arm import BestArm, BestArmVector
from kalmanac._envs.popgym import PAPER
from kalmanac._envs.registry import ENVS, EnvironmentSpec, environment, make_env, make_vector
from kalmanac._envs.sensors import Corruption, ObservationDropout
from kalmanac._envs.wrappers import PrivilegedObservation
from tests.envs.rows import ROWS
from tests.envs.toys import Identity, NoisyIntegrator

ROW = EnvironmentSpec("row", "for the tests", lambda num_envs: SyncVectorEnv([Identity] * num_envs))
NUMBER = 3


@pytest.mark.parametrize("name", ROWS)
def test_every_row_runs_as_described(name):
    row = ENVS[name]
    assert row.name == name
    assert row.summary
    assert row.normalizer > 0
    for changes in row.evaluations.values():
        env = make_vector(name, 3, **changes)
        assert isinstance(env, VectorEnv)
        assert env.metadata["autoreset_mode"] in (AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP)
        observations, _ = env.reset(seed=0)
        assert observations in env.observation_space
        codec = action_codec(env.single_action_space)
        rng = np.random.default_rng(0)
        for _ in range(20):
            observations, *_ = env.step(codec.decode(codec.sample(rng, 3)))
            assert observations in env.observation_space
    assert set(changes) <= set(row.settings)


def test_the_paper_s_sections_are_its_own():
    sections = {"best-arm": "5.2", "dmc": "5.3", "popgym": "5.4"}
    for name, row in ENVS.items():
        family, _, task = name.partition("/")
        section = sections.get(family) if family != "popgym" or task in PAPER else None
        said = f"(paper, section {section})"
        assert row.summary.endswith(said) == (section is not None), name


def test_best_arm_is_described_as_in_the_paper():
    row = ENVS["best-arm"]
    assert (row.normalizer, row.horizon) == (10.0, 1000)
    assert row.settings["sigma"] == (0.0, 2.0)
    assert make_vector("best-arm", 2, **row.evaluations["out"]).rules.sigma == (2.0, 3.0)
    assert make_vector("best-arm", 2, sigma=[2.0, 3.0]).reset(seed=0)[1]["sigma"].min() > 2


def test_gymnasium_ids_become_vectors():
    assert isinstance(make_vector("kalmanac/BestArm-v0", 2, cost=0.5), BestArmVector)
    env = make_vector("MountainCarContinuous-v0", 2)
    assert isinstance(env, SyncVectorEnv)
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert environment("MountainCarContinuous-v0").horizon == 999
    assert isinstance(make_vector("kalmanac._envs:kalmanac/BestArm-v0", 2), BestArmVector)


def test_a_modules_names_become_vectors():
    assert environment(f"{__name__}:ROW") is ROW
    assert make_vector(f"{__name__}:ROW", 4).num_envs == 4
    copies = make_vector("tests.envs.toys:Identity", 3, symbols=5)
    assert copies.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert (copies.num_envs, copies.single_action_space.n) == (3, 5)
    assert environment("tests.envs.toys:Identity").summary.startswith("Each step shows")
    many = make_vector("kalmanac._envs.best_arm:BestArmVector", 3, cost=0.5)
    assert (many.num_envs, many.rules.cost) == (3, 0.5)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("best_arm", "env: got 'best_arm', expected one of best-arm, .*did you mean 'best-arm'"),
        ("CartPol-v1", "did you mean 'CartPole-v1'"),
        ("tests.envs.toys:Nothing", "got 'tests.envs.toys:Nothing', expected .*toys to have 'Noth"),
        ("no.such.module:Name", "expected a module to import"),
    ],
)
def test_unknown_names_are_refused_with_the_nearest(name, message):
    with pytest.raises(ValueError, match=message):
        make_vector(name, 1)


def nothing_of_the_kind(num_envs):
    return [NUMBER] * num_envs


def test_what_is_made_has_to_be_an_environment():
    with pytest.raises(TypeError, match=r"env: got a list from .*, expected a VectorEnv"):
        make_vector(f"{__name__}:nothing_of_the_kind", 2)
    with pytest.raises(TypeError, match=r"env: got a Reference from .*, expected a gymnasium\.Env"):
        make_vector("tests.envs.toys:Reference", 2, random=0.0, memory=0.0, memoryless=0.0)
    with pytest.raises(TypeError):  # does not tell what it takes
        make_vector("numpy:frombuffer", 2)


@pytest.mark.parametrize("line", ["1 / 0", "import sys; sys.exit(3)", "this is no Python"])
def test_a_module_that_cannot_be_imported_is_one_error(line, tmp_path, monkeypatch):
    (tmp_path / "unimportable.py").write_text(line)
    monkeypatch.syspath_prepend(tmp_path)
    told = "env: got 'unimportable:Env', which raised (.+), expected a module to import"
    with pytest.raises(ValueError, match=told):
        environment("unimportable:Env")


@pytest.mark.parametrize("name", [*ROWS, "CartPole-v1", "tests.envs.toys:Identity"])
def test_every_row_is_made_singly(name):
    env = make_env(name)
    observation, _ = env.reset(seed=0)
    assert observation in env.observation_space
    env.action_space.seed(0)
    assert env.step(env.action_space.sample())[0] in env.observation_space


def test_one_environment_has_its_settings_and_bad_sensors():
    assert make_env("track", horizon=3).horizon == 3
    assert isinstance(make_env("track", corruption=Corruption(dropout=0.5)), ObservationDropout)


def test_what_cannot_be_made_singly_is_refused():
    with pytest.raises(ValueError, match=r"env: got .*:ROW', which comes as a vector of many only"):
        make_env(f"{__name__}:ROW")
    with pytest.raises(TypeError, match="costs: environment 'best-arm' has no such setting, exp"):
        make_env("best-arm", costs=0.1)
    with pytest.raises(TypeError, match=r"env: got a Reference from .*, expected a gymnasium\.Env"):
        make_env("tests.envs.toys:Reference", random=0.0, memory=0.0, memoryless=0.0)


def test_unknown_settings_and_sizes_are_refused():
    with pytest.raises(TypeError, match="costs: environment 'best-arm' has no such setting, exp"):
        make_vector("best-arm", 1, costs=0.1)
    with pytest.raises(TypeError, match="NUMBER', a int, expected an EnvironmentSpec"):
        environment(f"{__name__}:NUMBER")
    for bad in (0, 1.0, True):
        with pytest.raises(ValueError, match="num_envs: got"):
            make_vector("best-arm", bad)


def test_the_oracle_sees_the_posterior_at_every_step_and_end():
    env = make_vector("best-arm", 6, privileged=True, horizon=3)
    assert env.single_observation_space.shape == (2,)
    observations, infos = env.reset(seed=0)
    rng, ended = np.random.default_rng(0), 0
    for _ in range(30):
        assert observations in env.observation_space
        np.testing.assert_array_equal(observations, infos["privileged"])
        before = observations
        actions = rng.choice(3, size=6, p=[0.6, 0.2, 0.2])
        observations, _, terminated, _, infos = env.step(actions)
        for i in np.flatnonzero(terminated):
            ended += 1
            last = infos["final_obs"][i]
            assert last in env.single_observation_space
            np.testing.assert_array_equal(last, infos["final_info"]["privileged"][i])
            if actions[i] != 0:  # a decision brings no news
                np.testing.assert_array_equal(last, before[i])
        for i in np.flatnonzero(~terminated) if terminated.any() else ():
            assert infos["final_obs"][i] is None
    assert ended > 20


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_the_oracles_view_of_copies_in_both_modes(mode):
    env = PrivilegedObservation(
        SyncVectorEnv([lambda: NoisyIntegrator(length=3)] * 2, autoreset_mode=mode)
    )
    observations, _ = env.reset(seed=0)
    for _ in range(10):
        drift = observations[:, 1]
        position = observations[:, 0]
        observations, rewards, _, over, infos = env.step(np.full((2, 1), 0.25, np.float32))
        after = observations
        if over.any() and mode is AutoresetMode.SAME_STEP:
            after = np.stack(list(infos["final_obs"]))
        if (rewards == 0).all():  # the step of a reset
            continue
        np.testing.assert_allclose(after[:, 0], position + drift + 0.25, atol=1e-6)
        np.testing.assert_allclose(rewards, -(after[:, 0] ** 2), atol=1e-5)


def test_an_environment_that_hides_its_state_is_refused():
    with pytest.raises(ValueError, match="expected one that declares a privileged_space"):
        make_vector("tests.envs.toys:Identity", 1, privileged=True)

    class Silent(BestArm):
        def step(self, action):
            *out, info = super().step(action)
            return (*out, {"mu": info["mu"]})

    env = PrivilegedObservation(SyncVectorEnv([Silent]))
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"got none from environments \[0\]"):
        env.step(np.array([0]))


def test_environments_need_no_torch():
    code = "import sys, kalmanac._envs; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_module_in_the_folder_where_one_is_needs_no_path(tmp_path, monkeypatch):
    """The program `kalmanac` has no working directory among its paths, as `python -m` has."""
    (tmp_path / "own_guess.py").write_text("from tests.envs.toys import Identity as Guess\n")
    (tmp_path / "random.py").write_text("raise SystemExit")  # shadows nothing
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    assert environment("own_guess:Guess").single is not None
    assert sys.path[-1] == str(tmp_path)
