"""The verb `export`, from words to exit status."""

import json

import pytest
import torch

from kalmanac._cli.program import main
from kalmanac._lab.play import PRETRAINED
from kalmanac._sac import export

RUN = PRETRAINED / "best-arm"


def told(file):
    extra = {"metadata.json": ""}
    torch.export.load(file, extra_files=extra)
    return json.loads(extra["metadata.json"])


@pytest.mark.slow
def test_a_run_and_a_model_file_give_the_same_agent(tmp_path, capsys):
    first, second = tmp_path / "new" / "a.pt2", tmp_path / "b.pt2"
    words = ["--to", "torch", "--distribution", "--out"]
    assert main(["export", str(RUN), *words, str(first)]) == 0
    assert capsys.readouterr().out.startswith(f"{first}: vssm+kf, step ")
    model = tmp_path / "model.safetensors"
    model.write_bytes((RUN / "best.safetensors").read_bytes())
    assert main(["export", str(model), "--to", "torch"]) == 0
    assert told(first)["digest"] == told(model.with_suffix(".pt2"))["digest"]
    assert "logits" in [output["name"] for output in told(first)["outputs"]]
    assert not second.exists()


def test_an_onnx_file_of_the_best_model_beside_it(tmp_path, capsys):
    pytest.importorskip("onnxscript")
    onnxruntime = pytest.importorskip("onnxruntime")
    (tmp_path / "best.safetensors").write_bytes((RUN / "best.safetensors").read_bytes())
    assert main(["export", str(tmp_path)]) == 0
    session = onnxruntime.InferenceSession(tmp_path / "best.onnx")
    assert [x.name for x in session.get_inputs()] == [
        "obs", "h_in_mean", "h_in_variance", "h_in_previous_action", "episode_start",
    ]  # fmt: skip
    assert session.get_inputs()[0].shape == ["batch", 1]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([str(RUN), "--out", "a.pt2"], "out: got a.pt2, expected a name in .onnx"),
        ([str(RUN), "--to", "jax"], "--to: got 'jax'; expected one of onnx, torch"),
        (["nothing"], "path: got 'nothing', expected an existing model file or folder"),
        ([], "run_or_model: got none, expected kalmanac export RUN_OR_MODEL"),
    ],
)
def test_a_wrong_call_is_one_line(words, line, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["export", *words]) == 2
    assert capsys.readouterr().err.startswith(f"kalmanac export: {line}")


def test_without_onnx_the_extra_is_named(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(export, "find_spec", lambda name: None)
    assert main(["export", str(RUN), "--out", str(tmp_path / "a.onnx")]) == 2
    assert 'pip install "kalmanac[export]"' in capsys.readouterr().err
