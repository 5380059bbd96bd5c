"""The benchmark of collecting runs, and its parts are the whole."""

import json

import pytest


@pytest.fixture
def script(bench):
    return bench("collecting")


def test_a_quick_run_tells_parts_rounds_and_evaluations(script, tmp_path, capsys):
    out = tmp_path / "collecting.json"
    assert script.main(["--quick", "--seeds", "2", "--out", str(out)]) == 0
    found = json.loads(out.read_text())
    parts = found["parts"]
    assert parts.keys() == {
        "acting", "environment", "observations", "replay", "the rest", "all but acting"
    }  # fmt: skip
    told = sum(parts[name] for name in ("environment", "observations", "replay", "the rest"))
    assert parts["all but acting"] == pytest.approx(told)
    assert found["round"].keys() == {"in turn", "overlap"}
    assert min(*found["round"].values(), *found["evaluation"].values()) > 0
    assert str(tmp_path) not in out.read_text()
    assert "evaluation" in capsys.readouterr().out
