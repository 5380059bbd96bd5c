"""What decides an agent, its sizes and its environment apart."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from kalmanac.encoders import encoder_settings

ActorObjective = Literal["auto", "mixed", "value", "cross-entropy"]


@dataclass(frozen=True)
class AgentSettings:
    """Soft actor-critic over history encoders; defaults are those of the paper's Table 1, POPGym.

    Args:
        encoder: a name of `ENCODERS`.
        encoder_settings: settings of the encoder other than its defaults.
        embedding: features of an embedded step and of its representation, E.
        context: the most tokens that the encoder sees at once. Only an encoder with a `window` (the
            Transformer) takes notice, and only if `encoder_settings` does not say it.
        actor_hidden, critic_hidden: widths of the heads' hidden layers.
        head_gain: scale of the heads' orthogonal initial weights (a choice).
        learning_rate: Adam's, for all networks and the temperature.
        adam_betas: how long Adam remembers gradients and their squares. Squares of a much larger
            beginning slow down all that follows for as long as they are remembered.
        gamma: discount factor.
        tau: share of the critic that the target takes over after every update (Polyak).
        ent_coef: the entropy temperature α; "auto" learns it.
        initial_ent_coef: where a learnt temperature starts (a choice: log α = 0).
        target_entropy: what a learnt temperature aims at; "auto" is -A for continuous actions and
            target_entropy_scale · log A for discrete ones (0.35 instead of 0.7 in MineSweeper).
        privileged_critic: the critic's observation is [observation, privileged].
        actor_objective: what the actor climbs: the soft "value" (the paper's); for discrete actions
            also the "cross-entropy" towards softmax(Q/α), whose gradient does not vanish with π, or
            "mixed", the value and a tenth of the latter. "auto" is "mixed" for discrete actions,
            where a policy that has become certain could never come back from the value alone, and
            "value" for continuous ones.
        entropy_in_target: the critic's target counts the entropy of later steps as reward (the
            paper's); False leaves entropy to the actor, so that values keep to the rewards' scale.
        average_policy: evaluations, predictions and saved policies use a running average of the
            actor's weights (rate `tau`); exploration uses the newest weights.
        max_grad_norm: actor's and critic's gradients are clipped to it, each on its own.
        log_std_range: bounds of a Gaussian policy's log standard deviation.
        previous_action: the embedder sees the previous action beside the observation.
        image_channels: channels of the convolutions that look at an image; each halves its sides.
        image_features: features of an image, beside those of the observation's other parts.
    """

    encoder: str = "vssm+kf"
    encoder_settings: Mapping[str, Any] = field(default_factory=dict)
    embedding: int = 16
    context: int | None = None
    actor_hidden: tuple[int, ...] = (256, 256)
    critic_hidden: tuple[int, ...] = (256, 256)
    head_gain: float = 1.0
    learning_rate: float = 3e-4
    adam_betas: tuple[float, ...] = (0.9, 0.99)
    gamma: float = 0.99
    tau: float = 0.005
    ent_coef: float | Literal["auto"] = "auto"
    initial_ent_coef: float = 1.0
    target_entropy: float | Literal["auto"] = "auto"
    target_entropy_scale: float = 0.7
    privileged_critic: bool = False
    actor_objective: ActorObjective = "auto"
    entropy_in_target: bool = True
    average_policy: bool = True
    max_grad_norm: float | None = None
    log_std_range: tuple[float, float] = (-20.0, 2.0)
    previous_action: bool = True
    image_channels: tuple[int, ...] = (16, 32, 32)
    image_features: int = 64

    def __post_init__(self) -> None:
        known = encoder_settings(self.encoder)
        if "d_model" in self.encoder_settings:
            raise ValueError("encoder_settings: got d_model, expected it as embedding")
        for name in self.encoder_settings:
            if name not in known:
                raise ValueError(f"encoder_settings: got {name}, expected {', '.join(known)}")
        for name, low, high in (
            ("learning_rate", 0.0, math.inf),
            ("gamma", 0.0, 1.0),
            ("tau", 0.0, 1.0),
            ("head_gain", 0.0, math.inf),
            ("initial_ent_coef", 0.0, math.inf),
        ):
            value = getattr(self, name)
            above = value > low if name != "gamma" else value >= low
            if not (above and value <= high and math.isfinite(value)):
                raise ValueError(f"{name}: got {value!r}, expected a number in ({low}, {high}]")
        for name in ("actor_hidden", "critic_hidden", "image_channels"):
            widths = getattr(self, name)
            if not all(isinstance(n, int) and n > 0 for n in widths):
                raise ValueError(f"{name}: got {widths!r}, expected widths of at least 1")
        for name in ("embedding", "context", "image_features"):
            size = getattr(self, name)
            if size is not None and (not isinstance(size, int) or size < 1):
                raise ValueError(f"{name}: got {size!r}, expected an integer of at least 1")
        if self.ent_coef != "auto" and not (_number(self.ent_coef) and self.ent_coef >= 0):
            raise ValueError(f'ent_coef: got {self.ent_coef!r}, expected "auto" or a number >= 0')
        if self.target_entropy != "auto" and not _number(self.target_entropy):
            raise ValueError(
                f'target_entropy: got {self.target_entropy!r}, expected "auto" or a number'
            )
        if self.max_grad_norm is not None and not self.max_grad_norm > 0:
            raise ValueError(
                f"max_grad_norm: got {self.max_grad_norm!r}, expected a number above 0"
            )
        if self.actor_objective not in get_args(ActorObjective):
            expected = " or ".join(get_args(ActorObjective))
            raise ValueError(f"actor_objective: got {self.actor_objective!r}, expected {expected}")
        if self.actor_objective in ("mixed", "cross-entropy") and self.ent_coef == 0:
            raise ValueError(
                f"ent_coef: got 0, expected a number above 0 for {self.actor_objective}"
            )
        betas = self.adam_betas
        if len(betas) != 2 or not all(_number(b) and 0 <= b < 1 for b in betas):
            raise ValueError(f"adam_betas: got {betas!r}, expected two numbers in [0, 1)")
        low, high = self.log_std_range
        if not low < high:
            raise ValueError(f"log_std_range: got {self.log_std_range!r}, expected (low, high)")

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
        """All settings that the encoder is to be made with."""
        found = {"d_model": self.embedding, **self.encoder_settings}
        if self.context is not None and "window" in encoder_settings(self.encoder):
            found = {"window": self.context} | found
        return found


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
