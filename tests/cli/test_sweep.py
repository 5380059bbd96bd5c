"""The verb: what it says before it runs anything, and what it refuses."""

import importlib.util
import sys

import pytest

from kalmanac._cli.program import main


def test_a_dry_run_names_the_runs_and_makes_nothing(tmp_path, capsys):
    words = ["sweep", "best-arm", "latent-rollouts", "--preset", "quick", "--agents", "vssm"]
    assert main([*words, "--folder", str(tmp_path / "new"), "--dry-run"]) == 0
    head, *runs = capsys.readouterr().out.splitlines()
    assert head == "best-arm, latent-rollouts (quick): 10 runs of 1,600 steps, 0 done already"
    assert len(runs) == 10
    assert all(run.startswith("best-arm/vssm-seed") for run in runs)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["best-am"], "suite: got 'best-am'"),
        ([], "suite: got none, expected some of"),
        (["dmc", "--agents", "gruu"], "agents: got 'gruu'"),
        (["dmc", "--jobs", "0"], "jobs: got 0, expected at least 1"),
        (["dmc", "--seed", "3"], "seed: got it for a whole sweep, expected --seeds"),
        (["dmc", "--total-steps", "x"], "--total-steps: got x, expected int"),
        (["dmc", "--preset", "fast"], "--preset: got 'fast'"),
        (["dmc", "--device", "tpu"], "device: got 'tpu', expected auto, cpu or cuda"),
        (["dmc", "--device", "tpu", "--on", "ray"], "device: got 'tpu', expected auto, cpu or"),
        (["dmc", "--jbs", "2"], "flag: got '--jbs'"),
    ],
)
def test_a_wrong_call_is_one_line(words, message, capsys):
    assert main(["sweep", *words]) == 2
    complaint = capsys.readouterr().err
    assert complaint.startswith(f"kalmanac sweep: {message}")
    assert complaint.count("\n") == 1


@pytest.mark.parametrize("words", [[], ["--ray-address", "127.0.0.1:1"]])
def test_a_sweep_without_its_cluster_leaves_nothing_behind(words, tmp_path, capsys, monkeypatch):
    if not words:
        monkeypatch.setitem(sys.modules, "ray", None)  # as where it is not installed
    elif importlib.util.find_spec("ray") is None:
        pytest.skip('needs ray: pip install "kalmanac[ray]"')
    call = ["sweep", "best-arm", "--preset", "quick", "--on", "ray", *words]
    assert main([*call, "--folder", str(tmp_path / "new")]) == 2
    expected = "ray_address: got 127.0.0.1:1" if words else "ray is not installed: pip install"
    assert f"kalmanac sweep: {expected}" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
