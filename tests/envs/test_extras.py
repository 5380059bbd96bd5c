"""Without an optional package, or with a version that breaks, one line says what to install."""

import importlib
import importlib.metadata
import re
from pathlib import Path

import pytest

from kalmanac._cli.program import main
from kalmanac._envs import extras
from kalmanac._envs.extras import EXTRAS, WITHOUT_WHEEL, MissingExtraError, load, missing
from kalmanac._envs.registry import make_vector

ROOT = Path(__file__).parents[2]
PAPER = ("dmc", "popgym")
ENV = {"dmc": "dmc/cheetah-run", "popgym": "popgym/RepeatPreviousEasy"}


@pytest.fixture
def installed(monkeypatch):
    """Pretends that packages have other versions, or are not there."""
    real = importlib.metadata.version

    def pretend(**versions):
        def version(name):
            found = versions.get(name, real(name) if name not in versions else None)
            if found is None:
                raise importlib.metadata.PackageNotFoundError(name)
            return found

        monkeypatch.setattr(importlib.metadata, "version", version)

    return pretend


def test_here_those_of_the_paper_are_there():
    assert [missing(extra) for extra in PAPER] == [None, None]


@pytest.mark.parametrize(
    ("extra", "versions", "told"),
    [
        ("dmc", {"dm_control": None}, 'dm_control is not installed: pip install "kalmanac[dmc]"'),
        ("dmc", {"mujoco": None}, 'mujoco is not installed: pip install "kalmanac[dmc]"'),
        (
            "dmc", {"mujoco": "4.0.1"},
            "mujoco: got version 4.0.1, expected 3.17 or newer, before 4 (no task of dm_control "
            '1.0 loads with another one): pip install "mujoco>=3.17,<4"',
        ),
        ("popgym", {"popgym": None}, 'popgym is not installed: pip install "kalmanac[popgym]"'),
        ("popgym", {"popgym": "1.0.7"}, "popgym: got version 1.0.7, expected 1.0.6 or newer, befo"),
    ],
)  # fmt: skip
def test_one_line_says_what_to_install(extra, versions, told, installed, capsys, tmp_path):
    installed(**versions)
    with pytest.raises(MissingExtraError, match=re.escape(told)):
        make_vector(ENV[extra], 1)
    assert main(["train", ENV[extra], "--steps", "10", "--folder", str(tmp_path / "x")]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"kalmanac train: {told}")
    assert said.err.count("\n") == 1
    assert main(["envs", extra]) == 0
    listed = capsys.readouterr().out
    assert f"{ENV[extra]} " in listed
    assert f"{extra}/…: {told}" in listed


@pytest.mark.parametrize(
    ("extra", "package", "last"), [("dmc", "dm_control", 12), ("bullet", "pybullet", 11)]
)
def test_a_python_without_wheels_is_named(extra, package, last, installed, monkeypatch):
    installed(**{package: None})
    monkeypatch.setattr(extras.sys, "version_info", (3, last, 9, "final", 0))
    assert missing(extra) == f'{package} is not installed: pip install "kalmanac[{extra}]"'
    monkeypatch.setattr(extras.sys, "version_info", (3, last + 1, 0, "final", 0))
    assert missing(extra) == (
        f"{package} is not installed: got Python 3.{last + 1}, expected one before "
        f"3.{last + 1}, for which there are wheels"
    )


def test_a_package_that_fails_to_import_is_named(monkeypatch):
    def broken(name):
        raise AttributeError("module 'mujoco' has\nno attribute 'mjtGeom'")

    monkeypatch.setattr(extras.importlib, "import_module", broken)
    with pytest.raises(MissingExtraError) as refusal:
        load("dmc", "dm_control.suite")
    assert str(refusal.value) == (
        "dm_control.suite cannot be imported (module 'mujoco' has no attribute 'mjtGeom'): "
        'pip install "kalmanac[dmc]"'
    )


def test_the_versions_are_those_of_the_project_file():
    text = (ROOT / "pyproject.toml").read_text()
    for packages in EXTRAS.values():
        for package, (lowest, beyond, _) in packages.items():
            ranged, exact = f'"{package}>={lowest},<{beyond}', f'"{package}=={lowest}"'
            assert re.search(rf"{re.escape(ranged)}[;\"]", text) or exact in text
    first = ".".join(map(str, WITHOUT_WHEEL["dm_control"]))  # newer Pythons leave it out
    assert re.search(rf'"dm_control>=.*; python_version < \'{first}\'"', text)
