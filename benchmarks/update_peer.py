"""What peers of the update share: its fixed numbers, its noise, and how far they lead from it.

A peer begins with the parameters of one learner or of several, which it updates side by side. Its
`update` returns each loss by name, (seeds,), and its `parameters` are those of every seed by the
names of `Learner.state_dict`, (seeds, …).
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor

from kalmanac._observation import Sizes
from kalmanac._replay.sampling import Batch
from kalmanac._sac import distributions
from kalmanac._sac.learner import Learner

FILTER = "network.encoder.stack.layers.0."
UPDATES = 3  # that are compared; from the second on, the target and log α have left their start

# Relative, by device. The reference is in float32; a peer's products are TF32 on a GPU.
# Adam's first steps go by the signs of gradients: rounding turns those that are nearly zero.
LOSSES = {"cpu": 1e-4, "cuda": 5e-3}
MOVES = {"cpu": 1e-3, "cuda": 1e-1}


class Rules(NamedTuple):
    """The numbers that are not learned."""

    learning_rate: float
    gamma: float
    tau: float
    entropy_goal: float | None  # None: the temperature is fixed
    r_min: float
    q_min: float
    betas: tuple[float, ...]  # Adam's
    discrete: bool
    log_std_range: tuple[float, float]


def rules_of(learner: Learner) -> Rules:
    """Those of a learner whose update is all written in the peers."""
    _check(learner)
    own = learner.settings
    goal = learner.entropy_goal if learner.learns_temperature else None
    layer: Any = None
    if own.encoder != "memoryless":
        layer = learner.actor.get_submodule(FILTER[:-1])
    return Rules(
        own.learning_rate, own.gamma, own.tau, goal, getattr(layer, "r_min", 0.0),
        getattr(layer, "q_min", 0.0), own.adam_betas, learner.sizes.discrete, own.log_std_range,
    )  # fmt: skip


def learned_of(learner: Learner) -> dict[str, Tensor]:
    """Parameters of actor and critic, and log α, by name."""
    parts = {"actor": learner.actor, "critic": learner.critic}
    found = {f"{part}.{k}": x for part, own in parts.items() for k, x in own.named_parameters()}
    return found | {"log_alpha": learner.log_alpha}


def target_of(learner: Learner) -> dict[str, Tensor]:
    """The target's, with the names of the critic's."""
    return {f"critic.{k}": x for k, x in learner.target.named_parameters()}


def arrays_of(batch: Batch) -> dict[str, Tensor]:
    """A batch's tensors by name."""
    tensors = batch._asdict() | batch.observation.to_stored()
    for name in ("reset", "observed"):
        if tensors.get(name) is not None:
            raise ValueError(f"batch.{name}: got a tensor, expected None: one window a row")
    return {name: x for name, x in tensors.items() if isinstance(x, Tensor)}


def noise_of(learner: Learner, batch: Batch) -> Tensor | None:
    """What kernels draw in the next update, (2, B, T, A): at next steps and here; None: nothing."""
    if learner.sizes.discrete:
        return None
    draw = torch.Generator(learner.device)
    draw.set_state(learner.learning.get_state())
    return batch.action.new_empty(2, *batch.action.shape).normal_(generator=draw)


@contextmanager
def drawing(noise: Tensor | None) -> Iterator[None]:
    """Plain operations draw this noise too, in the order of an update."""
    given = itertools.cycle([] if noise is None else noise)
    with patch.object(distributions, "_normal", lambda like, generator: next(given)):
        yield


class Ours:
    """Learners with a batch each, behind the methods of a peer."""

    def __init__(self, learners: Sequence[Learner], batches: Sequence[Batch]) -> None:
        self.learners, self.batches = learners, batches

    def update(self, native: Any, noise: Sequence[Tensor | None]) -> dict[str, Tensor]:
        """One update of each, eager; returns the losses before it."""
        found: list[dict[str, Tensor]] = []
        for learner, batch, given in zip(self.learners, self.batches, noise, strict=True):
            drawn = learner.learning.get_state()
            with drawing(given):
                found.append(learner.losses_of(batch)[0])
                learner.learning.set_state(drawn)
                learner.update(batch)
        return {k: torch.stack([own[k].detach() for own in found]) for k in found[0]}

    def parameters(self) -> dict[str, Tensor]:
        """Actor, critic, target and log α, (seeds, …)."""
        states = [learner.state_dict() for learner in self.learners]
        wanted = [k for k in states[0] if k.startswith(("actor.", "critic.", "target.", "log_"))]
        return {k: torch.stack([state[k] for state in states]) for k in wanted}


def disagreement(
    peer: Any, reference: Any, native: Any, learners: Sequence[Learner], batches: Sequence[Batch]
) -> dict[str, float]:
    """How far a peer leads from a reference that began as it did, relative to the reference's.

    The largest distance of each loss over the first updates, and by part the distance of the
    parameters behind them by how far these have moved; of the seed that is farthest.
    """
    before = {k: x.clone() for k, x in reference.parameters().items()}
    off: dict[str, float] = {}
    for _ in range(UPDATES):
        noise = [noise_of(*pair) for pair in zip(learners, batches, strict=True)]
        theirs, ours = peer.update(native, noise), reference.update(native, noise)
        for name, right in ours.items():
            came = torch.tensor([float(x) for x in theirs[name]])
            apart = (came - right.cpu()).abs()
            # log α starts at 0, and so does its loss: equal is equal
            worst = torch.where(apart == 0, 0, apart / right.cpu().abs()).max().item()
            off[name] = max(off.get(name, 0.0), worst) if worst == worst else worst
    after, moved = reference.parameters(), peer.parameters()
    for part in ("actor.", "critic.", "target.", *["log_alpha"] * learners[0].learns_temperature):
        names = [name for name in before if name.startswith(part)]
        there = {k: x if isinstance(x := moved[k], Tensor) else torch.tensor(x) for k in names}
        apart = _norms([after[k] - there[k].to(after[k].device) for k in names])
        way = _norms([after[k] - before[k] for k in names])
        off[f"moves of {part.strip('.')}"] = (apart / way).max().item()
    return off


def refusal(off: Mapping[str, float], device: torch.device) -> str | None:
    """Why a peer with this disagreement is not to be timed."""
    for name, x in off.items():
        most = (MOVES if name.startswith("moves") else LOSSES)[device.type]
        if not x <= most:  # a NaN is refused too
            return f"REFUSED, {name}: {x:.1e} off, expected {most:.0e}"
    return None


def _norms(parts: Sequence[Tensor]) -> Tensor:
    """Of each seed, over all parts (seeds, …)."""
    return torch.cat([x.flatten(1) if x.dim() > 1 else x[:, None] for x in parts], 1).norm(dim=1)


def _check(learner: Learner) -> None:
    """What is written in the peers is all of what this learner does."""
    if learner.settings.encoder not in ("vssm+kf", "memoryless"):
        raise ValueError(
            f"encoder: got {learner.settings.encoder!r}, expected 'vssm+kf' or 'memoryless'"
        )
    for name, expected in {
        "privileged_critic": False, "actor_objective": "value", "max_grad_norm": None,
        "previous_action": True, "entropy_in_target": True,
    }.items():  # fmt: skip
        came = getattr(learner.settings, name)
        if came != expected:
            raise ValueError(f"{name}: got {came!r}, expected {expected!r}")
    known = ("d_state", "norm", "raw_step_size", "process_noise", "r_min", "q_min")
    for name in learner.settings.encoder_settings:
        if name not in known:
            raise ValueError(f"encoder_settings: got {name}, expected {', '.join(known)}")
    plain = Sizes(learner.sizes.observation, learner.sizes.action, learner.sizes.discrete)
    if learner.sizes != plain:
        raise ValueError(f"sizes: got {learner.sizes}, expected {plain}")
