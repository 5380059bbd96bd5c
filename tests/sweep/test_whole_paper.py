"""Every figure and table of the paper from one sweep and one report, at a tiny scale."""

import json

import pytest

from kalmanac.cli import main
from kalmanac.report.paper import ITEMS
from tests.sweep.small import FLAGS

pytest.importorskip("dm_control")
pytest.importorskip("popgym")
pytest.importorskip("rliable")

TASKS = ("best-arm", "dmc/walker-run", "RepeatFirstMedium")


@pytest.mark.slow
def test_a_sweep_and_a_report_draw_all_twelve_items(tmp_path, capsys):
    words = ["all", "--agents", "vssm+kf", "oracle", "--tasks", *TASKS, *FLAGS, "--jobs=2"]
    words += ["--threads=1", "--device=cpu", "--folder", str(tmp_path)]
    assert main(["sweep", *words]) == 0
    assert "32 of 32 runs are done" in capsys.readouterr().out
    assert main(["report", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "not drawn" not in told
    assert "32 runs (quick runs among them)" in told
    page = (tmp_path / "report" / "index.html").read_text()
    figures = sorted(file.stem for file in (tmp_path / "report" / "figures").glob("*.png"))
    assert all("quick" in name for name in figures)
    assert len([item for item in ITEMS if item.number is not None]) == 12
    for figure in figures:
        assert figure in page
    assert main(["sweep", *words]) == 0
    assert "32 done already" in capsys.readouterr().out
    labels = {
        json.loads(file.read_text())["label"] for file in tmp_path.glob("*/*/experiment.json")
    }
    assert labels == {"quick"}
