"""What a search varies: numeric settings of an experiment, each in an interval."""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_type_hints

from kalmanac._lab.experiment import Experiment
from kalmanac._messages import expect_known

HINT = "NAME=LOW:HIGH, NAME=LOW:HIGH:log or NAME=A,B,C"


@dataclass(frozen=True)
class Varied:
    """One setting: an interval, or a few values where there are `choices`."""

    name: str
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False
    choices: tuple[float, ...] = ()

    def changes(self, value: float | int) -> dict[str, Any]:
        """As `Experiment.changed` takes it; "encoder_settings.d_state" is a setting within one."""
        owner, dot, inner = self.name.partition(".")
        return {owner: {inner: value}} if dot else {self.name: value}


def read_space(words: Sequence[str], experiment: Experiment) -> list[Varied]:
    """The intervals that --vary names; ValueError in one line for what is none."""
    space = [_read(word, experiment) for word in words]
    if not space:
        raise ValueError(f"vary: got nothing, expected {HINT}")
    names = [varied.name for varied in space]
    if len(set(names)) < len(names):
        raise ValueError(f"vary: got {' '.join(names)}, expected each setting once")
    for varied in space:  # both ends make an experiment
        for value in varied.choices or (varied.low, varied.high):
            merged(experiment, [varied], {varied.name: value})
    return space


def merged(
    experiment: Experiment, space: Sequence[Varied], values: dict[str, float | int]
) -> Experiment:
    """The experiment with these values."""
    for varied in space:
        value = values[varied.name]
        number = int(value) if varied.whole else float(value)
        experiment = experiment.changed(varied.changes(number))
    return experiment


def _read(word: str, experiment: Experiment) -> Varied:
    name, equals, text = word.partition("=")
    name = name.replace("-", "_")
    if not equals or not text:
        raise ValueError(f"vary: got {word!r}, expected {HINT}")
    whole = _is_whole(name, experiment)
    if "," in text:
        return Varied(name, whole=whole, choices=tuple(_number(word, x) for x in text.split(",")))
    low, _, rest = text.partition(":")
    high, _, scale = rest.partition(":")
    if scale not in ("", "log"):
        raise ValueError(f"vary: got {word!r}, expected {HINT}")
    found = Varied(name, _number(word, low), _number(word, high), scale == "log", whole)
    if found.low >= found.high:
        raise ValueError(f"vary: got {word!r}, expected a low end below the high one")
    if found.log and found.low <= 0:
        raise ValueError(f"vary: got {word!r}, expected a low end above 0 for log")
    return found


def _number(word: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"vary: got {word!r}, expected {HINT}") from None


def _is_whole(name: str, experiment: Experiment) -> bool:
    """Whether a setting takes whole numbers only; ValueError where it takes no numbers."""
    owner, dot, inner = name.partition(".")
    if dot and owner in ("encoder_settings", "env_settings"):
        from kalmanac._encoders.registry import encoder_settings
        from kalmanac._lab.factory import check_environment

        known = (
            encoder_settings(experiment.encoder)
            if owner == "encoder_settings"
            else check_environment(experiment).settings or {}
        )
        if known:
            expect_known("vary", inner, known)
        return type(known.get(inner)) is int
    hints = get_type_hints(Experiment)
    numeric = {field.name: _kinds(hints[field.name]) for field in dataclasses.fields(Experiment)}
    expect_known("vary", name, [n for n, kinds in numeric.items() if kinds and n != "seed"])
    return float not in numeric[name]


def _kinds(hint: Any) -> set[type]:
    """int and float, as far as a field takes them."""
    options = {hint, *(get_args(hint) if not isinstance(hint, type(Literal["a"])) else ())}
    return options & {int, float}


def describe(space: Sequence[Varied], experiment: Experiment) -> str:
    """The same for searches that can go on with each other."""
    told = {"space": [dataclasses.asdict(varied) for varied in space]}
    return json.dumps(told | {"experiment": experiment.to_data()}, sort_keys=True)
