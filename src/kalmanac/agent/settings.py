"""What the settings of an agent and its training mean."""

import functools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import torch
from torch import Tensor

from kalmanac.encoders import check_encoder, encoder_settings
from kalmanac.settings import SACSettings


@dataclass(frozen=True)
class AgentSettings(SACSettings):
    """The settings of soft actor-critic, with an encoder that exists."""

    def check(self) -> None:
        """Raise ValueError where settings do not go together, or where there is no such encoder."""
        super().check()
        check_encoder(self.encoder, self.encoder_settings)

    def goal_among(self, allowed: Tensor) -> Tensor:
        """The target entropies (…) where so many discrete actions (…) are allowed.

        A share of the largest entropy that a state permits, log of that many, unless a number is
        given: with a goal beyond the largest entropy, a learnt temperature would rise for ever.
        """
        if self.target_entropy != "auto":
            return torch.full_like(allowed, float(self.target_entropy), dtype=torch.float32)
        return self.target_entropy_scale * allowed.log()

    def entropy_goal(self, actions: int, discrete: bool) -> float:
        """The target entropy of an action space with `actions` dimensions or choices."""
        if self.target_entropy != "auto":
            return float(self.target_entropy)
        return self.target_entropy_scale * math.log(actions) if discrete else -float(actions)

    def objective_of(self, discrete: bool) -> Literal["value", "cross-entropy", "mixed"]:
        """The actor's objective for one kind of actions; without a temperature it is the value."""
        if self.actor_objective == "auto":
            return "mixed" if discrete and self.ent_coef != 0 else "value"
        if self.actor_objective != "value" and not discrete:
            raise ValueError(
                f"actor_objective: got {self.actor_objective!r}, expected 'auto' or 'value' for "
                "continuous actions"
            )
        return self.actor_objective

    def for_encoder(self) -> dict[str, Any]:
        """All settings that the encoder is to be made with.

        One with a `window` (the Transformer) sees as many tokens at once as a training window has
        transitions, unless `encoder_settings` say otherwise.
        """
        window = {"window": self.context_length + self.burn_in}
        takes = "window" in encoder_settings(self.encoder)
        return {"d_model": self.embedding, **(window if takes else {}), **self.encoder_settings}

    def warm_up(self, seen: int = 0, held: int = 0) -> int:
        """Transitions that a training collects before its first update.

        Args:
            seen: transitions that the agent, or its replay, had before: they count as warm-up.
            held: transitions that are in the replay already; an agent that has seen something
                waits until there are as many as windows in a batch.
        """
        missing = max(self.learning_starts - seen, self.batch_size - held, 0)
        return min(self.learning_starts, missing)

    def updates_after(self, transitions: int, warm_up: int | None = None) -> int:
        """How many updates are to have been made once so many transitions are collected.

        ⌊update_to_data · (transitions − warm_up)⌋, without rounding errors; None is the warm-up of
        a new agent.
        """
        ratio = _exactly(self.update_to_data)
        beyond = max(0, transitions - (self.warm_up() if warm_up is None else warm_up))
        return ratio.numerator * beyond // ratio.denominator


@functools.cache
def _exactly(number: float) -> Fraction:
    return Fraction(number).limit_denominator(1_000_000)
