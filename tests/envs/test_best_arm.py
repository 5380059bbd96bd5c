"""Best Arm Identification: Gymnasium's rules, the rewards, what is drawn and what refused."""

import json
import math
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from kalmanac._envs.best_arm import BestArm, BestArmVector
from kalmanac._envs.best_arm_rules import ABOVE, ASK, BELOW, posterior

ID = "kalmanac/BestArm-v0"


def follows(values: np.ndarray, cumulative: Callable[[float], float]) -> bool:
    """Kolmogorov and Smirnov's test: a right law fails it once in a thousand times."""
    ordered = np.array([cumulative(float(x)) for x in np.sort(values.ravel())])
    steps = np.arange(len(ordered) + 1) / len(ordered)
    distance = max((steps[1:] - ordered).max(), (ordered - steps[:-1]).max())
    return distance < 1.95 / math.sqrt(len(ordered))


def test_gymnasium_accepts_it():
    check_env(gymnasium.make(ID).unwrapped, skip_render_check=True)
    check_env(gymnasium.make(ID, cost=0.1, horizon=3).unwrapped, skip_render_check=True)


def test_both_forms_are_registered():
    assert isinstance(gymnasium.make(ID, cost=0.5).unwrapped, BestArm)
    many = gymnasium.make_vec(ID, num_envs=3, cost=0.5)
    assert isinstance(many, BestArmVector)
    assert (many.num_envs, many.rules.cost) == (3, 0.5)
    assert many.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP


@pytest.mark.parametrize(
    ("mu", "action", "reward"),
    [(0.2, ABOVE, 7.0), (0.2, BELOW, -3.0), (-0.2, ABOVE, -3.0), (-0.2, BELOW, 7.0),
     (0.0, ABOVE, -3.0), (0.0, BELOW, 7.0), (0.2, ASK, -0.5)],
)  # fmt: skip
def test_what_an_action_pays(mu, action, reward):
    env = BestArm(cost=0.5, win=7.0, loss=-3.0)
    first, _ = env.reset(seed=0, options={"mu": mu, "sigma": 1.0})
    observation, paid, terminated, truncated, info = env.step(action)
    assert (paid, terminated, truncated) == (reward, action != ASK, False)
    assert info["mu"] == mu
    assert info.get("win") == (None if action == ASK else reward > 0)
    assert (observation == first).all() == (action != ASK)


def test_asking_without_cost_pays_a_positive_zero():
    env = BestArm()
    env.reset(seed=0)
    assert str(env.step(ASK)[1]) == "0.0"


@pytest.mark.parametrize("horizon", [1, 2, 5])
def test_asking_in_the_last_step_loses_and_pays_no_cost(horizon):
    env = BestArm(cost=0.5, horizon=horizon)
    env.reset(seed=0)
    for _ in range(horizon - 1):
        assert env.step(ASK)[1:4] == (-0.5, False, False)
    *_, reward, terminated, truncated, info = env.step(ASK)
    assert (reward, terminated, truncated, info["win"]) == (-10.0, True, False, False)


def test_a_decision_in_the_last_step_still_counts():
    env = BestArm(horizon=2)
    env.reset(seed=0, options={"mu": 0.1})
    env.step(ASK)
    assert env.step(ABOVE)[1:3] == (10.0, True)


def test_privileged_is_the_posterior_of_what_was_seen():
    env = BestArm()
    observation, info = env.reset(seed=3)
    seen = [observation[0]]
    for _ in range(20):
        expected = posterior(np.sum(seen, dtype=np.float64), len(seen), info["sigma"])
        np.testing.assert_allclose(info["privileged"], expected, atol=1e-6)
        assert info["privileged"] in env.privileged_space
        observation, *_, info = env.step(ASK)
        seen.append(observation[0])


@pytest.mark.parametrize("sigma", [0.0, 0.7])
def test_samples_have_the_law_of_the_bandit(sigma):
    fixed = {"mu": 0.3, "sigma": sigma}
    single, many = BestArm(), BestArmVector(2000)
    seen = [single.reset(seed=0, options=fixed)[0]]
    seen += [single.step(ASK)[0] for _ in range(900)]
    first, _ = many.reset(seed=0, options=fixed)
    second = many.step(np.full(2000, ASK))[0]
    for values in (np.array(seen), first, second):
        if sigma == 0:
            assert (values == np.float32(0.3)).all()
        else:
            assert follows(values, lambda x: 0.5 + 0.5 * math.erf((x - 0.3) / sigma / math.sqrt(2)))


def test_bandits_are_drawn_uniformly_also_when_replaced():
    env = BestArmVector(2000)
    drawn = [env.reset(seed=1)[1], env.step(np.full(2000, BELOW))[4]]
    assert (drawn[0]["mu"] != drawn[1]["mu"]).all()
    for infos in drawn:
        assert follows(infos["mu"], lambda x: min(max(x + 0.5, 0), 1))
        assert follows(infos["sigma"], lambda x: min(max(x / 2, 0), 1))


def test_the_single_environments_state_is_plain_and_goes_on_exactly():
    env, fresh = BestArm(), BestArm()
    env.reset(seed=1)
    env.step(ASK)
    fresh.set_checkpoint_state(json.loads(json.dumps(env.get_checkpoint_state())))
    for action in (ASK, ASK, ABOVE):
        assert data_equivalence(env.step(action), fresh.step(action), exact=True)
    assert data_equivalence(env.reset(), fresh.reset(), exact=True)


@pytest.mark.parametrize("env", [BestArm(), BestArmVector(2)], ids=["one", "many"])
def test_a_step_without_reset_and_a_strange_state_are_refused(env):
    with pytest.raises(gymnasium.error.ResetNeeded, match="call reset first"):
        env.step(np.zeros(2, int))
    with pytest.raises(ValueError, match=r"state: got \['mu'\], expected \['mu', 'sigma'"):
        env.set_checkpoint_state({"mu": 0.0})
    with pytest.raises(ValueError, match=r"state\['mu'\]: got shape \(3,\)"):
        env.set_checkpoint_state(env.get_checkpoint_state() | {"mu": np.zeros(3)})


def test_a_step_after_the_end_is_refused():
    env = BestArm()
    env.reset(seed=0)
    env.step(ABOVE)
    with pytest.raises(gymnasium.error.ResetNeeded, match="call reset first"):
        env.step(ASK)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cost": -1.0}, "cost: got -1.0, expected a number of at least 0"),
        ({"cost": np.nan}, "cost: got nan, expected a finite number"),
        ({"win": -10.0}, "win: got -10.0, expected more than the loss"),
        ({"horizon": 0}, "horizon: got 0, expected an integer of at least 1"),
        ({"horizon": 2.5}, "horizon: got 2.5, expected an integer of at least 1"),
        ({"sigma": (-1.0, 2.0)}, r"sigma: got \(-1.0, 2.0\), expected 0 ≤ low ≤ high"),
        ({"mu": (1.0, 0.0)}, r"mu: got \(1.0, 0.0\), expected low ≤ high"),
        ({"mu": 0.5}, r"mu: got 0.5, expected an interval \(low, high\)"),
        ({"mu": (0.0, np.inf)}, "mu: got inf, expected finite values"),
        ({"mu": (np.zeros(3), np.ones(3))}, r"mu: got shape \(3,\), expected a number"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        BestArm(**settings)
    with pytest.raises(ValueError, match=message):
        BestArmVector(2, **settings)


def test_bad_actions_and_options_are_refused():
    single, many = BestArm(), BestArmVector(2)
    single.reset(seed=0)
    many.reset(seed=0)
    with pytest.raises(ValueError, match="action: got 3, expected 0"):
        single.step(3)
    with pytest.raises(ValueError, match="actions: got 0 to 3, expected 0"):
        many.step(np.array([0, 3]))
    with pytest.raises(ValueError, match=r"actions: got int64 of shape \(3,\)"):
        many.step(np.zeros(3, int))
    with pytest.raises(ValueError, match="actions: got float64"):
        many.step(np.zeros(2))
    for env in (single, many):
        with pytest.raises(ValueError, match="options: got 'mean', expected 'mu' or 'sigma'"):
            env.reset(options={"mean": 0.0})
        with pytest.raises(ValueError, match="expected values of at least 0"):
            env.reset(options={"sigma": -1.0})
    with pytest.raises(ValueError, match="num_envs: got 0, expected at least 1"):
        BestArmVector(0)


def test_episodes_and_states_are_those_of_the_first_version():
    """Drawn and saved when one bandit had an environment of its own."""
    saved = {
        "mu": -0.41435083285637564, "sigma": 0.4736210131921994, "sample": -0.6287350492064568,
        "total": -1.5283239316325008, "count": 3, "running": True,
        "generator": {
            "bit_generator": "PCG64", "has_uint32": 0, "uinteger": 0,
            "state": {
                "state": 321885020412086036321728384532856456214,
                "inc": 222003063171874261427395693950637096479,
            },
        },
    }  # fmt: skip
    env, fresh = BestArm(horizon=6), BestArm(horizon=6)
    seen = [env.reset(seed=3)[0].item(), *(env.step(ASK)[0].item() for _ in range(2))]
    assert seen == [-0.21633043885231018, -0.6832584738731384, -0.6287350654602051]
    assert env.get_checkpoint_state() == saved
    fresh.set_checkpoint_state(saved)
    for one in (env, fresh):
        assert [one.step(ASK)[0].item() for _ in range(2)] == [
            -0.5164622068405151,
            -1.371058702468872,
        ]
        assert one.step(ABOVE)[1:4] == (-10.0, True, False)
        assert one.reset()[0].item() == 4.541738033294678


def copies(n: int, **settings: Any) -> SyncVectorEnv:
    """`n` single environments, stepped by Gymnasium's own code."""
    return SyncVectorEnv([lambda: BestArm(**settings)] * n, autoreset_mode=AutoresetMode.SAME_STEP)


def run(env: Any, n: int, steps: int, **options: Any) -> list[Any]:
    rng = np.random.default_rng(9)
    out = [env.reset(seed=4, options=options or None)]
    out += [env.step(rng.choice(3, size=n, p=[0.7, 0.15, 0.15])) for _ in range(steps)]
    return out


def test_one_bandit_alone_equals_the_single_environment_bit_for_bit():
    settings = {"cost": 0.1, "horizon": 5}
    here, there = BestArmVector(1, **settings), copies(1, **settings)
    for mine, theirs in zip(run(here, 1, 300), run(there, 1, 300), strict=True):
        assert data_equivalence(mine, theirs, exact=True)


@pytest.mark.parametrize("mu", [0.25, 0.0, -0.25])
def test_many_bandits_equal_gymnasiums_copies_where_nothing_is_random(mu):
    settings = {"cost": 0.1, "horizon": 4, "sigma": (0.0, 0.0), "mu": (mu, mu)}
    here, there = BestArmVector(7, **settings), copies(7, **settings)
    assert here.observation_space == there.observation_space
    assert here.action_space == there.action_space
    ended = 0
    for mine, theirs in zip(run(here, 7, 200), run(there, 7, 200), strict=True):
        assert data_equivalence(mine, theirs, exact=True)
        ended += mine[2].sum() if len(mine) == 5 else 0
    assert ended > 100


def test_many_bandits_win_and_last_as_gymnasiums_copies_do():
    settings = {"cost": 0.1, "horizon": 4}
    results = []
    for env in (BestArmVector(40, **settings), copies(40, **settings)):
        paid = np.concatenate([out[1] for out in run(env, 40, 150, mu=0.3)[1:]])
        results.append([(paid == -10).mean(), (paid == 10).mean(), (paid == -0.1).mean()])
    np.testing.assert_allclose(*results, atol=5 * np.sqrt(2 * 0.25 / 6000))


def test_what_was_handed_out_stays_as_it_was():
    env = BestArmVector(50, horizon=3)
    env.reset(seed=0)
    handed = [env.step(np.full(50, ASK)) for _ in range(2)]
    kept = json.dumps(handed, default=str)
    for _ in range(4):
        env.step(np.full(50, ASK))
    assert json.dumps(handed, default=str) == kept


def test_reset_options_hold_for_the_episodes_they_begin():
    env = BestArmVector(3)
    mu = np.array([-0.4, 0.1, 0.4])
    _, infos = env.reset(seed=0, options={"mu": mu, "sigma": 2.5})
    np.testing.assert_array_equal(infos["mu"], mu)
    np.testing.assert_array_equal(infos["sigma"], [2.5, 2.5, 2.5])
    *_, infos = env.step(np.array([ASK, ABOVE, ABOVE]))
    assert infos["mu"][0] == -0.4
    assert (infos["mu"][1:] != mu[1:]).all()


def test_bounds_of_their_own_fix_every_bandit_for_ever():
    mu, sigma = np.array([-0.4, 0.1, 0.4]), np.array([0.5, 2.0, 3.0])
    env = BestArmVector(3, mu=(mu, mu), sigma=(sigma, sigma))
    env.reset(seed=0)
    for _ in range(3):
        *_, infos = env.step(np.full(3, ABOVE))
        np.testing.assert_array_equal(infos["mu"], mu)
        np.testing.assert_array_equal(infos["sigma"], sigma)
        np.testing.assert_array_equal(infos["final_info"]["win"], mu > 0)


def test_the_same_seed_gives_the_same_run_and_another_does_not():
    first, second = (run(BestArmVector(5), 5, 20) for _ in range(2))
    assert data_equivalence(first, second, exact=True)
    assert (BestArmVector(5).reset(seed=1)[0] != BestArmVector(5).reset(seed=2)[0]).all()


@pytest.mark.parametrize("n", [1, 6])
def test_a_state_kept_and_set_goes_on_exactly(n):
    env = BestArmVector(n, horizon=5)
    run(env, n, 13)
    state = env.get_checkpoint_state()
    rng = np.random.default_rng(2)
    actions = [rng.integers(3, size=n) for _ in range(30)]
    after = [env.step(a) for a in actions]
    fresh = BestArmVector(n, horizon=5)
    fresh.set_checkpoint_state(state)
    assert data_equivalence(after, [fresh.step(a) for a in actions], exact=True)
    fresh.set_checkpoint_state(state)  # the state itself was not used up
    assert data_equivalence(after, [fresh.step(a) for a in actions], exact=True)


@pytest.mark.slow
def test_thousands_of_bandits_are_fast():
    env = BestArmVector(4096)
    env.reset(seed=0)
    actions = np.random.default_rng(0).choice(3, size=4096, p=[0.98, 0.01, 0.01])
    fastest = np.inf
    for _ in range(200):
        start = time.perf_counter()
        env.step(actions)
        fastest = min(fastest, time.perf_counter() - start)
    assert 4096 / fastest > 5e6


@pytest.mark.parametrize(
    "settings", [{"cost": ""}, {"win": None}, {"sigma": ("a", "b")}, {"mu": ({}, 1)}], ids=str
)
def test_what_is_no_number_is_refused_by_name(settings):
    (name,) = settings
    with pytest.raises(ValueError, match=f"^{name}: got .*, expected "):
        BestArm(**settings)
