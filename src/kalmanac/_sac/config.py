"""The agent's settings, checked against the encoders, and RecurrentSAC's arguments."""

import functools
import inspect
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Concatenate, Literal, NamedTuple, ParamSpec

import torch
from torch import Tensor

from kalmanac._encoders.registry import check_encoder, encoder_settings
from kalmanac._messages import expect_known
from kalmanac._sac.episode_streams import Environment
from kalmanac._sac.sb3_arguments import MODEL, answering
from kalmanac._settings import SACSettings

Schedule = Callable[[float], float]  # of the remaining progress, from 1 to 0
NEGLIGIBLE = 1e-3  # shares of staying near data below this are zero
OWN_STEP = 5  # steps of data that one of the agent's own outweighs


class Pretrained(NamedTuple):
    """What the last pre-training leaves to the updates in an environment."""

    near_data: float = 0.0  # its weight of staying near the data, 1 where values were not trusted
    steps: int = 0  # of the agent in environments before it
    data: int = 200 * OWN_STEP  # transitions that it learned from; old files went by 1/tau
    trust: float = 0.0  # how much of advantages came true, where another pre-training goes on
    updates: int = 0  # from data, of all calls


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
        given: with a goal beyond the largest entropy, a learned temperature would rise for ever.
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

    @property
    def entropy_horizon(self) -> float:
        """Steps whose entropy bonus a value holds, 1 / (1 − γ), as far as anybody would count."""
        return 1 / max(1 - self.gamma, 1e-3) if self.entropy_in_target else 0.0

    def warm_up(self, steps_before: int = 0, stored: int = 0) -> int:
        """Transitions that a training collects before its first update.

        Args:
            steps_before: transitions that the agent, or its replay, had: they count as warm-up.
            stored: transitions that are in the replay already; an agent that has seen something
                waits until there are as many as windows in a batch.
        """
        missing = max(self.learning_starts - steps_before, self.batch_size - stored, 0)
        return min(self.learning_starts, missing)

    def near_online(self, before: Pretrained, steps: int) -> float:
        """The share of staying near the replay's actions after so many environment steps in all.

        Values are guesses where the data never were, and own steps mend them: the share is that of
        the data among the data and the steps since, each of which counts for `OWN_STEP`.
        """
        share = before.data / max(before.data + OWN_STEP * (steps - before.steps), 1)
        return share if before.near_data and share > NEGLIGIBLE else 0.0

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


P = ParamSpec("P")


@dataclass(frozen=True, kw_only=True)
class Arguments(SACSettings):
    """The signature of `RecurrentSAC`; nobody makes one."""

    env: Environment | str | None = field(default=None, kw_only=False)
    learning_rate: float | Schedule = SACSettings.learning_rate  # type: ignore[assignment]
    ent_coef: float | str = SACSettings.ent_coef  # type: ignore[assignment]
    seed: int | None = None
    device: str | torch.device = "auto"
    verbose: int = 0
    tensorboard_log: str | os.PathLike[str] | None = None


def plain_settings(given: Mapping[str, Any]) -> tuple[dict[str, Any], Schedule | None]:
    """Settings in words of SB3 as this package has them, and the learning rate's schedule.

    `ent_coef="auto_0.1"` is a learned temperature that starts there. A schedule's rate is the one
    that it begins with; `encoder_settings=None` is nothing given, as wrappers pass it.
    """
    settings = dict(given)
    if settings.get("encoder_settings", ...) is None:
        del settings["encoder_settings"]
    temperature = settings.get("ent_coef")
    if isinstance(temperature, str) and temperature.startswith("auto_"):
        try:
            start = float(temperature.removeprefix("auto_"))
        except ValueError:
            raise ValueError(
                f"ent_coef: got {temperature!r}, expected a number, auto or auto_NUMBER"
            ) from None
        if "initial_ent_coef" in settings:
            raise TypeError(f"initial_ent_coef: got one beside ent_coef={temperature!r}")
        settings |= {"ent_coef": "auto", "initial_ent_coef": start}
    schedule = settings.get("learning_rate")
    if not callable(schedule):
        return settings, None
    return settings | {"learning_rate": scheduled_rate(schedule, 1.0)}, schedule


def scheduled_rate(schedule: Schedule, remaining: float) -> float:
    """The learning rate where so much of the training remains; ValueError for what is none."""
    rate = float(schedule(remaining))
    if not (math.isfinite(rate) and rate >= 0):
        raise ValueError(
            f"learning_rate: got {rate} with {remaining:.3g} of the training remaining, expected "
            "a finite number of at least 0"
        )
    return rate


def takes(
    arguments: Callable[P, object],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """Give an `__init__` the signature of another callable, for editors, type checkers and `help`.

    The method is called with what its caller gave, as keywords. TypeError with the nearest right
    name for an argument that does not exist.
    """
    signature = inspect.signature(arguments)
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)

    def sign(method: Callable[..., None]) -> Callable[Concatenate[Any, P], None]:
        @answering(MODEL)
        @functools.wraps(method)
        def init(self: Any, *args: P.args, **kwargs: P.kwargs) -> None:
            for name in kwargs:
                try:
                    expect_known("argument", name, signature.parameters)
                except ValueError as error:
                    raise TypeError(str(error)) from None
            method(self, **signature.bind(*args, **kwargs).arguments)

        signed: Any = init
        signed.__signature__ = signature.replace(parameters=[own, *signature.parameters.values()])
        return signed

    return sign
