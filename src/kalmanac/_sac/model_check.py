"""Whether a model's document can be what it says, asked before anything of its size is built."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, get_args, get_type_hints

import torch
from torch import Tensor, nn

from kalmanac._encoders.registry import encoder_settings
from kalmanac._files.document import MALFORMED, BadFileError
from kalmanac._observation import Sizes
from kalmanac._sac.config import AgentSettings, Pretrained
from kalmanac._sac.learner import Learner
from kalmanac._sac.networks import Actor, Critic
from kalmanac._sac.optimizer import flatten_parameters
from kalmanac._sac.problem import Problem
from kalmanac._settings import CHANGEABLE, EARLIER, without_gone

Shapes = dict[str, tuple[int, ...]]


class Expected:
    """Shapes of an agent's tensors, from networks without numbers (PyTorch's meta device).

    `actor` and `learner` are those of the two `state_dict`s, the generators' states apart.
    `unstored` counts the numbers that networks make for themselves, and no file holds.
    `critic_numbers` are those of the critic.
    """

    def __init__(self, settings: AgentSettings, sizes: Sizes) -> None:
        with torch.device("meta"):
            actor, critic = Actor(sizes, settings), Critic(sizes, settings)
            learned: list[Tensor] = [*actor.parameters(), *critic.parameters()]
            learned += [torch.zeros(())] if settings.ent_coef == "auto" else []
            adam = (len(flatten_parameters(learned)),)
        self.actor = _shapes(actor, "")
        parts = {"actor": actor, "critic": critic, "target": critic}
        if settings.average_policy:
            parts["averaged"] = actor
        self.learner: Shapes = {"log_alpha": (), "adam.steps": ()}
        self.learner |= {"adam.average": adam, "adam.square": adam}
        for name, part in parts.items():
            self.learner |= _shapes(part, f"{name}.")
        self.unstored = sum(map(_unstored, (actor, critic)))
        self.critic_numbers = sum(x.numel() for x in critic.state_dict().values())


def _shapes(module: nn.Module, prefix: str) -> Shapes:
    return {f"{prefix}{name}": tuple(x.shape) for name, x in module.state_dict().items()}


def _unstored(module: nn.Module) -> int:
    stored = module.state_dict().keys()
    return sum(x.numel() for name, x in module.named_buffers() if name not in stored)


MUCH = 2**22  # numbers that a file may ask for without holding them
TIMES = 64  # or so many times those that it holds
MODERATE = {
    "layers": 4, "width": 512, "embedding": 128, "context": 4096, "images": 0, "features": 1024,
}  # fmt: skip
_WINDOW = ("context_length", "burn_in")
# what observations and rewards are scaled by, as tensors
STATISTICS = {"count": torch.int64, "mean": torch.float64, "squares": torch.float64}
GATHERED = ("normalizer.", "return_scale.")  # how their names begin
CONFIG = {entry.name for entry in fields(AgentSettings)} | {"seed"}
_SWITCHES = [name for name, x in get_type_hints(AgentSettings).items() if bool in (x, *get_args(x))]


@contextmanager
def reading(source: object) -> Iterator[None]:
    """What goes wrong inside is the file's fault, as one BadFileError."""
    try:
        yield
    except (BadFileError, torch.OutOfMemoryError):
        raise
    except (AssertionError, *MALFORMED) as error:
        words = " ".join(str(error).split())[:200]
        raise BadFileError(
            f"path: got {source}, which is malformed ({type(error).__name__}: {words})"
        ) from None


def config_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that a model was made with; ValueError for names that are no settings.

    One of an older version does what agents did then.
    """
    config = {name: value for name, value in EARLIER.items() if name in CONFIG}
    config |= without_gone(document["config"])
    # agents used to take, and to save, 0 and 1 for these
    config |= {name: bool(config[name]) for name in _SWITCHES if config.get(name) in (0, 1)}
    if unknown := set(config) - CONFIG:
        raise ValueError(f"config: got {', '.join(sorted(map(str, unknown)))}, expected settings")
    return config


def changed_config(config: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that a loaded agent is made with; ValueError for what must stay as it is."""
    known = (*CHANGEABLE, "seed")
    for name, value in changes.items():
        if name in known and not (name in _WINDOW and _remembers_a_window(config)):
            continue
        others = ", ".join(other for other in known if other != name)
        raise ValueError(
            f"{name}: got {value!r} for a model that is loaded, expected none: its weights were "
            f"learned with its own; {others} can be changed"
        )
    return {**config, **changes}


def check_model(document: Mapping[str, Any], settings: AgentSettings) -> Problem:
    """The problem that a model's document is about; raises where its agent would take too much.

    Memory is taken in proportion to the document alone. Agents of moderate sizes cannot take much;
    the shapes of others are compared first, which makes PyTorch import a good part of itself.
    """
    tensors = learned_tensors(document)
    numbers = sum(x.numel() for x in tensors.values())
    _at_most(max(MUCH, numbers), spaces=_space_numbers(document["spaces"]))
    problem = Problem.from_json(document["spaces"])
    if _moderate(settings, problem.sizes):
        return problem
    layers = settings.encoder_settings.get("layers", 1)
    widths = (settings.actor_hidden, settings.critic_hidden, settings.image_channels)
    _at_most(MODERATE["layers"] + len(tensors), layers=max(layers, *map(len, widths)))
    expected, alone = Expected(settings, problem.sizes), document["learner"] is None
    check_shapes(tensors, expected.actor if alone else expected.learner)
    missing = expected.unstored + expected.critic_numbers * alone
    _at_most(max(MUCH, TIMES * numbers), numbers=missing)
    return problem


def check_learned(document: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """ValueError or TypeError where what a model has learned is not finite, or of other shapes."""
    tensors = learned_tensors(document)
    check_shapes(tensors, shapes)
    _check_weights(tensors, document["config"].get("ent_coef"))
    counts = {name: document[name] for name in ("num_timesteps", "num_updates")}
    state = document["normaliser"]
    if state is not None:
        _check_statistics({f"normalizer.{name}": state[name] for name in STATISTICS})
        if not 0 < state["clip"] < math.inf:
            raise ValueError(f"clip: got {state['clip']!r}, expected a positive number")
    if (scale := document.get("return_scale")) is not None:
        for name, axes in {"mean": 0, "squares": 0, "running": 1}.items():
            if (got := torch.as_tensor(scale[name]).dim()) != axes:
                raise ValueError(f"{name}: got {got} axes, expected {axes}")
        _check_statistics(
            {f"return_scale.{name}": scale[name] for name in (*STATISTICS, "running")}
        )
    before = Pretrained(*document.get("pretrained", ()))
    counts |= {f"pretrained.{k}": getattr(before, k) for k in ("steps", "data", "updates")}
    if not 0 <= before.near_data <= 1:
        raise ValueError(f"near_data: got {before.near_data!r}, expected a number in [0, 1]")
    if not -1 <= before.trust <= 1:
        raise ValueError(f"trust: got {before.trust!r}, expected a number in [-1, 1]")
    for name, number in counts.items():
        _check_count(name, number)


def _check_weights(tensors: Mapping[str, Tensor], ent_coef: object) -> None:
    """ValueError or TypeError where weights, of an agent with this `ent_coef`, are not finite."""
    for name, x in tensors.items():
        if not x.is_floating_point():
            raise TypeError(f"{name}: got {x.dtype}, expected floating-point numbers")
        fixed = name == "log_alpha" and ent_coef == 0  # log 0
        adam = name.startswith("adam.")  # squares may overflow: then the weights stay as they are
        if not (fixed or adam or x.float().isfinite().all()):
            raise ValueError(f"{name}: got NaN or infinity, expected finite numbers")


def _check_statistics(statistics: Mapping[str, Any]) -> None:
    """ValueError where counts, means and squares, by name, are none that can be gathered."""
    for name, x in statistics.items():
        if name.endswith(".count"):
            _check_count(name, x)
            continue
        numbers = torch.as_tensor(x, dtype=torch.float64)
        if not numbers.isfinite().all():
            raise ValueError(f"{name}: got NaN or infinity, expected finite numbers")
        if name.endswith(".squares") and (numbers < 0).any():
            raise ValueError(f"{name}: got {numbers.min():g}, expected numbers of at least 0")


def _check_count(name: str, number: Any) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise ValueError(f"{name}: got {number!r}, expected a number of at least 0")


def with_temperature(
    saved: Mapping[str, Tensor], learner: Learner, changes: Mapping[str, Any]
) -> dict[str, Tensor]:
    """A learner's saved state for a `learner` whose `ent_coef` or `initial_ent_coef` is another.

    A fixed temperature, or a start that is given, goes before the saved one; a learned one without
    a start goes on from there, unless that is zero. Adam knows nothing yet of a temperature that
    was fixed before.
    """
    state = dict(saved)
    fixed = not learner.learns_temperature
    if fixed or "initial_ent_coef" in changes or not state["log_alpha"].isfinite():
        state["log_alpha"] = learner.log_alpha.detach().clone()
    own, span = learner.optimizer.values, learner.optimizer.spans["temperature"]
    width = span.stop - span.start
    for name, x in saved.items():
        if name.startswith("adam.") and x.dim() == 1 and len(x) != len(own):
            before = len(x) - (len(own) - width)  # numbers of the temperature
            rest = x[span.start + before :]
            state[name] = torch.cat([x[: span.start], x.new_zeros(width), rest])
    return state


def with_parameters(
    own: Mapping[str, Tensor], given: Mapping[str, Tensor], exact_match: bool, ent_coef: object
) -> dict[str, Tensor]:
    """An agent's `own` learned state with the tensors that are `given` for `set_parameters`.

    Averaged weights that are not given are those of an actor that is. What no agent with this
    `ent_coef` can have learned is refused.
    """
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise TypeError(
            f"load_path_or_dict: got {type(given).__name__}, expected tensors by name; "
            "RecurrentSAC.load reads files"
        )
    learned_tensors({"learner": given})
    known = own if exact_match else {name: own[name] for name in given if name in own}
    check_shapes(given, {name: tuple(x.shape) for name, x in known.items()})
    gathered = {name: plain(x) for name, x in given.items() if name.startswith(GATHERED)}
    _check_statistics(gathered)
    _check_weights({name: x for name, x in given.items() if name not in gathered}, ent_coef)
    groups = {name.partition(".")[0] for name in given}
    anew = "actor" in groups and "averaged" not in groups
    kept = {name: x for name, x in own.items() if not (anew and name.startswith("averaged."))}
    return kept | {name: x.detach() for name, x in given.items()}


def plain(x: Tensor) -> Any:
    """What a statistic is outside of tensors by name: one number, or a tensor in float64."""
    return x.double() if x.dim() else x.item()


def learned_tensors(document: Mapping[str, Any]) -> dict[str, Tensor]:
    """The weights and what the optimizer knows of them, without the generators' states."""
    part = document["policy"] if document["learner"] is None else document["learner"]
    for name, x in part.items():
        if not isinstance(x, Tensor):
            raise TypeError(f"{name}: got {type(x).__name__}, expected a tensor")
    return {name: x for name, x in part.items() if not _is_generator(name)}


def check_shapes(tensors: Mapping[str, Tensor], expected: Mapping[str, tuple[int, ...]]) -> None:
    """ValueError unless the tensors have these names and shapes, generators' states apart."""
    expected = {name: shape for name, shape in expected.items() if not _is_generator(name)}
    for name in sorted({*tensors} ^ {*expected}):
        got = "one" if name in tensors else "none"
        raise ValueError(f"{name}: got {got}, expected otherwise by the settings")
    for name, x in tensors.items():
        if tuple(x.shape) != expected[name]:
            raise ValueError(f"{name}: got shape {tuple(x.shape)}, expected {expected[name]}")


def _remembers_a_window(config: Mapping[str, Any]) -> bool:
    """Whether the length of the windows decides how far back its encoder looks (Transformer)."""
    takes = "window" in encoder_settings(config["encoder"])
    return takes and "window" not in config["encoder_settings"]


def _is_generator(name: str) -> bool:
    return name.startswith("generator.")


def _moderate(settings: AgentSettings, sizes: Sizes) -> bool:
    """Whether an agent of these settings takes some 100 MB at the most, whatever a file holds."""
    widths = (*settings.actor_hidden, *settings.critic_hidden)
    least = {"layers": max(len(settings.actor_hidden), len(settings.critic_hidden))}
    least |= {"width": max((1, *widths)), "embedding": settings.embedding}
    least |= {"context": settings.context_length + settings.burn_in, "images": len(sizes.images)}
    least |= {"features": max(sizes.observation, sizes.action, sizes.privileged)}
    usual = encoder_settings(settings.encoder)
    return all(number <= MODERATE[name] for name, number in least.items()) and all(
        number <= 4 * usual[name]
        for name, number in settings.encoder_settings.items()
        if isinstance(usual[name], int)
    )


def _at_most(most: int, **numbers: int) -> None:
    for name, number in numbers.items():
        if number > most:
            raise ValueError(f"{name}: got {number:,}, expected at most {most:,} in this file")


def _space_numbers(document: Any) -> int:
    """How many numbers the spaces in JSON stand for, choices among them."""
    if isinstance(document, list):
        return sum(map(_space_numbers, document))
    if not isinstance(document, dict):
        return 0
    kind = document.get("type")
    if kind == "Box":
        return math.prod(document["shape"])
    if kind == "Discrete":
        return int(document["n"])
    if kind == "MultiDiscrete":
        return _sum(document["nvec"])
    if kind == "MultiBinary":
        return math.prod(document["n"]) if isinstance(document["n"], list) else int(document["n"])
    return sum(_space_numbers(inner) for inner in document.values())


def _sum(numbers: Any) -> int:
    return sum(map(_sum, numbers)) if isinstance(numbers, list) else int(numbers)
