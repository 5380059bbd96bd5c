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

# Relative, by device. The reference is our update in float32; a peer's products are TF32 on a GPU.
# Adam's first steps go by the signs of gradients: rounding turns those that are nearly zero.
LOSSES = {"cpu": 1e-4, "cuda": 1e-3}
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


def disagreement(
    peer: Any, native: Any, learners: Sequence[Learner], batches: Sequence[Batch]
) -> dict[str, float]:
    """How far a peer that began as the learners leads from them, relative to theirs.

    The largest distance of each loss over the first updates, and by part the distance of the
    parameters behind them by how far these have moved; of the seed that is farthest.
    """
    before = [learner.state_dict() for learner in learners]
    ours, theirs = list[list[list[float]]](), list[list[list[float]]]()
    names: list[str] = []
    for _ in range(UPDATES):
        noise = [noise_of(*pair) for pair in zip(learners, batches, strict=True)]
        told = {k: [float(x) for x in values] for k, values in peer.update(native, noise).items()}
        ours.append([])
        for learner, batch, given in zip(learners, batches, noise, strict=True):
            drawn = learner.learning.get_state()
            with drawing(given):
                own = learner.losses_of(batch)[0]
                learner.learning.set_state(drawn)
                learner.update(batch)
            names = list(own)
            ours[-1].append([x.item() for x in own.values()])
        theirs.append([[told[name][i] for name in names] for i in range(len(learners))])
    distance, size = torch.tensor(theirs) - torch.tensor(ours), torch.tensor(ours).abs()
    # log α starts at 0, and so does its loss: equal is equal
    off = torch.where(distance == 0, 0, distance.abs() / size).amax((0, 1))
    found = dict(zip(names, off.tolist(), strict=True))
    moved = peer.parameters()
    parts = ("actor.", "critic.", "target.", *["log_alpha"] * learners[0].learns_temperature)
    for part in parts:
        found[f"moves of {part.strip('.')}"] = max(
            _way_off(part, start, learner, {k: x[i] for k, x in moved.items()})
            for i, (start, learner) in enumerate(zip(before, learners, strict=True))
        )
    return found


def refusal(off: Mapping[str, float], device: torch.device) -> str | None:
    """Why a peer with this disagreement is not to be timed."""
    for name, x in off.items():
        most = (MOVES if name.startswith("moves") else LOSSES)[device.type]
        if not x <= most:  # a NaN is refused too
            return f"REFUSED, {name}: {x:.1e} off, expected {most:.0e}"
    return None


def _way_off(
    part: str, before: Mapping[str, Tensor], learner: Learner, moved: Mapping[str, Any]
) -> float:
    after = learner.state_dict()
    names = [name for name in moved if name.startswith(part)]
    there = {k: x if isinstance(x, Tensor) else torch.tensor(x) for k, x in moved.items()}
    apart = _norm([after[name] - there[name].to(learner.device) for name in names])
    return apart / _norm([after[name] - before[name] for name in names])


def _norm(parts: Sequence[Tensor]) -> float:
    return torch.cat([x.flatten() for x in parts]).norm().item()


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
