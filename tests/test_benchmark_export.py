"""The benchmark of exported agents runs from its command to its file."""

import json

import pytest


@pytest.mark.slow
def test_a_quick_run_prints_both_tables_and_writes_facts(bench, tmp_path, capsys):
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    out = tmp_path / "export.json"
    words = ["--quick", "--encoders", "vssm+kf", "--kinds", "continuous", "masks"]
    assert bench("export").main([*words, "--out", str(out)]) == 0
    found = json.loads(out.read_text())
    assert list(found["parity"]["vssm+kf"]) == ["continuous", "masks"]
    assert set(found["latency"]["vssm+kf"]) == {"session.act", "onnxruntime", "torch"}
    shown = capsys.readouterr().out
    assert "Largest difference from session.act" in shown
    assert "Microseconds a step" in shown
