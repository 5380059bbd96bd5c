"""Acting, padded rows and packed rows: the same history gives the same numbers."""

import math

import pytest
import torch
from torch import Tensor

from kalmanac._encoders import contract
from kalmanac._observation import Observation, Sizes
from kalmanac._replay.sampling import Batch
from kalmanac._sac import networks
from kalmanac._sac.networks import read_history
from tests.sac.cases import (
    CONTINUOUS,
    DISCRETE,
    actions,
    batch,
    both_kinds,
    every_encoder,
    gradients,
    make_learner,
    observing,
    packed,
)


@every_encoder
def test_acting_step_by_step_equals_the_training_pass(encoder: str) -> None:
    learner = make_learner(CONTINUOUS, encoder)
    n, steps = 3, 9  # longer than the Transformer's window
    starts = [[0], [0, 4], [0, 1, 7]]
    g = torch.Generator().manual_seed(3)
    observation = torch.randn(n, steps, 2, generator=g)
    previous = actions(CONTINUOUS, n, steps, generator=g)  # not zero at starts: act must see to it
    observed = torch.rand(n, steps, generator=g) < 0.7
    begun = torch.zeros(n, steps, dtype=torch.bool)
    for row, at in enumerate(starts):
        begun[row, at] = True

    state, acted = learner.initial_state(n), []
    for t in range(steps):
        action, state = learner.act(
            Observation(observation[:, t], observed=observed[:, t]),
            previous[:, t],
            state,
            episode_start=begun[:, t],
            explore=False,
        )
        acted.append(action)
    actual = torch.stack(acted, 1)

    for row, at in enumerate(starts):
        for begin, end in zip(at, [*at[1:], steps], strict=True):
            own = slice(begin, end)
            before = previous[row, own].clone()
            before[0] = 0
            episode = batch(CONTINUOUS, (end - begin - 1,))._replace(
                observation=Observation(
                    observation[row : row + 1, own], observed=observed[row : row + 1, own]
                ),
                previous_action=before[None],
            )
            with torch.no_grad():
                trained = learner.actor.distribution.mode(learner.actor(read_history(episode)))[0]
            torch.testing.assert_close(actual[row, own], trained, rtol=1e-5, atol=1e-5)
    if encoder != "memoryless":
        apart = (actual[0, 4:] - actual[0, :5]).abs().max()
        assert apart > 1e-3, "the policy depends on what it is shown"


@every_encoder
def test_packed_rows_give_the_losses_and_gradients_of_padded_rows(encoder: str) -> None:
    learner = make_learner(DISCRETE, encoder, privileged_critic=True)
    padded = batch(DISCRETE, (6, 2, 1, 3))
    losses, slopes = gradients(learner, padded)
    for rows in ([[0], [1, 3], [2]], [[3, 1], [0], [2]]):
        other_losses, other_slopes = gradients(learner, packed(padded, rows))
        for name, x in losses.items():
            torch.testing.assert_close(other_losses[name], x, rtol=1e-5, atol=1e-6)
        assert slopes.keys() == other_slopes.keys()
        for name, x in slopes.items():
            torch.testing.assert_close(other_slopes[name], x, rtol=1e-4, atol=1e-5)


@every_encoder
@both_kinds
def test_garbage_on_pads_changes_nothing(encoder: str, sizes: Sizes) -> None:
    learner = make_learner(sizes, encoder, privileged_critic=True)
    clean = batch(sizes)
    token = torch.arange(7) < clean.lengths[:, None]
    generator = learner.learning.get_state()
    losses, slopes = gradients(learner, clean)

    def dirty(x: Tensor, real: Tensor) -> Tensor:
        values = torch.tensor([math.nan, math.inf, -1e30]).repeat(x.numel())[: x.numel()]
        return torch.where(real.view(*real.shape, *[1] * (x.dim() - 2)), x, values.view_as(x))

    observation = clean.observation
    assert observation.privileged is not None
    assert observation.observed is not None
    soiled = clean._replace(
        observation=Observation(
            vector=dirty(observation.vector, token),
            observed=observation.observed | ~token,
            privileged=dirty(observation.privileged, token),
        ),
        previous_action=dirty(clean.previous_action, token),
        action=dirty(clean.action, clean.valid),
        reward=dirty(clean.reward, clean.valid),
        terminated=clean.terminated | ~clean.valid,
    )
    learner.learning.set_state(generator)
    other_losses, other_slopes = gradients(learner, soiled)
    for name, x in losses.items():
        assert torch.equal(other_losses[name], x), name
    for name, x in slopes.items():
        assert x.isfinite().all()
        assert torch.equal(other_slopes[name], x), name


@every_encoder
@both_kinds
def test_finite_pads_that_cost_nothing_change_nothing(
    encoder: str, sizes: Sizes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU, which computes them like steps."""
    for module in (networks, contract):
        monkeypatch.setattr(module, "pads_are_free", lambda x: True)
    learner, clean = make_learner(sizes, encoder), batch(sizes)
    pads = (torch.arange(7) >= clean.lengths[:, None])[..., None]
    vector = clean.observation.vector.masked_fill(pads, 0.7)
    soiled = clean._replace(
        observation=clean.observation._replace(vector=vector),
        previous_action=clean.previous_action.masked_fill(pads, -0.3),
    )
    generator = learner.learning.get_state()
    losses, slopes = gradients(learner, clean)
    learner.learning.set_state(generator)
    other_losses, other_slopes = gradients(learner, soiled)
    for name, x in losses.items():
        assert torch.equal(other_losses[name], x), name
    for name, x in slopes.items():
        assert torch.equal(other_slopes[name], x), name


@both_kinds
def test_pads_and_steps_that_do_not_count_have_no_gradient(sizes: Sizes) -> None:
    learner = make_learner(sizes)
    data = batch(sizes)
    reward, vector = data.reward, data.observation.vector.clone().requires_grad_()
    burnt = data.valid.clone()
    burnt[0, :2] = False  # a burn-in: read, but not learned from
    losses, _ = learner.losses_of(observing(data, vector=vector)._replace(valid=burnt))
    sum(losses.values(), torch.zeros(())).backward()
    assert vector.grad is not None
    token = torch.arange(7) < data.lengths[:, None]
    assert not vector.grad[~token].any()
    assert vector.grad[0, 0].any(), "a burn-in fills the memory"

    def critic_loss(x: Tensor, valid: Tensor) -> Tensor:
        learner.learning.manual_seed(0)
        return learner.losses_of(data._replace(reward=x, valid=valid))[0]["critic_loss"]

    moved = reward.clone()
    moved[0, :2] += 5
    assert torch.equal(critic_loss(reward, burnt), critic_loss(moved, burnt))
    assert not torch.equal(critic_loss(reward, data.valid), critic_loss(moved, data.valid))


@pytest.mark.parametrize("transitions", [(1,), (1, 1, 1)])
@both_kinds
def test_episodes_of_one_step_are_learned_from(sizes: Sizes, transitions: tuple[int, ...]) -> None:
    metrics = make_learner(sizes).update(batch(sizes, transitions))
    assert all(x.isfinite() for x in metrics.values())


def test_batches_of_another_shape_are_refused() -> None:
    learner, data = make_learner(DISCRETE), batch(DISCRETE)
    wrong: list[tuple[str, Batch]] = [
        ("observation.vector", observing(data, vector=data.observation.vector[..., :1])),
        ("action", data._replace(action=data.action[:, :-1])),
        ("lengths", data._replace(lengths=data.lengths[:-1])),
    ]
    for name, other in wrong:
        with pytest.raises(ValueError, match=f"batch.{name}: got shape"):
            learner.update(other)
    with pytest.raises(ValueError, match="previous_action: got shape"):
        learner.act(
            Observation(torch.zeros(1, 2)),
            torch.zeros(1, 1),
            learner.initial_state(1),
            episode_start=torch.ones(1, dtype=torch.bool),
            explore=True,
        )
