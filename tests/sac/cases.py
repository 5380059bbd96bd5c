"""Small agents away from their initial values, and small batches."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from kalmanac._encoders.registry import ENCODERS, encoder_settings
from kalmanac._observation import Observation, Sizes
from kalmanac._replay.sampling import Batch
from kalmanac._sac.config import AgentSettings
from kalmanac._sac.learner import Learner

DISCRETE = Sizes(observation=2, action=3, discrete=True, privileged=2, observed=True)
CONTINUOUS = Sizes(observation=2, action=2, discrete=False, privileged=2, observed=True)
CONTEXT = 6

every_encoder = pytest.mark.parametrize("encoder", ENCODERS)
both_kinds = pytest.mark.parametrize("sizes", [DISCRETE, CONTINUOUS], ids=["discrete", "gaussian"])


def make_learner(
    sizes: Sizes, encoder: str = "vssm+kf", *, seed: int = 0, **settings: Any
) -> Learner:
    """A small agent in which every part of the history matters."""
    known = encoder_settings(encoder)
    small = {k: v for k, v in {"d_state": 4, "feedforward": 8}.items() if k in known}
    defaults: dict[str, Any] = {
        "encoder_settings": small,
        "embedding": 4,
        "context_length": CONTEXT,
        "actor_hidden": (7,),
        "critic_hidden": (5, 6),
    }
    learner = Learner(AgentSettings(encoder=encoder, **defaults | settings), sizes, seed=seed)
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for module in (learner.actor, learner.critic, learner.target):
            for name, p in module.named_parameters():
                p.add_(0.2 * torch.randn(p.shape, generator=generator))
                if name.endswith("raw_step_size"):  # at the start an input hardly moves a vSSM
                    p.fill_(-1.0)
    return learner


def actions(sizes: Sizes, *shape: int, generator: torch.Generator) -> Tensor:
    """(*shape, A), one-hot if discrete."""
    if sizes.discrete:
        codes = torch.randint(sizes.action, shape, generator=generator)
        return F.one_hot(codes, sizes.action).float()
    return 2 * torch.rand(*shape, sizes.action, generator=generator) - 1


def batch(sizes: Sizes, transitions: Sequence[int] = (6, 2, 1, 3), *, seed: int = 0) -> Batch:
    """One window a row, with these numbers of transitions; missing readings, a true state too."""
    g = torch.Generator().manual_seed(seed)
    rows, steps = len(transitions), max(transitions)
    lengths = torch.tensor(transitions) + 1
    token = torch.arange(steps + 1) < lengths[:, None]
    valid = token[:, 1:]
    previous = actions(sizes, rows, steps + 1, generator=g)
    previous[:, 0] = 0
    data = Batch(
        observation=Observation(
            torch.randn(rows, steps + 1, sizes.observation, generator=g) * token[..., None]
        ),
        previous_action=previous * token[..., None],
        action=actions(sizes, rows, steps, generator=g) * valid[..., None],
        reward=torch.randn(rows, steps, generator=g) * valid,
        terminated=(torch.rand(rows, steps, generator=g) < 0.3) & valid,
        valid=valid,
        lengths=lengths,
        episode=torch.arange(rows)[:, None] * valid,
    )
    return observing(
        data,
        privileged=torch.randn(rows, steps + 1, sizes.privileged, generator=g) * token[..., None],
        observed=(torch.rand(rows, steps + 1, generator=g) < 0.8) & token,
    )


def observing(data: Batch, **parts: Tensor | None) -> Batch:
    """The batch with other parts of its observations."""
    return data._replace(observation=data.observation._replace(**parts))


def packed(windows: Batch, rows: Sequence[Sequence[int]]) -> Batch:
    """The windows of a padded batch, those named in each row one after another."""
    width = windows.previous_action.shape[1]
    assert all(sum(int(windows.lengths[w]) for w in row) <= width for row in rows)

    def empty(x: Tensor) -> Tensor:
        return x.new_zeros(len(rows), *x.shape[1:])

    result = windows._replace(reset=torch.zeros(len(windows.lengths), width)).map(empty)
    result = result._replace(reset=result.reset.bool())
    tokens = [
        (result.previous_action, windows.previous_action),
        *((getattr(result.observation, k), x) for k, x in windows.observation.parts().items()),
    ]
    names = ("action", "reward", "terminated", "valid")
    steps = [(getattr(result, name), getattr(windows, name)) for name in names]
    for row, members in enumerate(rows):
        at = 0
        for w in members:
            n = int(windows.lengths[w])
            result.reset[row, at] = True
            for to, x in tokens:
                to[row, at : at + n] = x[w, :n]
            for to, x in steps:
                to[row, at : at + n - 1] = x[w, : n - 1]
            at += n
        result.lengths[row] = at
    return result


def gradients(learner: Learner, data: Batch) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Losses and the gradients of their sum, by name."""
    forget_gradients(learner)
    losses, _ = learner.losses_of(data)
    sum(losses.values(), torch.zeros(())).backward()
    named = [*learner.actor.named_parameters("actor"), *learner.critic.named_parameters("critic")]
    return losses, {name: p.grad.clone() for name, p in named if p.grad is not None}


def forget_gradients(learner: Learner) -> None:
    """No parameter has a gradient."""
    for p in (*learner.actor.parameters(), *learner.critic.parameters(), learner.log_alpha):
        p.grad = None
