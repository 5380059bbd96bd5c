"""The one parser of all verbs: words, flags and configuration files, as values of dataclasses.

Flags and files give a mapping from a setting's name to its value, so that a file can say all that a
flag can. tyro, which reads each value as its field's type and draws the help, is imported when
needed.
"""

import contextlib
import dataclasses
import io
import json
import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from kalmanac._messages import expect_known, expect_mapping, spell

ALIASES = {"steps": "total_steps", "agent": "encoder"}


def read_words(
    words: Sequence[str], most: float, *kinds: type
) -> tuple[list[str], list[dict[str, Any]]]:
    """The words that belong to no flag, and what flags give, for each dataclass.

    A flag takes as many words as its type has values, a switch none; where there are `most` free
    words already, those that follow count as the flag's, too. ValueError in one line for a flag
    that is unknown, or a value of another type.
    """
    hints = [get_type_hints(kind) for kind in kinds]
    known: dict[str, Any] = {name: hint for each in hints for name, hint in each.items()}
    free, groups = _groups(words, most, known)
    settings: dict[str, Any] = {}
    for flag, values in groups:
        name = _field(flag, known)
        switch = known.get(name.removeprefix("no_"))
        if (switch is bool or bool in get_args(switch)) and not values:
            settings[name.removeprefix("no_")] = not name.startswith("no_")
            continue
        if name not in known:
            names = [f"--{option.replace('_', '-')}" for option in known]
            expect_known("flag", flag, [*names, "--help"])
        settings[name] = _value(flag, values, known[name])
    return free, [{name: x for name, x in settings.items() if name in each} for each in hints]


def read_config(path: Path) -> dict[str, Any]:
    """The settings in a .toml or .json file."""
    if path.suffix not in (".toml", ".json"):
        raise ValueError(f"config: got {path}, expected a .toml or a .json file")
    try:
        text = path.read_text(encoding="utf-8")
        content = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except OSError as error:
        raise ValueError(f"config: got {path}: {error.strerror}") from None
    except ValueError as error:  # both parsers' own errors are among these
        raise ValueError(f"config: got {path}: {error}") from None
    expect_mapping(f"config {path}", content)
    return {ALIASES.get(name, name): value for name, value in content.items()}


def show_help(prog: str, description: str, **defaults: Any) -> None:
    """Print every flag of some dataclasses with its default, and leave with exit status 0."""
    import tyro

    fields = [(name, type(value)) for name, value in defaults.items()]
    call = dataclasses.make_dataclass("Call", fields, frozen=True)
    tyro.cli(
        call,
        prog=prog,
        description=description,
        args=["--help"],
        default=call(**defaults),
        registry=_registry(),
        config=(tyro.conf.OmitArgPrefixes,),
    )


def _field(flag: str, known: Mapping[str, Any]) -> str:
    """The name of the field that a flag sets."""
    name = flag.removeprefix("--").replace("-", "_")
    return name if name in known else ALIASES.get(name, name)


def _most_values(name: str, known: Mapping[str, Any]) -> float:
    """How many words the value of a field may be: none for a switch, all for an unknown name."""
    hint = known.get(name)
    if hint is bool or name.removeprefix("no_") in known.keys() - {name}:
        return 0
    return math.inf if hint is None or get_origin(hint) in (tuple, Mapping) else 1


def _groups(
    words: Sequence[str], most: float, known: Mapping[str, Any]
) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """The words of no flag, and each flag with its words."""
    free: list[str] = []
    groups: list[tuple[str, list[str]]] = []
    takes = 0.0
    for word in words:
        if word.startswith("--"):
            flag, equals, value = word.partition("=")
            groups.append((flag, [value] if equals else []))
            takes = 0 if equals else _most_values(_field(flag, known), known)
        elif groups and (takes or len(free) == most or word in ("True", "False")):
            groups[-1][1].append(word)
            takes = max(0, takes - 1)
        else:
            free.append(word)
    return free, groups


def _value(flag: str, values: list[str], hint: Any) -> Any:
    import tyro

    if get_origin(hint) is Literal and len(values) == 1:
        expect_known(flag, values[0], get_args(hint))
    try:
        if get_origin(hint) is Mapping:  # tyro reads NAME VALUE here
            return dict(map(_setting, values))
        with contextlib.redirect_stderr(io.StringIO()):
            return tyro.cli(hint, args=values, console_outputs=False)
    except (SystemExit, ValueError):
        got = " ".join(values) or "nothing"
        raise ValueError(f"{flag}: got {got}, expected {spell(hint)}") from None


def _registry() -> Any:
    """tyro's rules, and one to show mappings as NAME=VALUE words."""
    from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

    registry = ConstructorRegistry()
    spec: Callable[..., Any] = PrimitiveConstructorSpec

    @registry.primitive_rule
    def mapping(info: PrimitiveTypeInfo) -> Any:
        if info.type_origin is not Mapping:
            return None
        return spec(
            nargs="*",
            metavar="[NAME=VALUE …]",
            instance_from_str=lambda words: dict(map(_setting, words)),
            is_instance=lambda value: isinstance(value, Mapping),
            str_from_instance=lambda value: [f"{k}={json.dumps(v)}" for k, v in value.items()],
        )

    return registry


def _setting(word: str) -> tuple[str, Any]:
    """NAME=VALUE; the value is JSON, or else a word."""
    name, equals, text = word.partition("=")
    if not equals:
        raise ValueError(f"got {word}, expected NAME=VALUE")
    try:
        return name, json.loads(text)
    except json.JSONDecodeError:
        return name, text
