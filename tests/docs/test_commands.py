"""Every command, flag, setting and metric that a page names is there."""

import contextlib
import io
import json
import re
import shlex
from functools import cache
from itertools import pairwise
from pathlib import Path

import gymnasium
import pytest

from kalmanac._cli.program import VERBS, main
from kalmanac._encoders.registry import ENCODERS, encoder_settings
from kalmanac._envs.registry import ENVS
from kalmanac._lab.experiment import AGENTS
from kalmanac._lab.run import run
from kalmanac._suites.registry import PRESETS, SUITES
from tests.lab.tiny import TINY

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md"))
)
ADDED = {"tank", "track-missing"}  # by the pages on adding an environment and an experiment
SHORT = {"--steps", "--agent", "--help"}  # of `kalmanac train`: not in its list of options
PLACEHOLDER = re.compile(r"^(?:[A-Z]+|.*….*|.*[\w.]+:\w+)$")  # RUN, runs/…, module:NAME


def commands(page):
    """What stands after `kalmanac` in shell blocks and between backticks, as words."""
    text = (ROOT / page).read_text()
    for block in re.findall(r"```sh\n(.*?)```", text, re.S):
        for line in block.splitlines():
            for part in re.split(r"\s#\s.*", line)[0].split("&&"):
                if part.strip().startswith("kalmanac "):
                    yield shlex.split(part)[1:]
    for inline in re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.S)):
        if inline.startswith("kalmanac "):
            yield inline.split()[1:]


@cache
def flags(verb):
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.suppress(SystemExit):
        main([verb, "--help"])
    return set(re.findall(r"--[a-z][\w-]*", told.getvalue())) | SHORT


@pytest.mark.parametrize("page", PAGES)
def test_commands_of_the_pages_exist(page):
    for verb, *words in commands(page):
        if verb.startswith("--") or PLACEHOLDER.match(verb):  # kalmanac --help, kalmanac VERB
            continue
        assert verb in VERBS, f"{page}: kalmanac {verb}"
        asked = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert asked <= flags(verb), f"{page}: kalmanac {verb} {' '.join(words)}"
        first = next(iter(words), "TASK")
        if first.startswith("-") or PLACEHOLDER.match(first):
            continue
        known = {
            "train": {*PRESETS, *ENVS, *gymnasium.registry, *ADDED},
            "search": {*PRESETS, *ENVS},
            "sweep": {*SUITES, "all", *ADDED},
        }.get(verb)
        assert known is None or first in known, f"{page}: kalmanac {verb} {first}"
        for word, value in pairwise(words):
            assert word != "--encoder" or value in AGENTS, f"{page}: {value}"


def test_the_pages_name_many_commands():
    assert sum(1 for page in PAGES for _ in commands(page)) > 60


TROUBLE = (ROOT / "docs" / "troubleshooting.md").read_text()


def test_flags_that_help_in_trouble_exist():
    named = re.findall(r"`(--[a-z][\w-]*)(?: [^`]*)?`", TROUBLE)
    assert named
    assert set(named) <= flags("train") | flags("resume") | flags("sweep") | flags("eval")


def test_settings_of_encoders_that_help_in_trouble_exist():
    named = re.findall(r"--encoder-settings (\w+)=", TROUBLE)
    known = {name for encoder in ENCODERS for name in encoder_settings(encoder)}
    assert named
    assert set(named) <= known


def test_metrics_to_look_at_in_trouble_are_logged(tmp_path):
    run(TINY.changed({"encoder": "vssm+kf"}), tmp_path / "run", events=False)
    rows = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    logged = {key for row in rows for key in json.loads(row)}
    named = re.findall(r"`((?:train|eval|rollout)/[\w/]+)`", TROUBLE)
    assert named
    assert set(named) <= logged


@pytest.mark.parametrize(
    "words",
    [
        "which holds this experiment already",
        "which holds another experiment",
        "is writing",
        "which is damaged: its checksum does not hold",
        "losses or weights are not finite",
        "usable GPUs here",
        "is not installed: pip install",
        "did you mean",
        "updates stay eager, because they cannot be recorded: ",
    ],
)
def test_what_a_user_may_read_is_what_the_program_says(words):
    assert words in TROUBLE
    source = "".join(file.read_text() for file in (ROOT / "src" / "kalmanac").rglob("*.py"))
    assert words in re.sub(r'"\s*\n\s*f?"', "", source)


def test_extras_to_install_exist():
    pyproject = (ROOT / "pyproject.toml").read_text()
    named = set(re.findall(r"kalmanac\[(\w+)\]", TROUBLE))
    _, _, table = pyproject.partition("[project.optional-dependencies]\n")
    assert named <= set(re.findall(r"^(\w+) = \[", table.partition("\n[")[0], re.M))
    assert len(named) > 5
