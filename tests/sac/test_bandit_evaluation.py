"""Evaluations on the device find what evaluations in the environments find."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kalmanac._encoders.registry import ENCODERS
from kalmanac._envs.best_arm import BestArmVector
from kalmanac._envs.best_arm_rules import Rules
from kalmanac._envs.registry import make_vector
from kalmanac._sac import bandit_evaluation as module
from kalmanac._sac.bandit_evaluation import BanditEvaluation, BanditRules, observation
from kalmanac._sac.evaluation import evaluate_policy
from kalmanac._sac.recurrent_sac import RecurrentSAC
from tests.sac.fed import drawn, fed
from tests.sac.small import small

CPU = torch.device("cpu")
SHORT = {"cost": 0.05, "horizon": 6, "win": 7.0, "loss": -3.0}
HOW = {"cost": 0.05, "horizon": 60, "sigma": (0.5, 2.0)}


def trained(encoder: str, *, privileged: bool = False, **settings) -> RecurrentSAC:
    """An agent that likes to ask, so that episodes have different lengths."""
    env = make_vector("best-arm", 4, privileged=privileged, **HOW)
    model = small(encoder, env, update_to_data=0.5, seed=6, **settings).learn(120)
    last = model.learner.averaged.head.layers[-1]
    with torch.no_grad():
        last.weight.normal_(generator=torch.Generator().manual_seed(0))
        last.bias.copy_(torch.tensor([0.3 if privileged else 1.0, 0.0, 0.0]))
    return model


@pytest.mark.parametrize(
    ("encoder", "settings"),
    [
        ("vssm+kf", {"normalize_observations": True}),
        ("gru", {}),
        ("gru", {"previous_reward": True, "normalize_rewards": True}),
        ("memoryless", {"privileged": True}),
    ],
)
def test_given_the_same_draws_they_are_the_same(encoder, settings):
    model, n = trained(encoder, **settings), 30
    privileged = settings.get("privileged", False)
    actual = []
    for seed in range(2):
        env = fed(drawn(n, 61, seed), privileged=privileged, **HOW)
        actual.append(evaluate_policy(model, env, n))
    rules = [Rules(**HOW)] * 2
    on_device = BanditEvaluation(model.policy, rules, n, privileged=privileged)
    for truth, played in zip(actual, on_device([drawn(n, 61, 0), drawn(n, 61, 1)]), strict=True):
        np.testing.assert_array_equal(played.episodes.returns, truth.returns)
        np.testing.assert_array_equal(played.episodes.lengths, truth.lengths)
        np.testing.assert_array_equal(played.episodes.wins, truth.wins)
        assert len(set(truth.lengths)) > 1
        assert (played.last_actions[truth.wins] > 0).all()


def test_generators_decide_the_episodes_whatever_the_number_of_steps_at_a_time(monkeypatch):
    model = trained("vssm+kf")

    def returns(seed):
        evaluation = BanditEvaluation(model.policy, [Rules(**HOW)], 40)
        return evaluation([np.random.default_rng(seed)])[0].episodes.returns.tolist()

    first = returns(1)
    monkeypatch.setattr(module, "STEPS", 7)
    assert returns(1) == first
    assert returns(2) != first


def test_it_leaves_the_training_alone():
    looked, own = trained("vssm+kf"), trained("vssm+kf")
    BanditEvaluation(looked.policy, [Rules(**HOW)], 10)([np.random.default_rng(0)])
    looked.learn(20)
    own.learn(20)
    for name, x in own.learner.state_dict().items():
        assert x.equal(looked.learner.state_dict()[name]), name


@pytest.mark.gpu
@pytest.mark.parametrize("encoder", list(ENCODERS))
def test_on_a_gpu_a_graph_finds_what_eager_steps_find(encoder):
    env = BestArmVector(4, **HOW)
    model = small(encoder, env, seed=6, device="cuda", normalize_observations=True).learn(60)
    rules = [Rules(**HOW), Rules(cost=0.05, horizon=60, sigma=(2.0, 3.0))]
    graph, eager = (BanditEvaluation(model.policy, rules, 50) for _ in range(2))
    eager._some_steps = eager._play
    for number in range(4):  # the first calls are eager in any case
        seeds = [2 * number, 2 * number + 1]
        actual, truth = (
            one([np.random.default_rng(seed) for seed in seeds]) for one in (graph, eager)
        )
        for x, y in zip(actual, truth, strict=True):
            np.testing.assert_array_equal(x.episodes.lengths, y.episodes.lengths)
            np.testing.assert_allclose(x.episodes.returns, y.episodes.returns)
    assert not graph._some_steps.failed
    assert graph._some_steps._recording is not None
    model.learn(40)  # a graph plays with the weights as they are
    actual, truth = (one([np.random.default_rng(i) for i in (0, 1)]) for one in (graph, eager))
    np.testing.assert_array_equal(actual[0].episodes.lengths, truth[0].episodes.lengths)


@given(st.integers(0, 2**31), st.floats(0.2, 1.0), st.integers(1, 8))
def test_they_show_pay_and_end_as_the_environments_do(seed, asking, n):
    rng, draws = np.random.default_rng(seed), drawn(n, 12, seed)
    env, rules = fed(draws, **SHORT), BanditRules([Rules(**SHORT)], n, CPU)
    noise = torch.from_numpy(draws.noise)
    shown, infos = env.reset()
    bandits, tally = rules.begin(torch.from_numpy(draws.uniform), noise[0])
    returns, over = np.zeros(n), np.zeros(n, bool)
    for step in range(1, 8):
        same = ~over
        sample, belief = observation(bandits), observation(bandits, privileged=True)
        np.testing.assert_array_equal(sample[same].numpy(), shown[same])
        np.testing.assert_array_equal(belief[same].numpy(), infos["privileged"][same])
        np.testing.assert_array_equal(tally.over.numpy(), over)
        action = np.where(rng.random(n) < asking, 0, rng.integers(1, 3, n))
        shown, reward, ended, _, infos = env.step(action)
        bandits, tally = rules.step(bandits, tally, torch.from_numpy(action), noise[step])
        returns += np.where(same, reward, 0.0)
        now = same & ended
        for i in np.flatnonzero(now):
            assert tally.won[i] == infos["final_info"]["win"][i]
            assert tally.length[i] == step
            assert tally.last_action[i] == action[i]
        over |= ended
        np.testing.assert_array_equal(tally.reward.numpy(), returns)
    assert over.all()


def test_each_has_the_rules_of_its_own():
    some = [Rules(sigma=(0.0, 0.0), horizon=2), Rules(sigma=(2.0, 3.0), horizon=3, loss=-1.0)]
    rules = BanditRules(some, 4, CPU)
    uniform = torch.linspace(0, 0.9, 16, dtype=torch.float64).reshape(2, 8)
    bandits, tally = rules.begin(uniform, torch.ones(8, dtype=torch.float64))
    assert bandits.sigma[:4].tolist() == [0.0] * 4
    assert ((bandits.sigma[4:] >= 2) & (bandits.sigma[4:] < 3)).all()
    asking = torch.zeros(8, dtype=torch.int64)
    for _ in range(2):
        bandits, tally = rules.step(
            bandits, tally, torch.zeros(8, dtype=torch.int64), torch.ones(8)
        )
    assert tally.over.tolist() == [True] * 4 + [False] * 4
    bandits, tally = rules.step(bandits, tally, asking, torch.ones(8))
    assert tally.length.tolist() == [2] * 4 + [3] * 4
    assert tally.reward.tolist() == [-10.0] * 4 + [-1.0] * 4


@pytest.mark.gpu
def test_on_a_gpu_they_are_the_same_bit_by_bit():
    draws = drawn(64, 12, 0)
    actual = []
    for device in ("cpu", "cuda"):
        rules = BanditRules([Rules(**SHORT)], 64, torch.device(device))
        noise = torch.from_numpy(draws.noise).to(device)
        bandits, tally = rules.begin(torch.from_numpy(draws.uniform).to(device), noise[0])
        for step in range(1, 7):
            action = (torch.arange(64) + step) % 5 % 3
            bandits, tally = rules.step(bandits, tally, action.to(device), noise[step])
        actual.append([x.cpu() for x in (*bandits, *tally, observation(bandits, privileged=True))])
    for x, y in zip(*actual, strict=True):
        assert torch.equal(x, y)
