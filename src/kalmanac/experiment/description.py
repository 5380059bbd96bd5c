"""The one description of a run: frozen, typed, plain data, in files and on the command line alike.

Defaults are the paper's for POPGym (Table 1); the presets of `kalmanac.suites` set what differs.
"""

import dataclasses
import difflib
import functools
import hashlib
import json
import re
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from kalmanac.agent.settings import ActorObjective, AgentSettings
from kalmanac.agent_names import ORACLE, agent_of, agent_settings
from kalmanac.encoders import ENCODERS, encoder_settings
from kalmanac.envs.sensors import Corruption
from kalmanac.older_runs import EARLIER
from kalmanac.sac.settings import Drawing, TrainingSettings

# name → fields; every encoder is an agent too
AGENTS = {name: agent_settings(name) for name in (ORACLE, *ENCODERS)}


@dataclass(frozen=True)
class Experiment:
    """Everything that decides a run, except for the machine that it runs on.

    Examples:
        >>> from kalmanac import Experiment
        >>> experiment = Experiment(env="track", encoder="gru", total_steps=20_000, dropout=0.2)
        >>> experiment.changed({"encoder": "vssm+kf"}).agent
        'vssm+kf'
        >>> Experiment.from_json(experiment.to_json()) == experiment
        True
    """

    env: str = "best-arm"
    """An environment of the package, a Gymnasium id, or module:NAME of a function."""
    env_settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the environment other than its defaults."""
    noise: float = 0.0
    """Standard deviation of Gaussian noise on every number of an observation."""
    action_noise: float = 0.0
    """The same for continuous actions, in units of [-1, 1]; the sum is clipped."""
    dropout: float = 0.0
    """Probability that a reading is missing; zeros stand in its place."""
    dropout_burst: float | None = None
    """Steps for which readings are missing, on average; None is independently of each other."""
    dropout_told: bool = True
    """The agent is told which readings are missing."""
    delay: int = 0
    """Steps by which readings are late."""
    frame_repeat: int = 1
    """Steps of the environment for each action."""
    encoder: str = "vssm+kf"
    """How the agent remembers."""
    encoder_settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the encoder other than its defaults."""
    privileged: bool = False
    """The agent sees the true state in place of the observation (Oracle)."""
    label: str = ""
    """A word that is shown with every result, such as "shortened"."""

    total_steps: int = 1_000_000
    """Environment steps, all parallel environments together."""
    num_envs: int = 8
    """Environments that step at once."""
    seed: int = 0
    """Decides all randomness."""

    embedding: int = 16
    """Features of an embedded step, E."""
    actor_hidden: tuple[int, ...] = (256, 256)
    """Widths of the actor's hidden layers."""
    critic_hidden: tuple[int, ...] = (256, 256)
    """Widths of the critic's hidden layers."""
    learning_rate: float = 3e-4
    """Adam's, for all networks."""
    adam_betas: tuple[float, ...] = (0.9, 0.999)
    """How long Adam remembers gradients and their squares."""
    gamma: float = 0.99
    """Discount factor."""
    tau: float = 0.005
    """Share of the critic that its target takes over with each update (Polyak)."""
    ent_coef: float | Literal["auto"] = "auto"
    """Entropy temperature; auto learns it."""
    target_entropy: float | Literal["auto"] = "auto"
    """What a learnt temperature aims at; auto is -A, or target_entropy_scale · log A."""
    target_entropy_scale: float = 0.7
    """For discrete actions, the target entropy as a share of the largest, log A."""
    initial_ent_coef: float = 1.0
    """Where a learnt temperature starts."""
    log_std_range: tuple[float, ...] = (-20.0, 2.0)
    """Bounds of a Gaussian policy's log standard deviation."""
    head_gain: float = 1.0
    """Scale of the heads' orthogonal initial weights."""
    actor_objective: ActorObjective = "auto"
    """What the actor climbs; auto is mixed for discrete actions, which frees certain policies."""
    entropy_in_target: bool = True
    """The critic's target counts the entropy of later steps as reward."""
    average_policy: bool = True
    """Evaluations and saved policies use a running average of the actor's weights."""
    previous_action: bool = True
    """The agent sees its previous action."""
    image_channels: tuple[int, ...] = (16, 32, 32)
    """Channels of the convolutions that look at an image; each halves its sides."""
    image_features: int = 64
    """Features of an image, beside the observation's numbers."""
    max_grad_norm: float | None = None
    """Gradients are clipped to this norm."""
    privileged_critic: bool = False
    """The critic sees the true state beside the observation."""
    normalize_observations: bool = False
    """Observations are shifted and scaled by running statistics."""
    normalize_rewards: bool = False
    """Updates see rewards divided by the standard deviation of discounted returns."""

    batch_size: int = 32
    """Windows in a batch."""
    context_length: int = 64
    """Transitions in a window."""
    update_to_data: float = 1.0
    """Updates for each environment step."""
    drawing: Drawing = "episodes"
    """How windows are drawn from the replay."""
    burn_in: int = 0
    """Steps before a window that only warm up the memory."""
    true_previous_action: bool = True
    """A window begins with the action that was taken before it, not with zeros."""
    bootstrap_truncated: bool | Literal["auto"] = "auto"
    """A truncated episode might have gone on: its value counts. auto asks the environment."""
    buffer_size: int | None = None
    """Transitions kept; None keeps all."""
    learning_starts: int = 1_000
    """Random steps before the first update."""
    overlap: bool = False
    """A GPU learns while the environments step, with actions of a policy one vector step older."""
    tf32: bool = True
    """On a GPU, matrix products of updates round their factors to 11 bits."""
    bfloat16_heads: bool = False
    """On a GPU, matrix products of heads round their factors to 8 bits in updates."""
    graph: bool = True
    """On a GPU, updates and acting are replayed from CUDA graphs."""

    eval_every: int = 10_000
    """Environment steps between evaluations."""
    eval_episodes: int = 16
    """Episodes of an evaluation, in each of its environments."""
    eval_max_steps: int | None = None
    """Steps after which an evaluation's episode is cut; None: its horizon, if known, or 100,000."""
    evaluations: tuple[str, ...] = ("in",)
    """Where to evaluate: "in" is the training environment; the first one decides the best model."""
    eval_on_device: bool = False
    """Best Arm's evaluation episodes are played where the agent is, all at once: other ones."""
    log_every: int = 1_000
    """Environment steps between rows of training metrics."""

    def __post_init__(self) -> None:
        hints = _hints()
        for entry in dataclasses.fields(self):
            value = _plain(getattr(self, entry.name))
            object.__setattr__(self, entry.name, _fitting(entry.name, value, hints[entry.name]))
        expect_known("encoder", self.encoder, ENCODERS)
        for name in self.encoder_settings:
            expect_known("encoder_settings", name, encoder_settings(self.encoder))
        for name in ("total_steps", "num_envs", "eval_every", "eval_episodes", "log_every"):
            if (value := getattr(self, name)) < 1:
                raise ValueError(f"{name}: got {value}, expected at least 1")
        if self.eval_max_steps is not None and self.eval_max_steps < 1:
            raise ValueError(f"eval_max_steps: got {self.eval_max_steps}, expected at least 1")
        if self.seed < 0:
            raise ValueError(f"seed: got {self.seed}, expected at least 0")
        if len(self.log_std_range) != 2:
            raise ValueError(f"log_std_range: got {self.log_std_range}, expected two numbers")
        if not self.evaluations or len(set(self.evaluations)) < len(self.evaluations):
            raise ValueError(f"evaluations: got {self.evaluations}, expected different names")
        Corruption(**self.part(Corruption))
        AgentSettings(**self.part(AgentSettings))
        TrainingSettings(**self.part(TrainingSettings))

    @property
    def agent(self) -> str:
        """The agent's name in tables and figures."""
        return agent_of(self.encoder, self.privileged)

    @property
    def hash(self) -> str:
        """12 hexadecimal digits: equal for equal experiments, on every machine."""
        text = json.dumps(self.to_data(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def part(self, kind: type) -> dict[str, Any]:
        """The values of the settings that dataclass `kind` shares with the experiment."""
        names = {entry.name for entry in dataclasses.fields(kind)}
        return {name: getattr(self, name) for name in _NAMES if name in names}

    def changed(self, changes: Mapping[str, Any]) -> "Experiment":
        """This experiment with other values; `encoder` may name any agent.

        Settings of the environment and the encoder are merged with those that are there, unless
        the environment or the encoder itself is another one.
        """
        for name in changes:
            expect_known("setting", name, _NAMES)
        new = dict(changes)
        if (agent := new.get("encoder")) is not None:
            expect_known("encoder", agent, AGENTS)
            new = AGENTS[agent] | new | {"encoder": AGENTS[agent]["encoder"]}
        for owner in ("env", "encoder"):
            name = f"{owner}_settings"
            same = new.get(owner, getattr(self, owner)) == getattr(self, owner)
            expect_mapping(name, new.get(name, {}))
            new[name] = {**(getattr(self, name) if same else {}), **new.get(name, {})}
        return dataclasses.replace(self, **new)

    def to_data(self) -> dict[str, Any]:
        """As JSON has it: mappings, lists, strings, numbers."""
        return json.loads(json.dumps(dataclasses.asdict(self)))

    def to_json(self) -> str:
        """One JSON object."""
        return json.dumps(self.to_data(), indent=2)

    @staticmethod
    def from_data(data: Mapping[str, Any]) -> "Experiment":
        """The experiment that `to_data` was called on.

        Names that are missing have what runs did before there were such settings, else the default.
        """
        for name in data:
            expect_known("setting", name, _NAMES)
        return Experiment(**{**EARLIER, **data})

    @staticmethod
    def from_json(text: str) -> "Experiment":
        """The experiment that `to_json` was called on."""
        data = json.loads(text)
        expect_mapping("experiment", data)
        return Experiment.from_data(data)


def expect_known(what: str, name: Any, known: Iterable[str]) -> None:
    """Raise ValueError with the nearest right name unless `name` is one of `known`."""
    names = list(known)
    if name in names:
        return
    close = [x for x in names if _initials(x) == str(name).strip("-")]  # lr: learning_rate
    close += difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}?" if close else f"expected one of {', '.join(names)}"
    raise ValueError(f"{what}: got {name!r}; {hint}")


def _initials(name: str) -> str:
    return "".join(word[0] for word in re.split("[-_]", name) if word)


def expect_mapping(name: str, value: object) -> None:
    """Raise TypeError unless `value` has names for its values."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{name}: got {value!r}, expected names with values")


def spell(hint: Any) -> str:
    """A type as a reader of an error message knows it."""
    if hint is types.NoneType:
        return "None"
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(map(spell, get_args(hint)))
    if get_origin(hint) is Literal:
        return " or ".join(map(str, get_args(hint)))
    if get_origin(hint) is tuple:
        return f"a list of {spell(get_args(hint)[0])}"
    return {int: "int", float: "a number", bool: "true or false", str: "a word"}.get(
        hint, "NAME=VALUE"
    )


@functools.cache
def _hints() -> dict[str, Any]:
    """The fields' types; reading them takes longer than all the rest."""
    return get_type_hints(Experiment)


def _fitting(name: str, value: Any, hint: Any) -> Any:
    """`value` as type `hint`; whole numbers pass for floats, nothing else is converted."""
    if get_origin(hint) in (Union, types.UnionType):
        for option in get_args(hint):
            try:
                return _fitting(name, value, option)
            except (TypeError, ValueError):
                continue
    elif get_origin(hint) is Literal:
        expect_known(name, value, get_args(hint))
        return value
    elif get_origin(hint) is tuple:
        if isinstance(value, tuple):
            return tuple(_fitting(name, item, get_args(hint)[0]) for item in value)
    elif hint is float and type(value) in (int, float):
        return float(value)
    elif isinstance(value, get_origin(hint) or hint) and (type(value) is not bool or hint is bool):
        return value
    raise TypeError(f"{name}: got {value!r}, expected {spell(hint)}")


def _plain(value: Any) -> Any:
    """Own copies of mappings, and tuples for lists, so that a round trip through JSON is equal."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return tuple(map(_plain, value)) if isinstance(value, list | tuple) else value


_NAMES = [entry.name for entry in dataclasses.fields(Experiment)]
