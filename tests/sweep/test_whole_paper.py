"""Every figure and table of the paper from one sweep and one report, at a tiny scale."""

import json

import pytest

from kalmanac._cli.program import main
from tests.sweep.small import FLAGS

pytest.importorskip("dm_control")
pytest.importorskip("popgym")
pytest.importorskip("rliable")

TASKS = ("best-arm", "dmc/walker-run", "RepeatFirstMedium")
FIGURES = {  # by the paper's items
    1: ["best-arm-episodes"],
    2: ["best-arm-returns-lengths"],
    3: ["best-arm-heatmaps"],
    4: ["best-arm-latent"],
    5: ["dmc-aggregate"],
    6: ["dmc-noise-ablation"],
    7: ["popgym-aggregate", "popgym-aggregate-plain"],
    8: ["popgym-size-ablation"],
    9: [
        "curves-best-arm-lengths", "curves-best-arm-returns", "curves-dmc", "curves-dmc-noise",
        "curves-popgym-mmer", "curves-popgym-returns", "curves-popgym-size",
    ],
    10: ["dmc-design", "curves-dmc-design"],
    11: ["dmc-action-noise"],
    12: ["popgym-final-mmer"],
}  # fmt: skip


@pytest.mark.slow
def test_a_sweep_and_a_report_draw_all_twelve_items(tmp_path, capsys):
    words = ["all", "--agents", "vssm+kf", "oracle", "--tasks", *TASKS, *FLAGS, "--jobs=2"]
    words += ["--threads=1", "--device=cpu", "--folder", str(tmp_path)]
    assert main(["sweep", *words]) == 0
    assert "32 of 32 runs are done" in capsys.readouterr().out
    assert main(["report", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert "not drawn" not in output
    assert "32 runs (quick runs among them)" in output
    page = (tmp_path / "report" / "index.html").read_text()
    figures = {file.stem for file in (tmp_path / "report" / "figures").glob("*.png")}
    expected = sorted(name for names in FIGURES.values() for name in names)
    assert sorted(name.partition("-quick")[0] for name in figures) == expected
    assert all("quick" in name and name in page for name in figures)
    assert "popgym-table-quick.csv" in {
        file.name for file in (tmp_path / "report/tables").iterdir()
    }
    assert main(["sweep", *words]) == 0
    assert "32 done already" in capsys.readouterr().out
    labels = {
        json.loads(file.read_text())["label"] for file in tmp_path.glob("*/*/experiment.json")
    }
    assert labels == {"quick"}
