"""Run folders as nobody should leave them: every kind of damage, oddity and malice.

A kind changes a copy of a sound run. Where it needs a value, it asks for an odd text, number or
JSON value, which a list or hypothesis gives.
"""

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

TEXTS = (
    "$", "$x$", r"$\frac{$", r"$\nothing{a$b_", "a_b^c", r"\alpha", "<!--<script>", "<!--", "]]>",
    "</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", '=HYPERLINK("x")',
    "=1+1", "+1-1", "-2+3", "@SUM(A1)", "a|b", "a\\|b\\", "{{data}}", "%{y}", "\x1b[2J\x1b]0;x\x07",
    "a\nb\r\nc", "\t=1", "nul\0byte", "\ud800", "\udcff\udcfe", "\u202eabc", "\ufeff", "\u2028",
    "日本語" * 40, "😀" * 40, "e\u0301" * 30, "../../../outside", "/etc/passwd", "..", ".", "", " ",
    "__proto__", "constructor", "[red]x[/]", "[/]", "[link=x]", "%s %d {0} {x}",
    "vssm+kf, privileged", "x" * 300, "y" * 1_000_000, "a " * 500_000, "=" * 5000,
)  # fmt: skip
NUMBERS: tuple[Any, ...] = (
    0, -1, 1, True, 0.5, -0.0, 1e-320, 1e30, -1e30, 1e101, 1e308, -1e308, 2**31, 2**53 + 1,
    2**63 - 1, 2**63, 2**64, 10**30, -(10**30), 10**299, -(10**299), 10**400, -(10**400), 10**4000,
    float("nan"), float("inf"), float("-inf"), None, "7", "", [], [1], {}, {"a": 1},
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    *NUMBERS, *TEXTS[:20], {"a": {"b": [1, {"c": None}]}}, [[1, 2], [3, 4]], [None, "x", 1.5],
    {"__proto__": {"x": 1}}, {"": ""}, ["$", "<!--<script>"], [[]], [{}], {"a": 10**400},
)  # fmt: skip


class Listed:
    """Values from the lists above, in an order that a seed decides."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def text(self) -> str:
        return self._random.choice(TEXTS)

    def number(self) -> Any:
        return self._random.choice(NUMBERS)

    def value(self) -> Any:
        return self._random.choice(VALUES)

    def binary(self) -> bytes:
        return self._random.randbytes(self._random.choice((0, 1, 100, 5000)))


ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=80) | st.sampled_from(TEXTS)
ANY_NUMBER = (
    st.integers() | st.integers(-(10**20), 10**20) | st.floats() | st.booleans()
    | st.sampled_from(NUMBERS)
)  # fmt: skip
ANY_VALUE = st.recursive(
    st.none() | ANY_NUMBER | ANY_TEXT,
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(ANY_TEXT, inside, max_size=4),
    max_leaves=8,
)


class Drawn:
    """Values that hypothesis draws."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self._draw = draw

    def text(self) -> str:
        return self._draw(ANY_TEXT)

    def number(self) -> Any:
        return self._draw(ANY_NUMBER)

    def value(self) -> Any:
        return self._draw(ANY_VALUE)

    def binary(self) -> bytes:
        return self._draw(st.binary(max_size=300))


Odd = Listed | Drawn
Kind = Callable[[Path, Odd], None]
KINDS: dict[str, Kind] = {}
SAME_SEED = ("checkpoint", "model", "lock")  # kinds that `resume` or `eval` should get to


def kind(change: Kind) -> Kind:
    """Enter it in the list under its name."""
    KINDS[change.__name__.replace("_", "-")] = change
    return change


def make(sound: Path, target: Path, name: str, odd: Odd, seed: int) -> Path:
    """A copy of a sound run with seed `seed`, changed by the kind of this name."""
    shutil.copytree(sound, target)
    if not name.startswith(SAME_SEED):
        edit(target / "experiment.json", lambda told: told.update(seed=seed))
    KINDS[name](target, odd)
    return target


def dump(value: Any) -> str:
    """JSON as Python writes it, NaN and Infinity too."""
    return json.dumps(value)


def edit(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the JSON object in a file."""
    told = json.loads(file.read_text())
    change(told)
    file.write_text(dump(told))


def rows_of(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change every row of a file that holds an evaluation, or a time."""
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    for row in rows:
        if any(key.startswith(("eval/", "time/")) for key in row):
            change(row)
    file.write_text("".join(dump(row) + "\n" for row in rows))


def replaced(file: Path, how: str) -> None:
    """Something else under the name of a file."""
    content = file.read_bytes() if file.is_file() else b""
    file.unlink(missing_ok=True)
    if how == "missing":
        return
    if how == "folder":
        file.mkdir()
    elif how == "pipe":
        os.mkfifo(file)
    elif how == "dangling":
        file.symlink_to(file.with_name("nowhere"))
    elif how == "loop":
        file.symlink_to(file)
    elif how == "empty":
        file.touch()
    elif how == "sparse":
        with file.open("wb") as opened:
            opened.truncate(2**33)
    else:
        file.write_bytes(BYTES[how](content))


BYTES: dict[str, Callable[[bytes], bytes]] = {
    "torn": lambda content: content[: len(content) * 2 // 3],
    "no-text": lambda content: b"\xff\xfe\x00" + content,
    "wide": lambda content: content.decode().encode("utf-16"),
    "marked": lambda content: b"\xef\xbb\xbf" + content,
    "nul": lambda content: b"\0" * 5000,
    "list": lambda content: b"[1]\n",
    "number": lambda content: b"7\n",
    "null": lambda content: b"null\n",
    "text": lambda content: b'"env"\n',
    "deep-list": lambda content: b"[" * 100_000 + b"]" * 100_000 + b"\n",
    "deep-object": lambda content: b'{"step":1,"eval/a":' * 600 + b"1" + b"}" * 600 + b"\n",
    "deeper": lambda content: b'{"step":1,"eval/a":' * 100_000 + b"1" + b"}" * 100_000 + b"\n",
    "digits": lambda content: b'{"step": ' + b"9" * 100_000 + b', "eval/in/mean_reward": 1}\n',
    "large": lambda content: b'{"step": 1, "eval/in/x": "' + b"x" * 2**21 + b'"}\n',
}
FILES = ("experiment.json", "metrics.jsonl", "summary.json", "timing.jsonl", "provenance.json")
ELSE = ("missing", "folder", "pipe", "dangling", "loop", "empty", *BYTES)
SPARSE = ("metrics.jsonl", "experiment.json")


def _replacing(name: str, how: str) -> None:
    KINDS[f"{name.split('.')[0]}-{how}"] = lambda folder, odd: replaced(folder / name, how)


def _setting(name: str) -> None:
    def change(folder: Path, odd: Odd) -> None:
        edit(folder / "experiment.json", lambda told: told.update({name: odd.value()}))

    KINDS[f"setting-{name.replace('_', '-')}"] = change


def _bytes(name: str) -> None:
    KINDS[f"{name.split('.')[0]}-bytes"] = lambda folder, odd: (
        (folder / name).write_bytes(odd.binary()) and None
    )


for _name in FILES:
    for _how in ELSE:
        _replacing(_name, _how)
    _bytes(_name)
for _name in SPARSE:
    _replacing(_name, "sparse")
for _name in (
    "env", "env_settings", "encoder", "encoder_settings", "seed", "total_steps", "eval_every",
    "log_every", "label", "privileged", "evaluations", "num_envs", "eval_episodes", "actor_hidden",
    "noise", "gamma", "buffer_size",
):  # fmt: skip
    _setting(_name)


@kind
def setting_lost(folder: Path, odd: Odd) -> None:
    edit(folder / "experiment.json", lambda told: told.pop("tau"))


@kind
def setting_unknown(folder: Path, odd: Odd) -> None:
    edit(folder / "experiment.json", lambda told: told.update({odd.text(): odd.value()}))


@kind
def setting_two_thousand(folder: Path, odd: Odd) -> None:
    more = {f"x{i}": i for i in range(2000)}
    edit(folder / "experiment.json", lambda told: told.update(more))


@kind
def words_label(folder: Path, odd: Odd) -> None:
    other = {"env": "mine:Maze", "env_settings": {}, "label": odd.text()}
    edit(folder / "experiment.json", lambda told: told.update(other))


@kind
def words_env(folder: Path, odd: Odd) -> None:
    edit(folder / "experiment.json", lambda told: told.update(env=odd.text()))


@kind
def words_encoder(folder: Path, odd: Odd) -> None:
    edit(folder / "experiment.json", lambda told: told.update(encoder=odd.text()))


@kind
def words_place(folder: Path, odd: Odd) -> None:
    edit(folder / "experiment.json", lambda told: told.update(evaluations=[odd.text()]))


@kind
def env_settings_nested(folder: Path, odd: Odd) -> None:
    """Legitimate: an environment of one's own whose settings have settings."""
    inside = {"reward": {"goal": 1.0, "path": [1, {"bonus": None}]}, "limit": float("inf")}
    edit(folder / "experiment.json", lambda told: told.update(env="mine:Maze", env_settings=inside))


@kind
def env_settings_odd_name(folder: Path, odd: Odd) -> None:
    other = {"env": "mine:Maze", "env_settings": {odd.text(): 1}}
    edit(folder / "experiment.json", lambda told: told.update(other))


@kind
def env_settings_odd_value(folder: Path, odd: Odd) -> None:
    inside = {"depth": odd.value(), "word": odd.text()}
    edit(folder / "experiment.json", lambda told: told.update(env="mine:Maze", env_settings=inside))


@kind
def env_settings_odd_cost(folder: Path, odd: Odd) -> None:
    edit(folder / "experiment.json", lambda told: told["env_settings"].update(cost=odd.value()))


@kind
def env_settings_endless(folder: Path, odd: Odd) -> None:
    edit(folder / "experiment.json", lambda told: told["env_settings"].update(horizon=10**12))


@kind
def encoder_settings_odd(folder: Path, odd: Odd) -> None:
    more = {odd.text(): odd.value()}
    edit(folder / "experiment.json", lambda told: told.update(encoder_settings=more))


@kind
def control_odd_noise(folder: Path, odd: Odd) -> None:
    more = {"env": "dmc/walker-run", "env_settings": {}, "noise": odd.value()}
    edit(folder / "experiment.json", lambda told: told.update(more))


@kind
def memory_odd_size(folder: Path, odd: Odd) -> None:
    inside = {"d_state": odd.value(), "layers": odd.number(), "norm": True}
    more = {"env": "popgym/RepeatFirstEasy", "env_settings": {}, "encoder": "vssm+kf",
            "encoder_settings": inside}  # fmt: skip
    edit(folder / "experiment.json", lambda told: told.update(more))


@kind
def metrics_torn_row(folder: Path, odd: Odd) -> None:
    file = folder / "metrics.jsonl"
    file.write_bytes(file.read_bytes()[:-9])


@kind
def metrics_windows(folder: Path, odd: Odd) -> None:
    file = folder / "metrics.jsonl"
    file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))


@kind
def metrics_odd_step(folder: Path, odd: Odd) -> None:
    rows_of(folder / "metrics.jsonl", lambda row: row.update(step=odd.number()))


@kind
def metrics_no_step(folder: Path, odd: Odd) -> None:
    rows_of(folder / "metrics.jsonl", lambda row: row.pop("step"))


@kind
def metrics_steps_back(folder: Path, odd: Odd) -> None:
    file = folder / "metrics.jsonl"
    file.write_text(file.read_text() + '{"step": 3, "eval/in/mean_reward": 1}\n')


@kind
def metrics_far_step(folder: Path, odd: Odd) -> None:
    edit(folder / "experiment.json", lambda told: told.update(total_steps=10**15, eval_every=1))
    rows_of(folder / "metrics.jsonl", lambda row: row.update(step=10**15))


@kind
def metrics_odd_number(folder: Path, odd: Odd) -> None:
    rows_of(folder / "metrics.jsonl", lambda row: row.update({key: odd.number() for key in row}))


@kind
def metrics_odd_return(folder: Path, odd: Odd) -> None:
    rows_of(folder / "metrics.jsonl", lambda row: row.update({"eval/in/mean_reward": odd.number()}))


@kind
def metrics_odd_length(folder: Path, odd: Odd) -> None:
    rows_of(folder / "metrics.jsonl", lambda row: row.update({"eval/in/length": odd.number()}))


@kind
def metrics_at_the_edge(folder: Path, odd: Odd) -> None:
    rows_of(
        folder / "metrics.jsonl",
        lambda row: row.update({k: 9.9e99 for k in row if k.startswith("eval/")}),
    )


@kind
def metrics_no_finite_number(folder: Path, odd: Odd) -> None:
    rows_of(
        folder / "metrics.jsonl",
        lambda row: row.update({k: None for k in row if k.startswith("eval/")}),
    )


@kind
def metrics_odd_key(folder: Path, odd: Odd) -> None:
    rows_of(
        folder / "metrics.jsonl",
        lambda row: row.update({f"eval/{odd.text()}/mean_reward": 1.0, f"eval/{odd.text()}": 1}),
    )


@kind
def metrics_many_keys(folder: Path, odd: Odd) -> None:
    more = {f"eval/{i}/length": i for i in range(3000)}
    rows_of(folder / "metrics.jsonl", lambda row: row.update(more))


@kind
def summary_odd_status(folder: Path, odd: Odd) -> None:
    edit(folder / "summary.json", lambda told: told.update(status=odd.value()))


@kind
def summary_odd_step(folder: Path, odd: Odd) -> None:
    edit(folder / "summary.json", lambda told: told.update(step=odd.number()))


@kind
def summary_odd_ends(folder: Path, odd: Odd) -> None:
    more = {"best": odd.value(), "last": {"eval/in/normalized": odd.value(), "step": odd.value()}}
    edit(folder / "summary.json", lambda told: told.update(more))


@kind
def summary_running(folder: Path, odd: Odd) -> None:
    edit(folder / "summary.json", lambda told: told.update(status="running"))


@kind
def timing_odd(folder: Path, odd: Odd) -> None:
    rows_of(folder / "timing.jsonl", lambda row: row.update({"time/fps": odd.number()}))


@kind
def timing_odd_clock(folder: Path, odd: Odd) -> None:
    rows_of(folder / "timing.jsonl", lambda row: row.update({"time/elapsed": odd.number()}))


@kind
def timing_odd_step(folder: Path, odd: Odd) -> None:
    rows_of(folder / "timing.jsonl", lambda row: row.update(step=odd.number()))


@kind
def provenance_odd(folder: Path, odd: Odd) -> None:
    more = {"kalmanac": odd.value(), "began": odd.value(), odd.text(): odd.value()}
    edit(folder / "provenance.json", lambda told: told.update(more))


@kind
def lock_odd(folder: Path, odd: Odd) -> None:
    edit(folder / "summary.json", lambda told: told.update(status="running"))
    told = {"pid": odd.number(), "started": odd.number(), "host": odd.value()}
    (folder / "lock.json").write_text(dump(told))


@kind
def lock_bytes(folder: Path, odd: Odd) -> None:
    edit(folder / "summary.json", lambda told: told.update(status="running"))
    (folder / "lock.json").write_bytes(odd.binary())


@kind
def lock_folder(folder: Path, odd: Odd) -> None:
    edit(folder / "summary.json", lambda told: told.update(status="running"))
    (folder / "lock.json").unlink(missing_ok=True)
    (folder / "lock.json").mkdir()


def _heatmap(folder: Path, told: Any) -> None:
    (folder / "evaluations").mkdir(exist_ok=True)
    (folder / "evaluations" / "heatmap.json").write_text(dump(told))


GRID = {"mu": [0.0, 1.0], "sigma": [0.0, 1.0], "win_rate": [[1.0, 1.0]] * 2,
        "length": [[3.0, 4.0]] * 2, "episodes": 3}  # fmt: skip


@kind
def heatmap_odd(folder: Path, odd: Odd) -> None:
    _heatmap(folder, odd.value())


@kind
def heatmap_odd_numbers(folder: Path, odd: Odd) -> None:
    told = {**GRID, "mu": [0.0, odd.number()], "length": [[odd.number(), 1.0]] * 2}
    _heatmap(folder, told)


@kind
def heatmap_odd_part(folder: Path, odd: Odd) -> None:
    _heatmap(folder, {**GRID, "win_rate": odd.value(), "episodes": odd.value()})


@kind
def heatmap_other_grid(folder: Path, odd: Odd) -> None:
    _heatmap(folder, GRID)


def _episode(folder: Path, about: Any, **arrays: Any) -> None:
    (folder / "evaluations").mkdir(exist_ok=True)
    x = np.arange(3.0)
    usual = {"observation": x[:, None], "action": np.zeros(3, int), "reward": x,
             "posterior_mean": x, "posterior_std": x + 1}  # fmt: skip
    told = {
        "format": "kalmanac-episode", "version": 1, "env": "best-arm", "agent": "gru",
        "training_seed": 0, "training_step": 1, "seed": 2, "deterministic": True,
        "terminated": True, "action_names": ["ask", "above", "below"], "mu": 0.5, "sigma": 0.5,
        **about,
    }  # fmt: skip
    file = folder / "evaluations" / "episode.npz"
    np.savez_compressed(file, about=np.array(dump(told)), **{**usual, **arrays})


@kind
def episode_bytes(folder: Path, odd: Odd) -> None:
    (folder / "evaluations").mkdir()
    (folder / "evaluations" / "episode.npz").write_bytes(b"PK\x03\x04" + odd.binary())


@kind
def episode_label(folder: Path, odd: Odd) -> None:
    _episode(folder, {"label": odd.text()})


@kind
def episode_odd_words(folder: Path, odd: Odd) -> None:
    _episode(folder, {"agent": odd.value(), "title": odd.value(), "action_names": odd.value()})


@kind
def episode_odd_bandit(folder: Path, odd: Odd) -> None:
    _episode(folder, {"mu": odd.number(), "sigma": odd.number(), "seed": odd.number()})


@kind
def episode_odd_action(folder: Path, odd: Odd) -> None:
    _episode(folder, {}, action=np.array([0, 99, -7]), posterior_mean=np.full(3, 1e308))


@kind
def episode_odd_arrays(folder: Path, odd: Odd) -> None:
    words = np.array(["a", "b", "c"])
    _episode(folder, {}, reward=words, posterior_std=np.full(3, np.nan), latent=np.zeros((3, 7)))


@kind
def episode_unpacked_is_huge(folder: Path, odd: Odd) -> None:
    _episode(folder, {}, truth=np.zeros((3, 3_000_000)))


@kind
def checkpoint_odd_names(folder: Path, odd: Odd) -> None:
    for name in ("step-x", "step-" + "9" * 40, "step-²", "step--5"):
        (folder / "checkpoints" / f"{name}.safetensors").write_bytes(odd.binary())


@kind
def checkpoint_bytes(folder: Path, odd: Odd) -> None:
    for file in (folder / "checkpoints").glob("step-*"):
        file.write_bytes(odd.binary())


@kind
def checkpoint_torn(folder: Path, odd: Odd) -> None:
    for file in (folder / "checkpoints").iterdir():
        file.write_bytes(file.read_bytes()[:-7])


@kind
def checkpoint_folder(folder: Path, odd: Odd) -> None:
    for file in (folder / "checkpoints").glob("step-*"):
        replaced(file, "folder")


@kind
def checkpoint_pipe(folder: Path, odd: Odd) -> None:
    for file in (folder / "checkpoints").glob("step-*"):
        replaced(file, "pipe")


@kind
def checkpoints_missing(folder: Path, odd: Odd) -> None:
    shutil.rmtree(folder / "checkpoints")


@kind
def checkpoints_are_a_file(folder: Path, odd: Odd) -> None:
    shutil.rmtree(folder / "checkpoints")
    (folder / "checkpoints").write_bytes(odd.binary())


@kind
def model_bytes(folder: Path, odd: Odd) -> None:
    (folder / "best.safetensors").write_bytes(odd.binary())


@kind
def model_torn(folder: Path, odd: Odd) -> None:
    replaced(folder / "best.safetensors", "torn")


@kind
def model_header(folder: Path, odd: Odd) -> None:
    head = dump({"__metadata__": {odd.text(): "x"}, "w": odd.value()}).encode()
    (folder / "best.safetensors").write_bytes(len(head).to_bytes(8, "little") + head)


@kind
def model_folder(folder: Path, odd: Odd) -> None:
    replaced(folder / "best.safetensors", "folder")


@kind
def model_missing(folder: Path, odd: Odd) -> None:
    replaced(folder / "best.safetensors", "missing")


def _renamed(name: bytes) -> Kind:
    """The run lies in a folder of this name, inside its own."""

    def change(folder: Path, odd: Odd) -> None:
        inside = os.path.join(os.fsencode(folder), name)  # noqa: PTH118
        aside = folder.with_name(f"{folder.name}-aside")
        folder.rename(aside)
        folder.mkdir()
        os.rename(aside, inside)  # noqa: PTH104

    return change


for _name, _bytes_of_it in {
    "long": b"n" * 255, "no-text": b"\xff\xfe", "two-lines": b"a\nb", "escape": b"\x1b[2J",
    "markup": b"[red]x", "bracket": b"[nope][", "dash": b"-rf", "dollar": rb"$\frac{$",
    "tag": b"<!--<script>", "quote": b"'\"", "wide": "日本語".encode(),
}.items():  # fmt: skip
    KINDS[f"name-{_name}"] = _renamed(_bytes_of_it)
