"""Updates from a replay alone: no environment steps, and perhaps there is none."""

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Generator

from kalmanac._ops.dispatch import packs_rows
from kalmanac._ops.graphed_call import can_record
from kalmanac._replay.buffer import Replay
from kalmanac._replay.sampling import Batch
from kalmanac._sac.callbacks import Callbacks
from kalmanac._sac.config import AgentSettings, Pretrained
from kalmanac._sac.cuda_graph import GraphedUpdates, Work
from kalmanac._sac.data_update import trusted
from kalmanac._sac.learner import Metrics
from kalmanac._sac.policy import Policy

if TYPE_CHECKING:
    from kalmanac._sac.recurrent_sac import RecurrentSAC


def sample_batch(
    replay: Replay, settings: AgentSettings, policy: Policy, generator: Generator
) -> Batch:
    """A batch by the settings' rules, on the policy's scales of observations and rewards."""
    batch = replay.sample(
        settings.batch_size,
        settings.context_length,
        generator=generator,
        rule=settings.drawing,
        burn_in=settings.burn_in,
        true_previous_action=settings.true_previous_action,
        previous_reward=settings.previous_reward,
        elapsed=settings.critic_clock,
        packed=packs_rows(policy.device),
    )
    for scale in policy.scales:
        batch = scale.batch(batch)
    return batch


class Pretraining(Work):
    """Updates of a policy's learner from a replay that stays as it is.

    The first half of them, those of earlier calls counted, copy, whatever the weight: a critic that
    knows little yet has small advantages, so that much of them comes true, and how much will when
    it has learned its data is known only then. Where that is too little, all is behavior cloning,
    to the last bit. `reached` is the weight of the last one.

    Args:
        near: the weight of staying near the replay's actions (`Learner.update`).
        seed: decides the batches.
    """

    def __init__(
        self, policy: Policy, settings: AgentSettings, replay: Replay, *, near: float,
        seed: Sequence[int],
    ) -> None:  # fmt: skip
        self.policy, self.settings, self.replay = policy, settings, replay
        self.near, self.tf32 = near, settings.tf32
        word = int(np.random.SeedSequence(seed).generate_state(1)[0])
        self._sampling = torch.Generator(policy.device).manual_seed(word)
        self._near = torch.ones((), device=policy.device)  # where recorded updates read it
        self.reached = near
        self._graphed: GraphedUpdates | None = None
        if can_record(policy.device):
            self._graphed = GraphedUpdates([self], policy.device, record=settings.graph)

    def make(self, updates: int, model: "RecurrentSAC", callbacks: Callbacks) -> None:
        """Make and count so many updates of `model`, unless a callback ends it before.

        `learner.pretrained` changes with the first of them.
        """
        learner = self.policy.learner
        before = learner.pretrained.updates
        callbacks.on_start(model)
        try:
            for done in range(before, before + updates):
                self.reached = 1.0 if 2 * done < before + updates else self.near
                self._near.fill_(self.reached)
                metrics = self.update()
                model.num_updates += 1
                learner.pretrained = Pretrained(  # what is saved on the way has copied
                    1.0 if self.near else 0.0, model.num_timesteps, self.replay.steps,
                    updates=done + 1,
                )  # fmt: skip
                callbacks.on_update(model, metrics)
                if not callbacks.on_step(model):
                    break
        finally:
            callbacks.on_end(model)
        if updates:
            moves = float(trusted(1 - self.reached, learner.trust))
            learner.pretrained = learner.pretrained._replace(
                near_data=self.near and 1 - moves, trust=float(learner.trust)
            )

    def update(self) -> Metrics:
        """Sample a batch and learn from it; on CUDA, as a replayed graph unless settings say no."""
        return self.run() if self._graphed is None else self._graphed()[0]

    def prepare(self) -> Hashable:
        """Bring what batches are sampled from up to date on the device, and return its places."""
        self.policy.settle()
        return self.replay.places()

    def generators(self) -> Sequence[Generator]:
        """Return those of sampling and of learning."""
        return [self._sampling, self.policy.learner.learning]

    def run(self) -> Metrics:
        """Sample a batch and learn from it, eagerly."""
        batch = sample_batch(self.replay, self.settings, self.policy, self._sampling)
        near = self._near if 0 < self.near < 1 else self.near or None
        return self.policy.learner.update(batch, near=near)
