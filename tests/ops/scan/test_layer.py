"""The filter between two projections, in pieces, is the three one after the other."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from kalmanac._ops.scan.backends import use_backend
from kalmanac._ops.scan.cpu import layer as pieces
from kalmanac._ops.scan.inputs import Belief
from kalmanac._ops.scan.kalman import kalman_scan_packed
from kalmanac._ops.scan.layer import has_kalman_layer, kalman_layer
from tests.ops.scan import budgets
from tests.ops.scan.cases import ORDINARY

pytestmark = pytest.mark.skipif(
    not has_kalman_layer(torch.zeros(1, 1, 1)), reason="numba is not installed"
)
B, T, E, N = 7, 9, 3, 5
FLOORS = {"r_floor": 1e-3, "q_floor": 1e-2}


def given(layout: str, features: int, dtype: torch.dtype, *, started: bool) -> dict[str, Tensor]:
    """Everything with a gradient, by name."""
    random = torch.Generator().manual_seed(len(layout) + features)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=random, dtype=torch.float64)

    found = {"a": torch.linspace(0.5, 0.999, N, dtype=torch.float64), "h": draw(B, T, E)}
    found |= {"W": draw(len(layout) * N, E), "c": draw(len(layout) * N)}
    found |= {"V": draw(4, features * N), "d": draw(4)}
    if "u" in layout:
        found["b"] = draw(N)
    if "q" not in layout:
        found["q"] = draw(N)
    if started:
        found |= {"m": draw(B, N), "P": draw(B, N).exp()}
    return {name: x.to(dtype).requires_grad_() for name, x in found.items()}


def answers(x: dict[str, Tensor], *, fused: bool, **options: Any) -> dict[str, Tensor]:
    """z, the last belief and the gradients of everything."""
    state = Belief(x["m"], x["P"]) if "m" in x else None
    rest = options | FLOORS | {"b": x.get("b"), "state": state}
    if fused:
        into, out_of = (x["W"], x["c"]), (x["V"], x["d"])
        z, last = kalman_layer(x["a"], x["h"], into, out_of, x.get("q"), **rest)
    else:
        signals = F.linear(x["h"], x["W"], x["c"])
        posterior, last = kalman_scan_packed(x["a"], signals, x.get("q"), **rest)[:2]
        features = torch.cat(posterior, -1)[..., : x["V"].shape[1]]
        z = F.linear(features, x["V"], x["d"])
    random = torch.Generator().manual_seed(0)
    pull = [torch.randn(y.shape, generator=random).to(y.dtype) for y in (z, *last)]
    slopes = torch.autograd.grad((z, *last), list(x.values()), pull)
    named = {f"into {name}": g for name, g in zip(x, slopes, strict=True)}
    return {"z": z, "mean": last.mean, "variance": last.variance} | named


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("flagged", [True, False])
@pytest.mark.parametrize("features", [1, 2])
@pytest.mark.parametrize("layout", ["uwr", "wr", "qruw"])
def test_values_and_gradients(
    layout: str, features: int, flagged: bool, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "NUMBERS_A_THREAD", 2 * T * len(layout) * N)
    x = given(layout, features, torch.float64, started=flagged)
    options: dict[str, Any] = {"layout": layout}
    if flagged:
        options["lengths"] = torch.tensor([T, 3, 0, T, 1, 5, T])
        options["reset"] = torch.rand(B, T, generator=torch.Generator().manual_seed(1)) < 0.2
        options["observed"] = torch.rand(B, T, generator=torch.Generator().manual_seed(2)) < 0.7
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert len(pieces.row_pieces(B, T * len(layout) * N)) > 1
        found = answers(x, fused=True, **options)
    finally:
        torch.set_num_threads(before)
    with use_backend("reference"):
        truth = answers(x, fused=False, **options)
    budgets.assert_same(found, truth, 1e-11)


def test_float32_keeps_the_budget_of_the_scan() -> None:
    x = given("uwr", 1, torch.float32, started=True)
    wide = {name: y.detach().double().requires_grad_() for name, y in x.items()}
    found, truth = answers(x, fused=True), answers(wide, fused=False)
    errors = {name: budgets.error(y, truth[name]) for name, y in found.items()}
    budgets.check(errors, budgets.gradients(torch.float32, ORDINARY))


def test_nothing_is_kept_where_no_backward_can_follow() -> None:
    x = given("uwr", 1, torch.float32, started=False)
    into, out_of = (x["W"], x["c"]), (x["V"], x["d"])
    with torch.no_grad():
        alone, _ = kalman_layer(x["a"], x["h"], into, out_of, x["q"], b=x["b"], **FLOORS)
    learnt, _ = kalman_layer(x["a"], x["h"], into, out_of, x["q"], b=x["b"], **FLOORS)
    assert torch.equal(alone, learnt)
    assert learnt.requires_grad
    assert not alone.requires_grad


def test_a_gradient_of_the_last_belief_alone() -> None:
    x = given("uwr", 1, torch.float64, started=False)
    into, out_of = (x["W"], x["c"]), (x["V"], x["d"])
    _, last = kalman_layer(x["a"], x["h"], into, out_of, x["q"], b=x["b"], **FLOORS)
    with use_backend("reference"):
        signals = F.linear(x["h"], *into)
        _, truth = kalman_scan_packed(x["a"], signals, x["q"], b=x["b"], **FLOORS)[:2]
    for one, other in zip(last, truth, strict=True):
        named = [x["a"], x["h"], x["W"], x["c"], x["q"]]
        mine = torch.autograd.grad(one.sum(), named, retain_graph=True)
        its = torch.autograd.grad(other.sum(), named, retain_graph=True)
        torch.testing.assert_close(mine, its)


@pytest.mark.parametrize("threads", [1, 2, 3, 16])
@pytest.mark.parametrize("rows", [1, 2, 5, 9, 64, 65])
def test_pieces_cover_the_rows_and_share_them_evenly(rows: int, threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = pieces.row_pieces(rows, pieces.NUMBERS_A_THREAD // 4)
    finally:
        torch.set_num_threads(before)
    assert [i for piece in found for i in range(piece.start, piece.stop)] == list(range(rows))
    assert all((x.stop - x.start) % threads == 0 for x in found[:-1])
    assert max(x.stop - x.start for x in found) <= 6 * threads


def test_where_there_is_no_layer() -> None:
    h = torch.randn(2, 3, 4)
    assert has_kalman_layer(h)
    assert not has_kalman_layer(h.bfloat16())
    assert not has_kalman_layer(h[:0])
    assert not has_kalman_layer(h[0])
    with use_backend("parallel"):
        assert not has_kalman_layer(h)
    with torch.autocast("cpu", torch.bfloat16):
        assert not has_kalman_layer(h)


def test_a_state_of_other_channels_is_refused() -> None:
    x = given("uwr", 1, torch.float32, started=False)
    state = Belief(torch.zeros(B, N + 1), torch.ones(B, N + 1))
    with pytest.raises(ValueError, match=r"state.mean: got shape \(7, 6\), expected"):
        kalman_layer(
            x["a"], x["h"], (x["W"], x["c"]), (x["V"], x["d"]), x["q"], b=x["b"], state=state
        )
