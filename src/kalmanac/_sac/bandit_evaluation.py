"""Evaluation episodes of Best Arm on the agent's own device: all at once, many steps at a time.

The rules are those of `kalmanac._envs.best_arm`; random numbers come in from the host, so that the
same ones give the episodes that the environments play. One step of acting and of the bandits is
some fifty small kernels. On a GPU `STEPS` of them are one recorded graph, and the host looks only
once for each such piece whether all episodes are over.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kalmanac._envs.best_arm_rules import (
    ASK,
    Bandits,
    Rules,
    ask,
    begin,
    between,
    outcome,
    posterior_of,
)
from kalmanac._observation import Observation
from kalmanac._ops.graphed_call import GraphedCall, can_record
from kalmanac._ops.transfer import sent
from kalmanac._sac.evaluation import EachStep, Evaluation
from kalmanac._sac.policy import Policy, PolicyState

STEPS = 25


class Tally(NamedTuple):
    """What n episodes have come to. All (n,)."""

    reward: Tensor  # float64: undiscounted return so far
    gained: Tensor  # float64: by the last step
    length: Tensor  # int64: steps
    last_action: Tensor  # int64
    won: Tensor  # bool
    over: Tensor  # bool: what happens from now on does not count


class BanditRules:
    """The rules of n bandits, each with those of one of `rules`: `many` of each, in their order."""

    def __init__(self, rules: Sequence[Rules], many: int, device: torch.device) -> None:
        def each(values: list[NDArray[np.float64]]) -> Tensor:
            return torch.from_numpy(np.concatenate(values)).to(device)

        self.n = many * len(rules)
        bounds = [one.bounds((many,)) for one in rules]
        self._low, self._high = (
            {name: each([b[name][side] for b in bounds]) for name in ("mu", "sigma")}
            for side in (0, 1)
        )
        self._pays = {
            name: each([np.full(many, getattr(one, name), np.float64) for one in rules])
            for name in ("horizon", "cost", "win", "loss")
        }

    def begin(self, uniform: Tensor, noise: Tensor) -> tuple[Bandits, Tally]:
        """New bandits from numbers in [0, 1), (2, n), and their first samples from noise (n,)."""
        mu = between(self._low["mu"], self._high["mu"], uniform[0])
        sigma = between(self._low["sigma"], self._high["sigma"], uniform[1])
        never = torch.zeros_like(mu, dtype=torch.bool)
        steps = torch.zeros_like(mu, dtype=torch.int64)
        nothing = Tally(torch.zeros_like(mu), torch.zeros_like(mu), steps, steps, never, never)
        return begin(torch, mu, sigma, noise), nothing

    def step(
        self, bandits: Bandits, tally: Tally, action: Tensor, noise: Tensor
    ) -> tuple[Bandits, Tally]:
        """Ask or decide, (n,) int64; noise (n,) is for the samples."""
        result, counts = outcome(torch, action, bandits, **self._pays), ~tally.over
        return ask(torch, bandits, action == ASK, noise), Tally(
            reward=torch.where(counts, tally.reward + result.reward, tally.reward),
            gained=result.reward,
            length=tally.length + counts,
            last_action=torch.where(counts, action, tally.last_action),
            won=tally.won | (counts & result.won),
            over=tally.over | result.ended,
        )


def observation(bandits: Bandits, *, privileged: bool = False) -> Tensor:
    """The sample, (n, 1) float32, or what Oracle sees: posterior mean and std, (n, 2)."""
    if not privileged:
        return bandits.sample.float()[:, None]
    belief = posterior_of(torch, bandits.total, bandits.count, bandits.sigma)
    return torch.stack(belief, 1).float()


class PlayedBandits(NamedTuple):
    """The episodes of one set of rules."""

    episodes: Evaluation
    last_actions: NDArray[np.int64]  # (k,); all before them were questions


_CUT = len(Bandits._fields)
_END = _CUT + len(Tally._fields)


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
            self._some_steps = GraphedCall(self._play, [], policy.device)

    def __call__(
        self, draws: Sequence[np.random.Generator], each_step: EachStep | None = None
    ) -> list[PlayedBandits]:
        """Episodes under each of the rules, with random numbers of a generator for each.

        They are drawn on the host, so that they are the same for every device. `each_step` is
        called before every `STEPS` steps; what it raises ends the evaluation.
        """
        device, many = self.policy.device, self.episodes
        self.policy.settle()

        def normal(steps: int) -> NDArray[np.float64]:
            return np.concatenate([rng.standard_normal((steps, many)) for rng in draws], axis=1)

        uniform = np.concatenate([rng.random((2, many)) for rng in draws], axis=1)
        first = sent([torch.from_numpy(uniform), torch.from_numpy(normal(1)[0])], device)
        (bandits, tally), memory = self.bandits.begin(*first), self.policy.start(self.bandits.n)
        tensors = [*bandits, *tally, memory.previous_action, *memory.encoder]
        steps, over = 0, 0
        while over < self.bandits.n:
            if each_step is not None:
                each_step(steps, over, self.bandits.n)
            (noise,) = sent([torch.from_numpy(normal(STEPS))], device)
            tensors = self._some_steps([noise, *tensors])
            tally = Tally(*tensors[_CUT:_END])
            over, steps = int(tally.over.sum().item()), steps + STEPS
        return self._evaluations(tally)

    @torch.no_grad()
    def _play(self, inputs: list[Tensor]) -> list[Tensor]:
        """Play as many steps as there are rows of noise (steps, n), the first of `inputs`."""
        noise, *tensors = inputs
        bandits, tally = Bandits(*tensors[:_CUT]), Tally(*tensors[_CUT:_END])
        memory = PolicyState(self._kind(*tensors[_END + 1 :]), tensors[_END])
        for now in noise:
            current = Observation(observation(bandits, privileged=self.privileged))
            if self.policy.learner.settings.previous_reward:
                current = current._replace(previous_reward=tally.gained.float())
            action, memory = self.policy.answer(current, tally.length == 0, memory, None)
            bandits, tally = self.bandits.step(bandits, tally, action, now)
        return [*bandits, *tally, memory.previous_action, *memory.encoder]

    def _evaluations(self, tally: Tally) -> list[PlayedBandits]:
        def of_each(x: Tensor) -> list[NDArray[np.generic]]:
            return list(x.cpu().numpy().reshape(-1, self.episodes))

        parts = (tally.reward, tally.length, tally.won, tally.last_action)
        return [
            PlayedBandits(Evaluation(rewards, lengths, wins), last)
            for rewards, lengths, wins, last in zip(*map(of_each, parts), strict=True)
        ]
