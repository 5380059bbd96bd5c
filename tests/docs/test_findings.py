"""Tables of the findings that are drawn from many files are those of their files."""

import json
from pathlib import Path

import pytest

from kalmanac._suites.dropout import CONTROL

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/findings.md").read_text()


@pytest.fixture
def gaps(bench):
    """The shoot-out's script, and what its files say."""
    script = bench("dropout")
    return script, script.read(ROOT / "results/dropout")


@pytest.mark.parametrize("agent", ["vssm+kf", "gru", "transformer"])
@pytest.mark.parametrize(("task", "form"), [("track", ".2f"), ("motor", ".2f"), (CONTROL, ".1f")])
def test_half_of_the_readings_missing(gaps, task, form, agent):
    script, found = gaps
    whole = script.Cell(task, agent, 0.0, True)
    told = found[whole]
    assert len(told) == 3
    cells = [f"{sum(told) / 3:{form}}"]
    for knows in (True, False):
        cell = whole._replace(dropout=0.5, told=knows)
        late, lost = found.get(cell), script.loss(found, cell)
        assert late is None or len(late) == 3
        cells += ["–", ""] if late is None else [f"{sum(late) / 3:{form}}", f"{lost:.1%}"]
    row = " | ".join(cells).replace("-", "−").replace("%", " %").replace("|  |", "| |")
    assert f"| {task.split('/')[-1]}, {agent} | {row.rstrip()}" in PAGE


def test_the_motor():
    rows = json.loads((ROOT / "results/motor/motor.json").read_text())["rows"]
    agent, rival = (
        rows[name]["0.5"] for name in ("vssm+kf, told", "PI behind the exact filter, best a")
    )
    assert agent["runs"] == 3
    assert agent["return"][0] > 1.1 * rival["return"][0], "within a tenth"
    assert f"| {rival['return'][0]:.1f} | {rival['error'][0]:.1f} |".replace("-", "−") in PAGE
    assert f"−46.1, −45.9, −46.7 | {agent['error'][0]:.1f} |" in PAGE
