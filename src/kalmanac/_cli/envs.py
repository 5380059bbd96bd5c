"""`kalmanac envs`: every environment of the package with its spaces, horizon and noise."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from gymnasium import spaces

from kalmanac._cli.verb import Call, NoOptions, Verb
from kalmanac._envs.extras import missing
from kalmanac._envs.observation_codecs import Space, privileged_space
from kalmanac._envs.registry import ENVS, EnvironmentSpec, make_vector


class Row(NamedTuple):
    """One environment in words."""

    name: str
    observation: str
    action: str
    privileged: str  # the true state, for Oracle and for privileged critics
    horizon: str
    noise: str


def list_environments(call: Call) -> int:
    """The verb. Environments that need an extra which is not installed are listed all the same."""
    chosen = [
        spec
        for name, spec in ENVS.items()
        if not call.words or any(word in name for word in call.words)
    ]
    if not chosen:
        raise ValueError(f"no name holds {' or '.join(call.words)}")
    show([row(spec) for spec in chosen])
    extras = dict.fromkeys(spec.extra for spec in chosen if spec.extra)
    for extra in extras:
        if (trouble := missing(extra)) is not None:
            print(f"{extra}/…: {trouble}")
    return 0


def row(spec: EnvironmentSpec) -> Row:
    """Build the environment once to read its spaces; question marks where that fails."""
    horizon = "" if spec.horizon is None else f"{spec.horizon:,}"
    if spec.extra is not None and missing(spec.extra) is not None:
        return Row(spec.name, "?", "?", "?", horizon, spec.noise)
    env = make_vector(spec.name, 1)
    truth = privileged_space(env)
    entry = Row(
        spec.name,
        words(env.single_observation_space),
        words(env.single_action_space),
        "" if truth is None else words(truth),
        horizon,
        spec.noise,
    )
    env.close()
    return entry


def words(space: Space) -> str:
    """Describe a space in two or three words."""
    if isinstance(space, spaces.Discrete):
        return f"{space.n} choices"
    if isinstance(space, spaces.Box):
        size = " × ".join(map(str, space.shape))
        low, high = {*space.low.ravel().tolist()}, {*space.high.ravel().tolist()}
        if high == {1.0} and low in ({-1.0}, {0.0}):
            return f"{size} in [{low.pop():g}, 1]"
        return f"{size} number{'' if space.shape == (1,) else 's'}"
    return str(space)


def show(rows: Sequence[Row]) -> None:
    """Print a table as wide as the terminal allows."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for field in Row._fields:
        side = "right" if field == "horizon" else "left"
        head = {"privileged": "true state"}.get(field, field)
        table.add_column(head, justify=side, no_wrap=field == "name")
    for entry in rows:
        table.add_row(*entry)
    console = Console()
    if not console.is_terminal:  # in a pipe or a file, lines are not broken
        console = Console(width=200)
    console.print(table, highlight=False, markup=False)


VERB = Verb(
    list_environments,
    NoOptions,
    "List the environments: what is observed, what can be done, what the true state is, the steps "
    "of the longest episode, and noise. Others are trained in by their Gymnasium id or as "
    "module:NAME. With WORDs, only names that hold one of them.",
    words="[WORD …]",
    most=math.inf,
)
