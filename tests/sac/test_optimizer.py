"""Adam over flat tensors: against torch's own on single parameters, plain and as kernels."""

import pytest
import torch
from torch import Tensor

from kalmanac._ops import adam as adam_step_module
from kalmanac._sac.optimizer import Adam, Trailing, flatten_parameters

# fused on the cpu: Triton's interpreter
FORMS = [("cpu", False), ("cpu", True), pytest.param(("cuda", True), marks=pytest.mark.gpu)]
SHAPES = [(3, 5), (17,), (), (40, 40)]


@pytest.fixture(params=FORMS)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where the tensors lie; the form that is asked for runs there."""
    name, fused = request.param
    monkeypatch.setattr(adam_step_module, "fused", lambda x: fused)
    monkeypatch.setattr(adam_step_module, "PIECE", 3)
    return name


def parameters(device: str) -> list[Tensor]:
    random = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=random).to(device).requires_grad_() for shape in SHAPES]


def make_adam(
    device: str, betas: tuple[float, float] = (0.9, 0.999)
) -> tuple[Adam, list[Tensor], Tensor]:
    """Two groups, of which the second is followed."""
    mine = parameters(device)
    trailing = flatten_parameters([x.detach().clone() for x in mine[2:]])
    adam = Adam({"a": mine[:2], "b": mine[2:]}, 0.01, Trailing({"b": 0.1}, trailing), betas)
    return adam, mine, trailing


@pytest.mark.parametrize("max_norm", [None, 2.0])
@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.95, 0.98)])
def test_it_moves_as_torch_does(
    max_norm: float | None, betas: tuple[float, float], device: str
) -> None:
    adam, mine, trailing = make_adam(device, betas)
    theirs = parameters(device)
    plain = torch.optim.Adam(theirs, lr=0.01, betas=betas)
    average = [x.detach().clone() for x in theirs[2:]]
    random = torch.Generator().manual_seed(1)
    for _ in range(5):
        gradients = [torch.randn(s, generator=random).to(device) for s in SHAPES]
        norms = adam.step(gradients, max_norm, ("a", "b"))
        for x, g in zip(theirs, gradients, strict=True):
            x.grad = g.clone()
        expected = [
            torch.nn.utils.clip_grad_norm_(own, max_norm or 1e9) for own in (theirs[:2], theirs[2:])
        ]
        plain.step()
        for x, y in zip(average, theirs[2:], strict=True):
            x.lerp_(y.detach(), 0.1)
        for x, y in zip(norms.values(), expected, strict=True):
            torch.testing.assert_close(x, y)
    for x, y in zip(mine, theirs, strict=True):
        torch.testing.assert_close(x, y)
    torch.testing.assert_close(trailing[16 : 16 + 1600], average[1].flatten())


def test_neighboring_groups_are_followed_each_at_its_rate(device: str) -> None:
    mine = parameters(device)
    trailing = flatten_parameters([x.detach().clone() for x in mine[:3]])
    before = trailing.clone()
    groups = {"a": mine[:2], "b": mine[2:3], "c": mine[3:]}
    adam = Adam(groups, 0.01, Trailing({"a": 0.25, "b": 0.5}, trailing))
    adam.step([torch.ones(shape, device=device) for shape in SHAPES], None, ("a",))
    rates = torch.full_like(before, 0.5)
    rates[: adam.spans["a"].stop] = 0.25
    torch.testing.assert_close(trailing, before.lerp(adam.values[: len(trailing)], rates))
    assert not torch.equal(trailing, before)


def test_an_average_over_a_share_of_all_steps(device: str) -> None:
    mine = parameters(device)
    trailing = flatten_parameters([x.detach().clone() for x in mine[:3]])
    groups = {"a": mine[:2], "b": mine[2:3], "c": mine[3:]}
    adam = Adam(groups, 0.01, Trailing({"a": 0.4, "b": 0.5}, trailing, fades=2.0))
    border = adam.spans["a"].stop
    for rate in (0.4, 0.4, 0.4, 0.4, 2 / 5, 2 / 6, 2 / 7):  # at most 2/n behind n steps
        before = trailing.clone()
        adam.step([torch.ones(shape, device=device) for shape in SHAPES], None, ("a",))
        rates = torch.full_like(before, 0.5)
        rates[:border] = rate
        torch.testing.assert_close(trailing, before.lerp(adam.values[: len(trailing)], rates))


def test_it_goes_on_where_its_state_was_taken(device: str) -> None:
    adam, mine, _ = make_adam(device)
    gradients = [torch.ones(shape, device=device) for shape in SHAPES]
    adam.step(gradients, None, ("a",))
    kept = adam.state_dict()
    values = adam.values.clone()
    adam.step(gradients, None, ("a",))
    again, other, _ = make_adam(device)
    again.values.copy_(values)
    again.load_state_dict(kept)
    again.step(gradients, None, ("a",))
    assert all(torch.equal(x, y) for x, y in zip(mine, other, strict=True))
    with pytest.raises(ValueError, match="adam: got averages of 3 numbers, expected"):
        adam.load_state_dict(kept | {"average": torch.zeros(3)})
