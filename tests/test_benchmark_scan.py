"""The benchmark runs, says what it measured, and times nobody who is wrong."""

import json
import re

import pytest
import torch

from kalmanac._ops.scan.backends import BACKENDS, usable
from kalmanac._ops.scan.inputs import Belief

pytestmark = pytest.mark.usefixtures("compiled_only")

CPU = torch.device("cpu")


@pytest.mark.slow
def test_quick_run_writes_times_ratios_and_facts(bench, tmp_path, capsys):
    out = tmp_path / "scan.json"
    assert (
        bench("scan").main(
            ["--quick", "--only", "kalman", "linear", "gru", "pytorch", "--out", str(out)]
        )
        == 0
    )
    found = json.loads(out.read_text())
    assert found["command"].startswith("python benchmarks/scan.py --quick")
    assert str(tmp_path) not in out.read_text()
    assert found["versions"]["torch"] == torch.__version__
    assert found["copy_bandwidth_bytes_per_second"] > 0
    (race,) = found["races"]
    rows = {row["name"]: row for row in race["rows"]}
    runnable = [n for n, why in usable(CPU, torch.float32).items() if why is None]
    assert {f"kalman {n}" for n in runnable} | {f"linear {n}" for n in runnable} <= set(rows)
    assert {"PyTorch scan", "PyTorch loop", "nn.GRU"} <= set(rows)
    for row in rows.values():
        for mode in ("forward eager", "both eager"):
            assert row["times"][mode]["median"] > 0
            assert len(row["times"][mode]["samples"]) == 2
        assert row["note"]
    assert race["refused"] == {}
    assert "skipped JAX scan: not asked for" in capsys.readouterr().out
    subject, others = next(iter(race["ratios"].items()))
    expected = rows["nn.GRU"]["times"]["both eager"]["median"]
    expected /= rows[subject]["times"]["both eager"]["median"]
    assert others["nn.GRU"]["both"] == pytest.approx(expected)


def test_floor_and_fraction_follow_from_bytes_and_bandwidth(bench):
    race, problem = bench("race"), bench("problem")
    run = race.Race(problem.Size(2, 8, 4), CPU, race.RaceRules(2, 1e-4, 5.0), {})
    run.run(bench("plain_pytorch").plain_pytorch())
    times = run.result(bandwidth=1e9)["rows"][0]["times"]
    assert times["forward eager"]["floor"] == pytest.approx(20 * 64 / 1e9)
    both = times["both eager"]
    assert both["floor"] == pytest.approx(56 * 64 / 1e9)
    assert both["times_floor"] == pytest.approx(both["median"] / both["floor"])
    assert both["fraction_of_copy_bandwidth"] == pytest.approx(1 / both["times_floor"])


def wrong_values(honest):
    def kalman(x):
        posterior, final = honest(x)
        return Belief(posterior.mean * (1 + 1e-4), posterior.variance), final

    return kalman


class WrongGradient(torch.autograd.Function):
    """The identity with a gradient 0.1 % too large."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 1.001


def wrong_gradient(honest):
    return lambda x: honest(x._replace(q=WrongGradient.apply(x.q)))


def crashing(honest):
    def kalman(x):
        raise RuntimeError("illegal instruction")

    return kalman


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (wrong_values, "mean is off by"),
        (wrong_gradient, "dq is off by"),
        (crashing, "crashed: RuntimeError: illegal instruction"),
    ],
)
def test_a_sabotaged_backend_is_refused_and_the_others_are_timed(
    damage, told, bench, tmp_path, capsys, monkeypatch
):
    honest = BACKENDS["parallel"]
    monkeypatch.setitem(BACKENDS, "parallel", honest._replace(kalman=damage(honest.kalman)))
    out = tmp_path / "scan.json"
    call = ["--quick", "--only", "parallel", "pytorch", "--out", str(out)]
    assert bench("scan").main(call) == 1
    assert re.search(f"REFUSED .*kalman parallel: {told}", capsys.readouterr().err)
    (race,) = json.loads(out.read_text())["races"]
    assert told in race["refused"]["kalman parallel"]
    names = [row["name"] for row in race["rows"]]
    assert "kalman parallel" not in names
    assert "PyTorch scan" in names


def test_a_few_lanes_of_a_large_size_have_the_truth_of_the_whole(bench, monkeypatch):
    agreement, problem = bench("agreement"), bench("problem")
    inputs = problem.make_inputs(problem.Size(6, 150, 20), CPU, 0)
    whole, everything = agreement.choose_lanes(inputs)
    assert everything is inputs
    monkeypatch.setattr(agreement, "WHOLE", 1)
    lanes, probe = agreement.choose_lanes(inputs)
    assert (len(lanes.rows), len(lanes.channels)) == (4, 16)
    right = agreement.truth(probe, lanes, "softplus")
    full = agreement.truth(probe, whole, "softplus")
    for name, expected in right.items():
        assert torch.allclose(lanes.of(full[name]), expected, rtol=1e-12, atol=1e-14), name


def test_peers_in_plain_pytorch_compute_in_float32(bench):
    """A peer in double precision would make every ratio look better than it is."""
    plain, problem = bench("plain_pytorch"), bench("problem")
    inputs = problem.make_inputs(problem.Size(2, 9, 3), CPU, 0)
    seen = set()
    operators = torch.utils._python_dispatch.TorchDispatchMode

    class Watch(operators):
        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            came = operator(*args, **(kwargs or {}))
            seen.update(
                x.dtype
                for x in torch.utils._pytree.tree_leaves(came)
                if isinstance(x, torch.Tensor)
            )
            return came

    with Watch():
        for contender in plain.plain_pytorch():
            contender.both(inputs)
    assert seen == {torch.float32}


def test_loops_over_many_steps_are_skipped_with_a_reason(bench, monkeypatch):
    contenders, problem = bench("contenders"), bench("problem")
    monkeypatch.setattr(contenders, "LOOP_STEPS", 4)
    inputs = problem.make_inputs(problem.Size(1, 5, 2), CPU, 0)
    assert contenders.too_long(inputs) == "5 steps are too many for a loop in Python"


def test_a_scan_that_would_not_fit_is_skipped_with_a_reason(bench, monkeypatch):
    plain, problem = bench("plain_pytorch"), bench("problem")
    inputs = problem.make_inputs(problem.Size(1, 5, 2), CPU, 0)
    assert plain.too_large(inputs) is None
    monkeypatch.setattr(plain, "SCAN_BYTES", 1 << 50)
    assert "would need" in plain.too_large(inputs)


@pytest.mark.parametrize("text", ["32,64", "a,b,c", "0,4,4"])
def test_a_bad_size_is_named(text, bench, capsys):
    with pytest.raises(SystemExit) as stop:
        bench("scan").main(["--sizes", text])
    assert stop.value.code == 2
    assert f"got {text!r}, expected B,T,N" in capsys.readouterr().err


@pytest.mark.slow
def test_the_jax_peer_agrees_and_is_timed(bench, tmp_path):
    pytest.importorskip("jax")
    out = tmp_path / "scan.json"
    assert bench("scan").main(["--quick", "--only", "jax", "pytorch", "--out", str(out)]) == 0
    (race,) = json.loads(out.read_text())["races"]
    (row,) = [row for row in race["rows"] if row["name"] == "JAX scan"]
    assert row["agreement"]["error"] <= row["agreement"]["budget"]
