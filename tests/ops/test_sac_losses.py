"""The losses of discrete actions as a kernel equal the plain ones, with all of their slopes."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from kalmanac._ops import sac_losses
from kalmanac._ops.sac_loss_kernels import discrete_losses
from kalmanac._ops.sac_losses import OBJECTIVES, Rules
from tests.sac.cases import DISCRETE, batch, make_learner

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]  # cpu: Triton's interpreter
GAMMA, GOAL = 0.97, 0.3
PLAIN: dict[str, Any] = {
    "gamma": GAMMA, "entropy_goal": GOAL, "entropy_in_target": True, "value": True,
    "cross_entropy": 0.0,
}  # fmt: skip


def problem(rows: int, steps: int, actions: int, device: str) -> dict[str, Tensor]:
    """Steps that count, with NaN at the others, and logits that are far apart here and there."""
    random = torch.Generator().manual_seed(rows + steps)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=random, dtype=torch.float64)

    valid = torch.rand(rows, steps, generator=random) < 0.7
    chosen = torch.randint(actions, (rows, steps), generator=random)
    made = {
        "logits": 4 * draw(rows, steps + 1, actions),
        "q": draw(2, rows, steps + 1, actions),
        "following": draw(2, rows, steps + 1, actions),
        "action": torch.nn.functional.one_hot(chosen, actions).double(),
        "reward": draw(rows, steps).masked_fill(~valid, math.nan),
        "terminated": torch.rand(rows, steps, generator=random) < 0.3,
        "valid": valid,
        "log_alpha": torch.tensor(-0.7, dtype=torch.float64),
    }
    made["q"][:, :, -1] = math.nan
    return {name: x.to(device) for name, x in made.items()}


def plain(
    x: dict[str, Tensor], *, objective: str, soft: bool
) -> tuple[dict[str, Tensor], list[Tensor]]:
    """The losses and what they tell, and their slopes of logits, q and log α."""
    given = x | {name: x[name].clone().requires_grad_() for name in ("logits", "q", "log_alpha")}
    rules = Rules(GAMMA, OBJECTIVES[objective], soft)
    now = given | {"q": given["q"][:, :, :-1]}
    found = sac_losses.discrete_losses(**now, rules=rules, entropy_goal=GOAL)
    learned = [given[name] for name in ("logits", "q", "log_alpha")]
    slopes = torch.autograd.grad(sum(found.roots), learned)
    return found.losses | found.numbers, list(slopes)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("objective", "soft"),
    [("value", True), ("cross-entropy", True), ("mixed", True), ("mixed", False)],
)
@pytest.mark.parametrize("shape", [(1, 1, 2), (3, 5, 3), (7, 40, 5), (2, 3, 17)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_values_and_slopes(
    shape: tuple[int, int, int], objective: str, soft: bool, dtype: torch.dtype, device: str
) -> None:
    made = problem(*shape, device)
    told, slopes = plain(made, objective=objective, soft=soft)
    given = {n: x.to(dtype) if x.is_floating_point() else x for n, x in made.items()}
    found = discrete_losses(
        **given, gamma=GAMMA, entropy_goal=GOAL, entropy_in_target=soft,
        **OBJECTIVES[objective]._asdict(),
    )  # fmt: skip
    budget = {"rtol": 1e-10, "atol": 1e-12} if dtype == torch.float64 else {}
    for x, y in zip((found.of_logits, found.of_q, found.of_log_alpha), slopes, strict=True):
        torch.testing.assert_close(x, y.nan_to_num(0).to(dtype), **budget)
    for number, (name, truth) in zip(found.numbers, told.items(), strict=True):
        torch.testing.assert_close(number, truth.to(dtype).detach(), msg=name, **budget)


@pytest.mark.parametrize("device", DEVICES)
def test_without_a_valid_step_nothing_moves(device: str) -> None:
    made = problem(2, 3, 4, device)
    made["valid"] = torch.zeros_like(made["valid"])
    found = discrete_losses(**made, **PLAIN)
    assert not found.of_logits.any()
    assert not found.of_q.any()
    assert [x.item() for x in found.numbers[:2]] == [0, 0]
    assert found.numbers[6] == -math.inf


@pytest.mark.parametrize("device", DEVICES)
def test_a_value_that_is_not_a_number_is_told(device: str) -> None:
    """It must reach the losses, where a run looks for it, and not be hidden by a minimum."""
    made = problem(3, 5, 3, device)
    made["valid"] = torch.ones_like(made["valid"])
    made["reward"] = torch.zeros_like(made["reward"])
    made["q"][:, :, -1] = 0
    made["q"][1, 0, 0] = math.nan
    found = discrete_losses(**made, **PLAIN)
    assert found.numbers[0].isnan()
    assert found.numbers[1].isnan()


@pytest.mark.parametrize("settings", [
    {}, {"ent_coef": 0.2}, {"actor_objective": "cross-entropy"},
    {"actor_objective": "mixed"}, {"privileged_critic": True}, {"entropy_in_target": False},
], ids=str)  # fmt: skip
def test_an_agent_learns_and_tells_the_same(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, data = make_learner(DISCRETE, **settings), batch(DISCRETE)
    everything = (*made.actor.parameters(), *made.critic.parameters(), made.log_alpha)
    learned = [p for p in everything if p.requires_grad]
    found = []
    for kernels in (False, True):
        monkeypatch.setattr(sac_losses, "fused", lambda x, kernels=kernels: kernels)
        losses = made._losses(data)
        assert (losses.slopes is not None) is kernels
        slopes = torch.autograd.grad(losses.roots, learned, losses.slopes)
        found.append((losses.losses | losses.numbers, slopes))
    (told, expected), (numbers, slopes) = found
    for x, y in zip(slopes, expected, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-6)
    assert list(numbers) == list(told)
    for name, x in told.items():
        torch.testing.assert_close(numbers[name], x, msg=name)
