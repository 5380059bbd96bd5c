"""The benchmark of collecting runs, and its parts are the whole."""

import importlib
import json
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def bench(monkeypatch):
    """The script, imported as it runs."""
    monkeypatch.syspath_prepend(str(FOLDER))
    yield importlib.import_module("collecting")
    for path in FOLDER.glob("*.py"):
        sys.modules.pop(path.stem, None)


def test_a_quick_run_tells_parts_rounds_and_evaluations(bench, tmp_path, capsys):
    out = tmp_path / "collecting.json"
    assert bench.main(["--quick", "--seeds", "2", "--out", str(out)]) == 0
    found = json.loads(out.read_text())
    parts = found["parts"]
    assert parts.keys() == {
        "acting", "environment", "senses", "replay", "the rest", "all but acting"
    }  # fmt: skip
    told = sum(parts[name] for name in ("environment", "senses", "replay", "the rest"))
    assert parts["all but acting"] == pytest.approx(told)
    assert found["round"].keys() == {"in turn", "overlap"}
    assert min(*found["round"].values(), *found["evaluation"].values()) > 0
    assert str(tmp_path) not in out.read_text()
    assert "evaluation" in capsys.readouterr().out
