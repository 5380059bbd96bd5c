"""The verb `card`: a run's agent as a folder to share."""

import json

import pytest

pytest.importorskip("matplotlib")

from PIL import Image

from kalmanac._cli.program import main
from kalmanac._files.run_folder import RunFolder
from kalmanac._lab.play import load_run
from kalmanac._lab.trust import UntrustedError
from tests.report.episodes import Swing, untrained

pytestmark = pytest.mark.usefixtures("compiled_only")


@pytest.fixture
def run(tmp_path):
    """Two seeds of an untrained agent, evaluated once, in an environment of one's own."""
    for seed in (1, 0):
        model, experiment = untrained("gru", f"{Swing.__module__}:Swing", seed=seed)
        folder = tmp_path / f"seed{seed}"
        with RunFolder(folder, experiment.to_data(), events=False) as writer:
            writer.log(experiment.eval_every, {"eval/in/mean_reward": 2.0 + seed})
            writer.summarize(status="finished", step=experiment.eval_every)
        model.save(folder / "best.safetensors")
    return folder


def test_a_run_is_shared_and_played_by_the_rules_of_trust(run, tmp_path, capsys):
    out = tmp_path / "shared"
    assert main(["card", str(run), "--episodes", "2", "--out", str(out)]) == 0
    assert f'hf upload USER/NAME "{out}"' in capsys.readouterr().out
    assert sorted(file.name for file in out.iterdir()) == [
        "README.md", "config.json", "curve.png", "experiment.json", "model.safetensors",
        "replay.gif",
    ]  # fmt: skip
    for name in ("curve.png", "replay.gif"):
        with Image.open(out / name) as image:
            assert image.width > 300
    text = (out / "README.md").read_text()
    assert "over 2 new episodes" in text
    assert "Last evaluation of each of 2 seeds, 2.50 ± 0.50" in text
    assert "| 0 | 2.00 |\n| 1 | 3.00 |" in text
    assert json.loads((out / "config.json").read_text())["task"] == f"{Swing.__module__}:Swing"
    with pytest.raises(UntrustedError, match="whose environment"):
        load_run(out)
    model, experiment = load_run(out, trust=True)
    assert (experiment.encoder, model.settings.encoder) == ("gru", "gru")


def test_a_folder_that_is_no_run_gets_one_line(tmp_path, capsys):
    assert main(["card", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("kalmanac card: folder: got ")
