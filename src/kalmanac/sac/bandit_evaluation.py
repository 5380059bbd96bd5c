"""Evaluation episodes of Best Arm on the agent's own device: all at once, many steps at a time.

One step of acting and of the bandits is some fifty small kernels. On a GPU `STEPS` of them are one
recorded graph, and the host looks only once for each such piece whether all episodes are over.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kalmanac.agent.capture import Replayed, can_record
from kalmanac.envs.best_arm_rules import Rules
from kalmanac.observation import Observation
from kalmanac.ops.transfer import sent
from kalmanac.rollout import EachStep, Evaluation
from kalmanac.rollout.bandits import BanditRules, Bandits
from kalmanac.sac.acting import Policy, PolicyState

STEPS = 25


class PlayedBandits(NamedTuple):
    """The episodes of one set of rules."""

    episodes: Evaluation
    last_actions: NDArray[np.int64]  # (k,); all before them were questions


class BanditEvaluation:
    """Plays `episodes` bandits under each of `rules` with the policy's most likely actions.

    Args:
        privileged: the agent sees the posterior in place of the samples (Oracle).
    """

    def __init__(
        self, policy: Policy, rules: Sequence[Rules], episodes: int, *, privileged: bool = False
    ) -> None:
        self.policy, self.episodes, self.privileged = policy, episodes, privileged
        self.bandits = BanditRules(rules, episodes, policy.device)
        self._kind = type(policy.start(1).encoder)
        self._some_steps: Callable[[list[Tensor]], list[Tensor]] = self._play
        if can_record(policy.device) and policy.graph:
            self._some_steps = Replayed(self._play, [], policy.device)

    def __call__(
        self, draws: Sequence[np.random.Generator], each_step: EachStep | None = None
    ) -> list[PlayedBandits]:
        """Episodes under each of the rules, with random numbers of a generator for each.

        They are drawn on the host, so that they are the same for every device. `each_step` is
        called before every `STEPS` steps; what it raises ends the evaluation.
        """
        device, many = self.policy.device, self.episodes
        if self.policy.normaliser is not None:
            self.policy.normaliser.settle(device)

        def normal(steps: int) -> NDArray[np.float64]:
            return np.concatenate([rng.standard_normal((steps, many)) for rng in draws], axis=1)

        uniform = np.concatenate([rng.random((2, many)) for rng in draws], axis=1)
        first = sent([torch.from_numpy(uniform), torch.from_numpy(normal(1)[0])], device)
        bandits, memory = self.bandits.begin(*first), self.policy.start(self.bandits.n)
        held = [*bandits, memory.previous_action, *memory.encoder]
        steps, over = 0, 0
        while over < self.bandits.n:
            if each_step is not None:
                each_step(steps, over, self.bandits.n)
            (noise,) = sent([torch.from_numpy(normal(STEPS))], device)
            held = self._some_steps([noise, *held])
            over, steps = int(Bandits(*held[: len(bandits)]).over.sum().item()), steps + STEPS
        return self._found(Bandits(*held[: len(bandits)]))

    @torch.no_grad()
    def _play(self, given: list[Tensor]) -> list[Tensor]:
        """As many steps as there are rows of noise (steps, n), the first of `given`."""
        noise, *held = given
        cut = len(Bandits._fields)
        bandits, previous, encoder = Bandits(*held[:cut]), held[cut], self._kind(*held[cut + 1 :])
        memory = PolicyState(encoder, previous)
        for now in noise:
            observation = Observation(bandits.observation(privileged=self.privileged))
            action, memory = self.policy.choose(
                observation, memory, episode_start=bandits.length == 0
            )
            bandits = self.bandits.step(bandits, action, now)
        return [*bandits, memory.previous_action, *memory.encoder]

    def _found(self, bandits: Bandits) -> list[PlayedBandits]:
        def of_each(x: Tensor) -> list[NDArray[np.generic]]:
            return list(x.cpu().numpy().reshape(-1, self.episodes))

        parts = (bandits.reward, bandits.length, bandits.won, bandits.last_action)
        return [
            PlayedBandits(Evaluation(rewards, lengths, wins), last)
            for rewards, lengths, wins, last in zip(*map(of_each, parts), strict=True)
        ]
