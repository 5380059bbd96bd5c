"""Every setting, declared once: its type, bounds, default, meaning, and what runs did before it.

Here is also what an agent is called, and what Oracle is.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from kalmanac._checked_fields import (
    Above,
    AtLeast,
    CheckedFields,
    MayBeInfinite,
    Within,
    field_notes,
)

ActorObjective = Literal["auto", "mixed", "value", "cross-entropy"]
Drawing = Literal["episodes", "starts", "transitions"]
Pair = tuple[float, float]


@dataclass(frozen=True)
class Later:
    """Marks a setting that came after the first version.

    `before` is what runs did until then; "..." is today's default. An `unsaid` one is left out of
    descriptions while it has that value: those of before keep their bytes and their hash.
    """

    before: Any = ...
    unsaid: bool = False


@dataclass(frozen=True)
class Fixed:
    """Marks a setting that decides the networks, or what their weights mean.

    A model that is loaded keeps its own.
    """


@dataclass(frozen=True)
class TaskSettings(CheckedFields):
    """What is to be learned."""

    env: str = "best-arm"
    """An environment of the package, a Gymnasium id, or module:NAME of a function."""
    env_settings: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    """Settings of the environment other than its defaults."""


@dataclass(frozen=True, kw_only=True)
class CorruptionSettings(CheckedFields):
    """How readings and actions are corrupted; nothing is, by default."""

    noise: Annotated[float, AtLeast(0), Later()] = 0.0
    """Standard deviation of Gaussian noise on every number of an observation."""
    action_noise: Annotated[float, AtLeast(0), Later()] = 0.0
    """The same for continuous actions, in units of [-1, 1]; the sum is clipped."""
    dropout: Annotated[float, Within(0, 1, "[)"), Later()] = 0.0
    """Probability that a reading is missing; zeros stand in its place."""
    dropout_burst: Annotated[float | None, AtLeast(1), Later()] = None
    """Steps for which readings are missing, on average; None is independently of each other."""
    dropout_told: Annotated[bool, Later()] = True
    """The agent is told which readings are missing."""
    dropout_flag: Annotated[bool, Later(unsaid=True)] = False
    """And the observation ends in a number that says so: 1 where it is there, 0 where missing."""
    delay: Annotated[int, AtLeast(0), Later()] = 0
    """Steps by which readings are late."""
    frame_repeat: Annotated[int, AtLeast(1), Later()] = 1
    """Steps of the environment for each action."""


@dataclass(frozen=True, kw_only=True)
class EncoderSettings(CheckedFields):
    """How the agent remembers."""

    encoder: Annotated[str, Fixed()] = field(default="vssm+kf", kw_only=False)
    """How the agent remembers."""
    encoder_settings: Annotated[Mapping[str, Any], Fixed()] = field(default_factory=dict)
    """Settings of the encoder other than its defaults."""


@dataclass(frozen=True, kw_only=True)
class RunSettings(CheckedFields):
    """How long a run is, and what it is called."""

    privileged: bool = False
    """The agent sees the true state in place of the observation (Oracle)."""
    label: str = ""
    """A word that is shown with every result, such as "shortened"."""
    total_steps: Annotated[int, AtLeast(1)] = 1_000_000
    """Environment steps, all parallel environments together."""
    num_envs: Annotated[int, AtLeast(1)] = 8
    """Environments that step at once."""
    seed: Annotated[int, Within(0, 2**64, "[)")] = 0
    """Decides all randomness."""


@dataclass(frozen=True, kw_only=True)
class SACSettings(EncoderSettings):
    """Soft actor-critic over history encoders: networks, losses, replay and updates.

    Examples:
        >>> import kalmanac
        >>> settings = kalmanac.SACSettings(learning_rate=1e-3)
        >>> settings.learning_rate, settings.batch_size
        (0.001, 32)
    """

    embedding: Annotated[int, AtLeast(1), Fixed()] = 16
    """Features of an embedded step and of its representation, E."""
    actor_hidden: Annotated[tuple[int, ...], AtLeast(1), Fixed()] = (256, 256)
    """Widths of the actor's hidden layers."""
    critic_hidden: Annotated[tuple[int, ...], AtLeast(1), Fixed()] = (256, 256)
    """Widths of the critic's hidden layers."""
    learning_rate: Annotated[float, Above(0)] = 3e-4
    """Adam's, for all networks and the temperature."""
    adam_betas: Annotated[Pair, Within(0, 1, "[)"), Later((0.9, 0.999))] = (0.9, 0.999)
    """How long Adam remembers gradients and their squares: a step is at most (1 - β₁) / √(1 - β₂)
    learning rates long, where a gradient comes after much smaller ones."""
    gamma: Annotated[float, Within(0, 1)] = 0.99
    """Discount factor."""
    tau: Annotated[float, Within(0, 1, "(]")] = 0.005
    """Share of the critic that its target takes over with each update (Polyak)."""
    ent_coef: Annotated[float | Literal["auto"], AtLeast(0)] = "auto"
    """Entropy temperature; auto learns it."""
    target_entropy: float | Literal["auto"] = "auto"
    """What a learned temperature aims at; auto is -A, or target_entropy_scale · log A."""
    target_entropy_scale: float = 0.7
    """For discrete actions, the target entropy as a share of the largest, log A."""
    initial_ent_coef: Annotated[float, Above(0)] = 1.0
    """Where a learned temperature starts."""
    exploration_correlation: Annotated[float, Within(0, 1, "[)"), Later(unsaid=True)] = 0.0
    """Correlation of the noise in continuous actions that follow one another while the agent
    trains, in the random steps at the start, too. 0 draws each anew; with 0.9, exploration keeps
    its direction for some seven steps, and finds what trembling hardly ever does."""
    log_std_range: Annotated[Pair, MayBeInfinite(), Fixed()] = (-20.0, 2.0)
    """Bounds of a Gaussian policy's log standard deviation."""
    head_gain: Annotated[float, Above(0), Fixed()] = 1.0
    """Scale of the heads' orthogonal initial weights."""
    actor_objective: Annotated[ActorObjective, Later("value")] = "auto"
    """What the actor climbs: the soft value (the paper's); for discrete actions also the
    cross-entropy towards softmax(Q/α), whose gradient does not vanish with π, or mixed, the value
    and a tenth of the latter. auto is mixed for discrete actions, where a policy that has become
    certain could never come back from the value alone, and value for continuous ones."""
    entropy_in_target: Annotated[bool, Later()] = True
    """The critic's target counts the entropy of later steps as reward (the paper's); False leaves
    entropy to the actor, so that values keep to the rewards' scale."""
    average_policy: Annotated[bool, Fixed(), Later(False)] = True
    """Evaluations, predictions and saved policies use a running average of the actor's weights;
    exploration uses the newest weights."""
    average_span: Annotated[float | None, Within(0, 1, "(]"), Later(unsaid=True)] = None
    """The averaged policy spans about this share of all updates so far, once that is more than the
    1/tau that it spans before; None: never."""
    previous_action: Annotated[bool, Fixed()] = True
    """The agent sees its previous action beside the observation."""
    previous_reward: Annotated[bool, Fixed(), Later(unsaid=True)] = False
    """The agent sees the reward of its last step, too, as normalize_rewards scales it: for tasks
    whose rewards tell what observations do not, as in meta-learning. Encoders without a memory see
    neither."""
    image_channels: Annotated[tuple[int, ...], AtLeast(1), Fixed()] = (16, 32, 32)
    """Channels of the convolutions that look at an image; each halves its sides."""
    image_features: Annotated[int, AtLeast(1), Fixed()] = 64
    """Features of an image, beside the observation's numbers."""
    max_grad_norm: Annotated[float | None, MayBeInfinite(), Above(0)] = None
    """Gradients of actor and critic are clipped to this norm, each on its own."""
    privileged_critic: Annotated[bool, Fixed()] = False
    """The critic sees the true state beside the observation."""
    critic_clock: Annotated[bool, Fixed(), Later(unsaid=True)] = False
    """The critic sees how many steps of the episode have passed, of those that buffer_size leaves:
    where the clock ends an episode, values depend on it, and windows that begin anywhere do not
    tell it. The actor does not."""
    normalize_observations: Annotated[bool, Fixed()] = True
    """Observations are shifted and scaled by running statistics; discrete ones, bits and images are
    not, and neither is a privileged critic's state."""
    normalize_rewards: Annotated[bool, Fixed(), Later()] = False
    """Updates see rewards divided by the standard deviation of discounted returns: for tasks that
    pay far more, or far less, than 1 an episode. Statistics begin with the training's own steps,
    not with a replay that is loaded."""

    batch_size: Annotated[int, AtLeast(1)] = 32
    """Windows in a batch."""
    context_length: Annotated[int, AtLeast(1)] = 64
    """Transitions in a window, T."""
    update_to_data: Annotated[float, AtLeast(0)] = 1.0
    """Updates for each environment step, from a fraction of one to several."""
    drawing: Drawing = "episodes"
    """How windows are drawn from the replay."""
    burn_in: Annotated[int, AtLeast(0)] = 0
    """Steps before a window that only warm up the memory."""
    true_previous_action: bool = True
    """A window begins with the action (and the reward) before it, so that one from the middle of an
    episode does not look like its beginning; False puts zeros there."""
    bootstrap_truncated: Annotated[bool | Literal["auto"], Later(True)] = "auto"
    """A truncated episode might have gone on: its value counts, as is right where a time limit is
    not part of the task. auto asks env.metadata["bootstrap_truncated"]; True where that is
    silent."""
    buffer_size: Annotated[int | None, AtLeast(1)] = None
    """Transitions kept; None keeps all."""
    learning_starts: Annotated[int, AtLeast(0)] = 1_000
    """Random steps before the first update. A loaded agent acts by itself, and learns as soon as
    its replay holds batch_size transitions."""
    overlap: Annotated[bool, Later()] = False
    """A GPU learns while the environments step, with actions of a policy one vector step older."""
    tf32: Annotated[bool, Later()] = True
    """On a GPU, matrix products of updates round their factors to 11 bits; False keeps all 24 and
    takes longer."""
    graph: Annotated[bool, Later()] = True
    """On a GPU, updates, acting and storing are replayed from CUDA graphs; False launches every
    operation anew, which is for looking into them."""

    def check(self) -> None:
        """Raise ValueError where settings do not go together."""
        super().check()
        low, high = self.log_std_range
        if not low < high:
            raise ValueError(f"log_std_range: got {self.log_std_range!r}, expected (low, high)")
        if self.actor_objective in ("mixed", "cross-entropy") and self.ent_coef == 0:
            raise ValueError(
                f"ent_coef: got 0, expected a number above 0 for {self.actor_objective}"
            )


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings(CheckedFields):
    """What is written down on the way."""

    eval_every: Annotated[int, AtLeast(1)] = 10_000
    """Environment steps between evaluations."""
    eval_episodes: Annotated[int, AtLeast(1)] = 16
    """Episodes of an evaluation, in each of its environments."""
    eval_max_steps: Annotated[int | None, AtLeast(1), Later()] = None
    """Steps after which an evaluation's episode is cut; None: its horizon, if known, or 100,000."""
    evaluations: tuple[str, ...] = ("in",)
    """Where to evaluate: "in" is the training environment; the first one decides the best model."""
    eval_on_device: Annotated[bool, Later()] = False
    """Best Arm's evaluation episodes are played where the agent is, all at once: other ones."""
    log_every: Annotated[int, AtLeast(1)] = 1_000
    """Environment steps between rows of training metrics."""

    def check(self) -> None:
        """Raise ValueError where no evaluation is named, or one twice."""
        super().check()
        if not self.evaluations or len(set(self.evaluations)) < len(self.evaluations):
            raise ValueError(f"evaluations: got {self.evaluations}, expected different names")


@dataclass(frozen=True)
class AllSettings(
    EvaluationSettings, SACSettings, RunSettings, EncoderSettings, CorruptionSettings, TaskSettings
):
    """All groups, in the order of a run's description: from the last one here to the first."""


def _earlier() -> dict[str, Any]:
    defaults = {entry.name: entry.default for entry in dataclasses.fields(AllSettings)}
    values = {
        name: defaults[name] if note.before is ... else note.before
        for name, notes in field_notes(AllSettings).items()
        for note in notes
        if isinstance(note, Later)
    }
    return {name: list(x) if isinstance(x, tuple) else x for name, x in values.items()}


# What runs did before a setting had its name, as JSON has it: older ones go on, and are shown, so.
EARLIER: Mapping[str, Any] = _earlier()
# Of those, the ones that a description names only where they are others.
UNSAID = frozenset(
    name for name, notes in field_notes(AllSettings).items() if Later(unsaid=True) in notes
)
# Settings that there were for a while; whatever older files say of them, nothing reads it.
GONE = ("average_tau", "bfloat16_heads")
STILL_COUNTED = {"bfloat16_heads": False}  # of those: hashes and searches of before go on
EARLIER_ENCODERS: Mapping[str, Mapping[str, Any]] = {  # the same within encoder_settings
    "transformer": {"dropout": 0.0},  # until the paper's presets said 0.1
}
# Settings that change a run's task, each with the value that changes nothing.
NEUTRAL: Mapping[str, Any] = {x.name: x.default for x in dataclasses.fields(CorruptionSettings)}
# Settings that a model may be given when it is loaded.
CHANGEABLE = tuple(name for name, notes in field_notes(SACSettings).items() if Fixed() not in notes)


def without_gone(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a file, but for those that are no more."""
    return {name: value for name, value in settings.items() if name not in GONE}


def as_it_was(experiment: Mapping[str, Any]) -> dict[str, Any]:
    """The description of a recorded run with what it leaves unsaid."""
    unsaid = EARLIER_ENCODERS.get(str(experiment.get("encoder")), {})
    settings = {**unsaid, **experiment.get("encoder_settings", {})}
    return {**EARLIER, **without_gone(experiment), "encoder_settings": settings}


ORACLE = "oracle"
_ORACLE = ("memoryless", True)  # encoder, privileged


def agent_of(encoder: str, privileged: bool) -> str:
    """Name the agent with this encoder."""
    if (encoder, privileged) == _ORACLE:
        return ORACLE
    return f"{encoder}, privileged" if privileged else encoder


def agent_settings(name: str) -> dict[str, Any]:
    """Tell the settings of an agent: Oracle's, or those of an encoder that sees observations."""
    encoder, privileged = _ORACLE if name == ORACLE else (name, False)
    return {"encoder": encoder, "privileged": privileged}
