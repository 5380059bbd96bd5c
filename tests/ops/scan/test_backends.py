"""Which backend runs: an explicit choice is obeyed or refused, never replaced."""

import threading

import pytest
import torch

from kalmanac._ops.scan.backends import BACKENDS, usable, use_backend
from kalmanac._ops.scan.kalman import kalman_scan
from kalmanac._ops.scan.linear import linear_scan
from tests.ops.scan.targets import every_backend_on_every_device


@pytest.fixture
def ran(monkeypatch):
    """The names of the backends that ran, in order; the backends themselves still run."""
    names = []

    def recorded(name, function):
        def call(inputs):
            names.append(name)
            return function(inputs)

        return call

    for name, row in list(BACKENDS.items()):
        watched = row._replace(kalman=recorded(name, row.kalman), linear=recorded(name, row.linear))
        monkeypatch.setitem(BACKENDS, name, watched)
    return names


def both_scans(dtype=torch.float32, device="cpu", steps=3, **options):
    x = torch.ones(2, steps, 2, dtype=dtype, device=device)
    a = torch.full((2,), 0.5, dtype=dtype, device=device)
    kalman_scan(a, x, a, x, x, **options)
    linear_scan(a, x, **options)


@every_backend_on_every_device
def test_a_call_can_choose(ran, target):
    target.require(torch.float32)
    both_scans(device=target.device, backend=target.backend)
    assert ran == [target.backend] * 2


@every_backend_on_every_device
def test_a_block_can_choose(ran, target):
    target.require(torch.float32)
    with use_backend(target.backend):
        both_scans(device=target.device)
    assert ran == [target.backend] * 2


def test_a_call_wins_over_a_block(ran):
    with use_backend("parallel"):
        both_scans(backend="reference")
    assert ran == ["reference"] * 2


def test_blocks_nest_and_end(ran):
    with use_backend("parallel"):
        with use_backend("reference"):
            both_scans()
        both_scans()
    assert ran == ["reference"] * 2 + ["parallel"] * 2
    ran.clear()
    both_scans()
    default = list(ran)
    with pytest.raises(KeyError), use_backend("reference"):
        raise KeyError
    ran.clear()
    both_scans()
    assert ran == default


def test_a_block_holds_for_its_own_thread_only(ran):
    both_scans()
    default = list(ran)
    ran.clear()
    other = next(name for name in ("reference", "parallel") if name not in default)
    entered, done = threading.Event(), threading.Event()

    def hold():
        with use_backend(other):
            entered.set()
            assert done.wait(timeout=60)

    thread = threading.Thread(target=hold)
    thread.start()
    assert entered.wait(timeout=60)
    both_scans()
    done.set()
    thread.join()
    assert ran == default


def test_without_a_choice_a_usable_backend_runs(ran):
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        for steps in (1, 3, 40):
            ran.clear()
            both_scans(dtype, steps=steps)
            assert len(ran) == 2
            assert all(usable(torch.device("cpu"), dtype)[name] is None for name in ran)


def test_without_a_choice_the_fused_cpu_backend_runs_on_the_cpu(ran):
    reason = usable(torch.device("cpu"), torch.float32)["cpu"]
    if reason is not None:
        pytest.skip(reason)
    both_scans()
    assert ran == ["cpu"] * 2


@pytest.fixture
def nowhere(monkeypatch):
    """A backend that can run nothing."""
    row = BACKENDS["reference"]._replace(
        name="nowhere", why_not=lambda device, dtype: f"no {dtype} on {device.type} today"
    )
    monkeypatch.setitem(BACKENDS, "nowhere", row)


@pytest.mark.usefixtures("nowhere")
def test_a_choice_that_cannot_run_is_refused_with_the_reason(ran):
    message = "^backend: 'nowhere' cannot run here: no torch.float32 on cpu today"
    x = torch.ones(2, 3, 2)
    a = torch.full((2,), 0.5)
    for scan in (lambda **o: kalman_scan(a, x, a, x, x, **o), lambda **o: linear_scan(a, x, **o)):
        with pytest.raises(ValueError, match=message):
            scan(backend="nowhere")
        with use_backend("nowhere"), pytest.raises(ValueError, match=message):
            scan()
        with use_backend("nowhere"):
            scan(backend="reference")
    assert ran == ["reference"] * 2


@pytest.mark.usefixtures("nowhere")
def test_usable_gives_reasons_for_the_whole_table():
    answers = usable(torch.device("cpu"), torch.float32)
    assert answers.keys() == BACKENDS.keys()
    assert answers["nowhere"] == "no torch.float32 on cpu today"
    assert answers["reference"] is None
    assert answers["parallel"] is None


@pytest.mark.parametrize("name", ["", "CPU", "quantum", "reference "])
def test_unknown_names_are_refused(name):
    known = ", ".join(BACKENDS)
    message = f"^backend: got {name!r}, expected one of {known}"
    with pytest.raises(ValueError, match=message), use_backend(name):
        pass
    with pytest.raises(ValueError, match=message):
        both_scans(backend=name)


def test_the_table_knows_its_rows_by_name():
    assert {"reference", "parallel", "cpu"} <= BACKENDS.keys()
    assert all(row.name == name for name, row in BACKENDS.items())
