"""Updates: who moves whom, repeatability, resuming, and what is logged."""

import copy
import math
import platform
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from kalmanac._observation import Observation, Sizes
from kalmanac._ops.sac_losses import OBJECTIVES
from kalmanac._sac.learner import Learner
from tests.sac.cases import (
    CONTINUOUS,
    DISCRETE,
    batch,
    both_kinds,
    every_encoder,
    forget_gradients,
    gradients,
    make_learner,
)


@both_kinds
def test_each_loss_moves_its_own_parameters_only(sizes: Sizes) -> None:
    learner = make_learner(sizes)
    for name in ("actor_loss", "critic_loss", "ent_coef_loss"):
        forget_gradients(learner)
        learner.losses_of(batch(sizes))[0][name].backward()
        for owner, parameters in (
            ("actor_loss", list(learner.actor.parameters())),
            ("critic_loss", list(learner.critic.parameters())),
            ("ent_coef_loss", [learner.log_alpha]),
        ):
            for p in parameters:
                assert (p.grad is not None and bool(p.grad.any())) is (owner == name)
        assert all(p.grad is None for p in learner.target.parameters())


@both_kinds
def test_updates_lower_the_critic_loss_and_leave_a_lagging_target(sizes: Sizes) -> None:
    learner, data = make_learner(sizes, tau=0.25, learning_rate=3e-3), batch(sizes)
    before = [p.clone() for p in learner.target.parameters()]
    first = learner.update(data)["train/critic_loss"]
    for p, old, new in zip(
        learner.target.parameters(), before, learner.critic.parameters(), strict=True
    ):
        torch.testing.assert_close(p, 0.75 * old + 0.25 * new.detach())
    for _ in range(80):
        last = learner.update(data)["train/critic_loss"]
    assert last < 0.5 * first


@both_kinds
def test_an_average_of_the_actor_follows_it_and_acts_where_it_is_asked_for(sizes: Sizes) -> None:
    learner, data = make_learner(sizes, tau=0.25, learning_rate=3e-2), batch(sizes)
    before = [p.clone() for p in learner.averaged.parameters()]
    learner.update(data)
    pairs = zip(learner.averaged.parameters(), before, learner.actor.parameters(), strict=True)
    for p, old, new in pairs:
        torch.testing.assert_close(p, 0.75 * old + 0.25 * new.detach())

    def parameters_seen(averaged: bool) -> list[Tensor]:
        outputs: list[Tensor] = []
        hooks = [
            actor.head.register_forward_hook(lambda _, __, output: outputs.append(output))
            for actor in (learner.actor, learner.averaged)
        ]
        learner.act(
            Observation(torch.ones(3, 2)), torch.zeros(3, sizes.action), learner.initial_state(3),
            episode_start=torch.ones(3, dtype=torch.bool), explore=False, averaged=averaged,
        )  # fmt: skip
        for hook in hooks:
            hook.remove()
        return outputs

    (newest,), (averaged,) = parameters_seen(False), parameters_seen(True)
    assert not torch.allclose(newest, averaged)


@both_kinds
def test_without_an_average_the_newest_actor_is_what_plays(sizes: Sizes) -> None:
    learner = make_learner(sizes, average_policy=False)
    learner.update(batch(sizes))
    assert learner.averaged is learner.actor
    assert not any(name.startswith("averaged") for name in learner.state_dict())


def test_a_state_from_before_averages_begins_one() -> None:
    learner = make_learner(DISCRETE)
    learner.update(batch(DISCRETE))
    saved = {k: x for k, x in learner.state_dict().items() if not k.startswith("averaged")}
    learner.update(batch(DISCRETE, seed=1))
    learner.load_state_dict(saved)
    for p, newest in zip(learner.averaged.parameters(), learner.actor.parameters(), strict=True):
        assert torch.equal(p, newest)


@pytest.mark.parametrize(
    ("sizes", "settings", "expected"),
    [
        (DISCRETE, {}, "mixed"),
        (CONTINUOUS, {}, "value"),
        (DISCRETE, {"ent_coef": 0.0}, "value"),
        (DISCRETE, {"actor_objective": "value"}, "value"),
    ],
)
def test_the_objective_goes_with_the_actions(
    sizes: Sizes, settings: dict[str, Any], expected: str
) -> None:
    assert make_learner(sizes, **settings).rules.objective == OBJECTIVES[expected]


def test_an_objective_of_discrete_actions_is_refused_for_others() -> None:
    message = "actor_objective: got 'mixed', expected 'auto' or 'value' for continuous actions"
    with pytest.raises(ValueError, match=message):
        make_learner(CONTINUOUS, actor_objective="mixed")


@both_kinds
@pytest.mark.parametrize("goal", [-50.0, 50.0])
def test_temperature_moves_towards_the_target_entropy(sizes: Sizes, goal: float) -> None:
    learner = make_learner(sizes, target_entropy=goal)
    assert learner.log_alpha == 0
    metrics = learner.update(batch(sizes))
    rises = metrics["train/entropy"].item() < goal
    assert rises == (goal > 0)
    assert (learner.log_alpha > 0).item() is rises
    assert abs(learner.log_alpha.item()) == pytest.approx(3e-4, rel=1e-3)


def test_a_fixed_temperature_stays() -> None:
    learner = make_learner(DISCRETE, ent_coef=0.1)
    for _ in range(2):
        metrics = learner.update(batch(DISCRETE))
    assert metrics["train/ent_coef"].item() == pytest.approx(0.1)
    assert "train/ent_coef_loss" not in metrics
    none = make_learner(DISCRETE, ent_coef=0.0).update(batch(DISCRETE))
    assert none["train/ent_coef"] == 0
    assert none["train/actor_loss"].isfinite()


def assert_same(actual: dict[str, Tensor], truth: dict[str, Tensor]) -> None:
    assert actual.keys() == truth.keys()
    for name, x in truth.items():
        assert torch.equal(actual[name], x), name


@both_kinds
def test_same_seed_same_bits_and_the_global_generator_is_left_alone(sizes: Sizes) -> None:
    ends = []
    torch.manual_seed(7)
    for noise in (0, 5):
        torch.rand(noise)
        before = torch.get_rng_state()
        learner = make_learner(sizes)
        metrics = [learner.update(batch(sizes)) for _ in range(3)]
        learner.act(
            Observation(torch.zeros(2, 2)),
            torch.zeros(2, sizes.action),
            learner.initial_state(2),
            episode_start=torch.ones(2, dtype=torch.bool),
            explore=True,
        )
        assert torch.equal(before, torch.get_rng_state())
        ends.append((learner.state_dict(), metrics[-1]))
    assert_same(ends[0][0], ends[1][0])
    assert_same(ends[0][1], ends[1][1])
    other = make_learner(sizes, seed=1).state_dict()
    start = make_learner(sizes).state_dict()
    assert not torch.equal(other["generator.acting"], start["generator.acting"])
    assert not torch.equal(
        other["actor.network.embedder.weight"], start["actor.network.embedder.weight"]
    )


@both_kinds
@pytest.mark.parametrize("updates", [0, 3])
def test_a_restored_learner_goes_on_bit_for_bit(sizes: Sizes, updates: int) -> None:
    def go_on(learner: Learner) -> tuple[dict[str, Tensor], Tensor]:
        state, start = learner.initial_state(3), torch.tensor([True, False, True])
        for i in range(2):
            learner.update(batch(sizes, seed=10 + i))
            action, state = learner.act(
                Observation(torch.ones(3, 2)), torch.zeros(3, sizes.action), state,
                episode_start=start, explore=True,
            )  # fmt: skip
        return learner.state_dict(), action

    learner = make_learner(sizes)
    for i in range(updates):
        learner.update(batch(sizes, seed=i))
    saved = learner.state_dict()
    truth, action = go_on(learner)
    assert all(isinstance(x, Tensor) for x in saved.values())

    other = make_learner(sizes, seed=4)
    other.update(batch(sizes))
    other.load_state_dict(saved)
    actual, its_action = go_on(other)
    assert_same(actual, truth)
    assert torch.equal(its_action, action)


def test_a_restore_keeps_the_optimizers_tensors_where_they_are() -> None:
    """A recorded graph knows their addresses."""
    learner = make_learner(DISCRETE)
    learner.update(batch(DISCRETE))
    saved = learner.state_dict()

    def places() -> list[int]:
        adam = learner.optimizer
        return [x.data_ptr() for x in (adam.values, adam._average, adam._square, adam._steps)]

    before = places()
    learner.update(batch(DISCRETE))
    learner.load_state_dict(saved)
    assert places() == before
    assert_same(learner.state_dict(), saved)


def test_a_generator_of_another_device_decides_a_new_seed() -> None:
    learner = make_learner(DISCRETE)
    foreign = torch.arange(16, dtype=torch.uint8)  # as long as a CUDA generator's state
    saved = learner.state_dict() | {"generator.acting": foreign}
    states = []
    for _ in range(2):
        learner.acting.manual_seed(0)
        learner.load_state_dict(saved)
        states.append(learner.acting.get_state())
    assert torch.equal(*states)
    other = learner.state_dict() | {"generator.acting": foreign.flip(0)}
    learner.load_state_dict(other)
    assert not torch.equal(learner.acting.get_state(), states[0])


def test_a_foreign_state_is_refused() -> None:
    learner = make_learner(DISCRETE)
    saved = learner.state_dict()
    with pytest.raises(ValueError, match="state_dict: got actress"):
        learner.load_state_dict(saved | {"actress.weight": torch.zeros(1)})
    with pytest.raises(RuntimeError, match="Missing key"):
        learner.load_state_dict({k: x for k, x in saved.items() if k != "actor.head.layers.0.bias"})
    with pytest.raises(ValueError, match="adam: got averages of 3 numbers, expected"):
        learner.load_state_dict(saved | {"adam.average": torch.zeros(3)})


@both_kinds
def test_metrics_are_scalars_on_the_device(sizes: Sizes) -> None:
    learner = make_learner(sizes)
    metrics = learner.update(batch(sizes))
    names = "actor_loss critic_loss ent_coef ent_coef_loss entropy q_mean q_max target_mean"
    expected = {f"train/{x}" for x in f"{names} grad_norm_actor grad_norm_critic".split()}
    assert metrics.keys() == expected
    for x in (*metrics.values(), *learner.diagnostics(batch(sizes)).values()):
        assert isinstance(x, Tensor)
        assert x.shape == ()
        assert not x.requires_grad
        assert x.isfinite()


@both_kinds
def test_gradient_norms_are_measured_and_clipped(sizes: Sizes) -> None:
    learner = make_learner(sizes, max_grad_norm=1e-3)
    metrics = learner.update(batch(sizes))
    for name in ("actor", "critic"):
        own = learner.optimizer.gradients[learner.optimizer.spans[name]]
        assert own.norm().item() == pytest.approx(1e-3, rel=1e-2)
        assert metrics[f"train/grad_norm_{name}"] > 1e-3
    free = make_learner(sizes)
    _, slopes = gradients(free, batch(sizes))
    free = make_learner(sizes)
    metrics = free.update(batch(sizes))
    squares = sum(x.square().sum().item() for n, x in slopes.items() if n.startswith("critic"))
    assert metrics["train/grad_norm_critic"].item() == pytest.approx(math.sqrt(squares), rel=1e-5)


@every_encoder
def test_diagnostics_show_beliefs_and_actions_and_change_nothing(encoder: str) -> None:
    learner = make_learner(DISCRETE, encoder)
    learner.update(batch(DISCRETE))
    before = learner.state_dict()
    actual = learner.diagnostics(batch(DISCRETE))
    assert_same(learner.state_dict(), before)
    shares = [actual[f"train/policy_action_{a}"].item() for a in range(3)]
    assert sum(shares) == pytest.approx(1.0)
    assert all(actual[f"train/q_action_{a}"].isfinite() for a in range(3))
    kalman = {x for x in actual if "gain" in x or "variance" in x}
    if "kf" in encoder:
        assert {"train/gain_mean", "train/posterior_variance_mean"} <= kalman
        assert all(actual[x] > 0 for x in kalman)
        assert actual["train/gain_mean"] < 1
    else:
        assert not kalman


def test_mean_q_per_action_is_the_mean_over_valid_steps() -> None:
    learner, data = make_learner(DISCRETE), batch(DISCRETE)
    with torch.no_grad():
        for weight in learner.critic.head.weights:
            weight.zero_()
        learner.critic.head.biases[-1].copy_(torch.tensor([[[1.0, 2.0, 3.0]], [[3.0, 4.0, 5.0]]]))
    actual = learner.diagnostics(data)
    assert [actual[f"train/q_action_{a}"].item() for a in range(3)] == pytest.approx(
        [2.0, 3.0, 4.0]
    )


def test_exploring_draws_and_not_exploring_does_not() -> None:
    for sizes in (DISCRETE, CONTINUOUS):
        learner = make_learner(sizes)
        actions = {True: set(), False: set()}
        for explore, samples in actions.items():
            for _ in range(20):
                action, _ = learner.act(
                    Observation(torch.ones(1, 2)), torch.zeros(1, sizes.action),
                    learner.initial_state(1),
                    episode_start=torch.ones(1, dtype=torch.bool), explore=explore,
                )  # fmt: skip
                assert action.shape == ((1,) if sizes.discrete else (1, 2))
                assert learner.action_as_input(action).shape == (1, sizes.action)
                samples.add(tuple(action.flatten().tolist()))
        assert len(actions[False]) == 1
        assert len(actions[True]) > 1


def test_dropout_works_in_updates_only() -> None:
    settings = {"dropout": 0.5, "feedforward": 8}
    learner = make_learner(CONTINUOUS, "transformer", encoder_settings=settings)
    learner.update(batch(CONTINUOUS))
    start = torch.ones(1, dtype=torch.bool)
    first, second = (
        learner.act(
            Observation(torch.ones(1, 2)), torch.zeros(1, 2), learner.initial_state(1),
            episode_start=start, explore=False,
        )[0]
        for _ in range(2)
    )  # fmt: skip
    assert torch.equal(first, second)


def test_the_seed_decides_what_is_dropped() -> None:
    settings = {"dropout": 0.5, "feedforward": 8}
    learners = {}
    for disturbance in (1, 2):
        torch.manual_seed(disturbance)
        one = make_learner(CONTINUOUS, "transformer", encoder_settings=settings)
        before = torch.get_rng_state()
        for _ in range(3):
            one.update(batch(CONTINUOUS))
        assert torch.equal(torch.get_rng_state(), before)
        learners[disturbance] = one
    same(learners[1], learners[2])
    twin = copy.deepcopy(learners[1])  # goes on with the same draws, from a generator of its own
    for one in (learners[1], twin):
        one.update(batch(CONTINUOUS))
    same(learners[1], twin)
    undropped = make_learner(CONTINUOUS, "transformer", encoder_settings={"feedforward": 8})
    undropped.update(batch(CONTINUOUS))
    first = make_learner(CONTINUOUS, "transformer", encoder_settings=settings)
    first.update(batch(CONTINUOUS))
    assert not torch.equal(*(x.actor.state_dict()[WIDEN] for x in (undropped, first)))


def same(one: Learner, other: Learner) -> None:
    theirs = other.state_dict()
    for name, x in one.state_dict().items():
        assert torch.equal(x, theirs[name]), name


WIDEN = "network.encoder.blocks.0.widen.weight"
FAULTS = """
import resource, torch
from kalmanac._ops.device import keep_freed_memory
keep_freed_memory(torch.device("cpu"))
def work():
    return [torch.ones(2**21) for _ in range(3)]  # 3 · 2048 pages
work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    work()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a lesson for glibc alone")
def test_freed_memory_is_not_asked_for_again() -> None:
    call = [sys.executable, "-c", FAULTS]
    faults = int(subprocess.run(call, capture_output=True, check=True, text=True).stdout)
    assert faults < 20 * 3 * 2048 / 5
