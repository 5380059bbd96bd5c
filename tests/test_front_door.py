"""`import kalmanac`: quick, complete, and every public name has an example that runs."""

import ast
import doctest
import inspect
import re
import subprocess
import sys
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import pytest

import kalmanac

FRONT = Path(kalmanac.__file__)
NAMES = [name for name in kalmanac.__all__ if name != "__version__"]
HEAVY = ("torch", "numpy", "gymnasium", "numba", "rich", "matplotlib")
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def imports_for_type_checkers():
    """Name → module, as the block under TYPE_CHECKING has it."""
    block, *_ = (node for node in ast.parse(FRONT.read_text()).body if isinstance(node, ast.If))
    return {alias.asname: node.module for node in block.body for alias in node.names}


def public(name):
    return getattr(import_module(imports_for_type_checkers()[name]), name)


def docstring(name):
    """Of a class or a function its own; of a constant, the text that stands below it."""
    value = public(name)
    if inspect.isclass(value) or inspect.isroutine(value):
        return value.__doc__
    module = import_module(imports_for_type_checkers()[name])
    body = ast.parse(inspect.getsource(module)).body
    for node, below in pairwise(body):
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return below.value.value if isinstance(below, ast.Expr) else None
    return None


def test_importing_it_imports_nothing_heavy():
    code = f"import sys, kalmanac; print({{*{HEAVY}}} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("modules", ["kalmanac, gymnasium", "gymnasium, kalmanac"])
def test_gymnasium_knows_its_environment(modules):
    code = f"import {modules}; print(gymnasium.make('kalmanac/BestArm-v0').unwrapped.reset)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "BestArm.reset" in done.stdout, done.stderr


def test_type_checkers_and_python_see_the_same_names():
    assert imports_for_type_checkers() == kalmanac._HOMES
    assert set(NAMES) <= set(dir(kalmanac))
    assert not [name for name in NAMES if name.startswith("_")]


@pytest.mark.parametrize("name", NAMES)
def test_every_name_comes_from_where_it_is_defined(name):
    if name == "draw_episode":
        pytest.importorskip("matplotlib")
    assert getattr(kalmanac, name) is public(name)
    assert getattr(public(name), "__module__", kalmanac._HOMES[name]) == kalmanac._HOMES[name]


def test_other_names_are_refused_as_python_does_it():
    with pytest.raises(AttributeError, match="module 'kalmanac' has no attribute 'RecurentSAC'"):
        kalmanac.RecurentSAC  # noqa: B018
    with pytest.raises(ImportError):
        from kalmanac import nothing  # noqa: F401


def test_the_reference_has_exactly_the_public_names():
    page = (Path(__file__).parents[1] / "docs" / "api.md").read_text()
    assert sorted(re.findall(r"^::: kalmanac\.(\w+)$", page, re.M)) == sorted(NAMES)


NEEDED = {"draw_episode": "matplotlib", "MissingExtraError": "popgym"}  # by their examples


@pytest.mark.parametrize("name", NAMES)
def test_the_example_of_every_public_name_runs(name, tmp_path, monkeypatch):
    if name in NEEDED:
        pytest.importorskip(NEEDED[name])
    monkeypatch.chdir(tmp_path)
    text = docstring(name)
    assert text, f"{name} has no docstring"
    example = doctest.DocTestParser().get_doctest(text, {}, name, None, 0)
    assert example.examples, f"the docstring of {name} has no example"
    said: list[str] = []
    doctest.DocTestRunner(optionflags=FLAGS).run(example, out=said.append)
    assert not said, "".join(said)
