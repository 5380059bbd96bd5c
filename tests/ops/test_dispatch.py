"""Which form runs: the answers on a CPU, and that nobody above asks by himself."""

import re
from pathlib import Path

import pytest
import torch

import kalmanac
from kalmanac._ops import dispatch

PACKAGE = Path(kalmanac.__file__).parent
DEVICE = re.compile(
    r"is_cuda|is_available|device\.type|torch\.cuda|version\.cuda|is_autocast_enabled"
    r"|[\"']cuda|[!=]= .(cpu|cuda)"  # a question in other words
)
BY_NAME = re.compile(r"\blate\(|import_module\(")


def test_above_operations_only_capture_asks_for_a_device() -> None:
    above = [x for x in PACKAGE.rglob("*.py") if x.relative_to(PACKAGE).parts[0] != "_ops"]
    asking = {str(x.relative_to(PACKAGE)) for x in above if DEVICE.search(x.read_text("utf-8"))}
    assert len(above) > 50
    assert asking <= {"_sac/cuda_graph.py"}


def test_operations_import_nothing_by_its_name() -> None:
    files = list((PACKAGE / "_ops").rglob("*.py"))
    assert len(files) > 20
    assert [str(x) for x in files if BY_NAME.search(x.read_text("utf-8"))] == []


def test_a_cpu_has_its_own_forms() -> None:
    x = torch.zeros(2, 3)
    assert not dispatch.fused(x)
    assert not dispatch.fused_products(x, x)
    assert not dispatch.pads_are_free(x)
    assert dispatch.packs_rows(x.device)
    assert dispatch.fused_cpu(x)
    with torch.autocast("cpu", torch.bfloat16):
        assert not dispatch.fused_cpu(x)


def test_what_is_at_hand_can_be_read() -> None:
    x = torch.zeros(2)
    assert dispatch.at_hand(x)
    assert dispatch.readable(x)
    assert not dispatch.at_hand(x.to("meta"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.int64], ids=str)
def test_the_fused_scan_is_one_that_can_run(dtype: torch.dtype) -> None:
    device = torch.device("cpu")
    found = dispatch.fused_scan(device, dtype)
    reason = dispatch.why_no_cpu_scan(device, dtype)
    assert found == ("cpu" if reason is None else None)
    assert dispatch.fused_scan(torch.device("meta"), dtype) is None


def test_only_what_learns_is_differentiated() -> None:
    x, y = torch.zeros(2), torch.zeros(2, requires_grad=True)
    assert dispatch.differentiates(x, y)
    assert not dispatch.differentiates(x)
    with torch.no_grad():
        assert not dispatch.differentiates(x, y)
