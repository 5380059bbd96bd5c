"""The policy in use: what is seen goes in, agent actions out, its state passed along."""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kalmanac.agent import Learner
from kalmanac.rollout import Sight
from kalmanac.sac.normaliser import Normaliser


class PolicyState(NamedTuple):
    """What the policy remembers of n episodes: the actor's encoder state and the last actions."""

    encoder: Any
    previous_action: Tensor  # (n, A), one-hot if discrete; zero at an episode's start

    @property
    def episodes(self) -> int:
        """n, the number of episodes."""
        return len(self.previous_action)


class Policy:
    """The actor of `learner` behind the normaliser, for n environments at a time."""

    def __init__(self, learner: Learner, normaliser: Normaliser | None) -> None:
        self.learner, self.normaliser = learner, normaliser
        self.device = learner.device

    def start(self, n: int) -> PolicyState:
        """The state before the first step of n episodes."""
        nothing = torch.zeros(n, self.learner.sizes.action, device=self.device)
        return PolicyState(self.learner.initial_state(n), nothing)

    def act(
        self, sight: Sight, state: PolicyState,
        episode_start: NDArray[np.bool_], *, explore: bool,
        generator: torch.Generator | None = None,
    ) -> tuple[NDArray[Any], PolicyState]:  # fmt: skip
        """Agent actions, int64 (n,) or float32 (n, A), and the state that includes them."""
        shown = {
            name: self._tensor(x) for name, x in sight._replace(privileged=None).given().items()
        }
        if self.normaliser is not None:
            shown["observation"] = self.normaliser.shown(
                shown["observation"], shown.get("observed")
            )
        starts = torch.tensor(episode_start, device=self.device)
        action, encoder = self.learner.act(
            shown.pop("observation"), state.previous_action, state.encoder, episode_start=starts,
            explore=explore, generator=generator, **shown,
        )  # fmt: skip
        return action.cpu().numpy(), PolicyState(encoder, self.learner.action_as_input(action))

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        # torch warns of arrays that it must not write to
        return torch.as_tensor(np.require(array, requirements="W"), device=self.device)

    def instead(self, action: NDArray[Any], state: PolicyState) -> PolicyState:
        """`state`, but with `action` as what was really done."""
        done = torch.as_tensor(action, device=self.device)
        return PolicyState(state.encoder, self.learner.action_as_input(done))
