"""The losses as a kernel equal the plain ones, with all of their slopes."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from kalmanac._observation import Sizes
from kalmanac._ops import sac_losses
from kalmanac._ops.sac_loss_kernels import Judged, continuous_losses, discrete_losses
from kalmanac._ops.sac_losses import OBJECTIVES, Rules
from kalmanac._sac.distributions import FORBIDDEN
from kalmanac._sac.learner import Learner
from tests.sac.cases import CONTINUOUS, DISCRETE, batch, make_learner
from tests.sac.test_masks import SIZES as MASKED
from tests.sac.test_masks import masked_batch

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


def masked_problem(rows: int, steps: int, actions: int, device: str) -> dict[str, Any]:
    """With forbidden actions, never the one taken, and a goal of every step."""
    made: dict[str, Any] = problem(rows, steps, actions, device)
    random = torch.Generator().manual_seed(1)
    mask = torch.rand(rows, steps + 1, actions, generator=random).to(device) < 0.5
    mask[:, :-1] |= made["action"].bool()
    mask[..., 0] |= ~mask.any(-1)
    made["logits"] = made["logits"].masked_fill(~mask, FORBIDDEN)
    goals = torch.randn(rows, steps, generator=random, dtype=torch.float64).to(device)
    goals = goals.masked_fill(~made["valid"], math.nan)
    return made | {"allowed": mask[:, :-1], "entropy_goal": goals}


def plain(
    x: dict[str, Any], *, objective: str, soft: bool
) -> tuple[dict[str, Tensor], list[Tensor]]:
    """The losses and what they tell, and their slopes of logits, q and log α."""
    given = {"entropy_goal": GOAL, **x}
    given |= {name: x[name].clone().requires_grad_() for name in ("logits", "q", "log_alpha")}
    rules = Rules(GAMMA, OBJECTIVES[objective], soft)
    now = given | {"q": given["q"][:, :, :-1]}
    found = sac_losses.discrete_losses(**now, rules=rules)
    learned = [given[name] for name in ("logits", "q", "log_alpha")]
    slopes = torch.autograd.grad(sum(found.roots), learned)
    return found.losses | found.numbers, list(slopes)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("objective", "soft"),
    [("value", True), ("cross-entropy", True), ("mixed", True), ("mixed", False)],
)
@pytest.mark.parametrize("shape", [(1, 1, 2), (3, 5, 3), (7, 40, 5), (2, 3, 17)], ids=str)
@pytest.mark.parametrize("make", [problem, masked_problem])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_values_and_slopes(
    shape: tuple[int, int, int], objective: str, soft: bool, dtype: torch.dtype,
    make: Callable[..., dict[str, Any]], device: str,
) -> None:  # fmt: skip
    made = make(*shape, device)
    told, slopes = plain(made, objective=objective, soft=soft)
    given = {n: x.to(dtype) if x.is_floating_point() else x for n, x in made.items()}
    rules = PLAIN | {"entropy_in_target": soft} | OBJECTIVES[objective]._asdict()
    expect_alike(discrete_losses(**rules | given), told, slopes, dtype)


def expect_alike(
    found: Judged, told: dict[str, Tensor], slopes: Sequence[Tensor], dtype: torch.dtype
) -> None:
    budget = {"rtol": 1e-10, "atol": 1e-12} if dtype == torch.float64 else {}
    for x, y in zip(found[0], slopes, strict=True):
        torch.testing.assert_close(x, y.nan_to_num(0).to(dtype), **budget)
    for number, (name, truth) in zip(found[1], told.items(), strict=True):
        torch.testing.assert_close(number, truth.to(dtype).detach(), msg=name, **budget)


def drawn_problem(rows: int, steps: int, device: str) -> dict[str, Tensor]:
    """Of actions that a policy drew; some twins are equal, NaN stands where none counts."""
    random = torch.Generator().manual_seed(rows + steps)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=random, dtype=torch.float64)

    made = {name: draw(2, rows, steps + 1, 1) for name in ("q", "frozen", "following")}
    made |= {name: draw(rows, steps + 1) for name in ("entropy", "next_entropy")}
    made["frozen"][1, :, ::3] = made["frozen"][0, :, ::3]
    for name in ("q", "frozen", "entropy"):
        made[name].movedim(-1 if name == "entropy" else -2, 0)[-1] = math.nan
    made["following"][:, :, 0] = made["next_entropy"][:, 0] = math.nan
    others = problem(rows, steps, 2, "cpu")
    made |= {n: others[n] for n in ("reward", "terminated", "valid", "log_alpha")}
    return {name: x.to(device) for name, x in made.items()}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("soft", [True, False])
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (7, 40)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_values_and_slopes_of_continuous_actions(
    shape: tuple[int, int], soft: bool, dtype: torch.dtype, device: str
) -> None:
    made = drawn_problem(*shape, device)
    learned = {n: made[n].clone().requires_grad_() for n in ("q", "frozen", "entropy", "log_alpha")}
    x = made | learned
    truth = sac_losses.continuous_losses(
        x["frozen"][:, :, :-1, 0].amin(0), x["entropy"][:, :-1], x["q"][:, :, :-1, 0],
        x["following"][:, :, 1:, 0].amin(0), x["next_entropy"][:, 1:], x["reward"],
        x["terminated"], x["valid"], x["log_alpha"], Rules(GAMMA, OBJECTIVES["value"], soft),
        entropy_goal=GOAL,
    )  # fmt: skip
    slopes = torch.autograd.grad(sum(truth.roots), list(learned.values()))
    given = {n: x.to(dtype) if x.is_floating_point() else x for n, x in made.items()}
    found = continuous_losses(**given, gamma=GAMMA, entropy_goal=GOAL, entropy_in_target=soft)
    expect_alike(found, truth.losses | truth.numbers, slopes, dtype)


@pytest.mark.parametrize("device", DEVICES)
def test_without_a_valid_step_nothing_moves(device: str) -> None:
    made = problem(2, 3, 4, device)
    made["valid"] = torch.zeros_like(made["valid"])
    (*slopes, _), numbers = discrete_losses(**made, **PLAIN)
    assert not any(x.any() for x in slopes)
    assert [x.item() for x in numbers[:2]] == [0, 0]
    assert numbers[6] == -math.inf


@pytest.mark.parametrize("device", DEVICES)
def test_a_value_that_is_not_a_number_is_told(device: str) -> None:
    """It must reach the losses, where a run looks for it, and not be hidden by a minimum."""
    made = problem(3, 5, 3, device)
    made["valid"] = torch.ones_like(made["valid"])
    made["reward"] = torch.zeros_like(made["reward"])
    made["q"][:, :, -1] = 0
    made["q"][1, 0, 0] = math.nan
    found = discrete_losses(**made, **PLAIN)
    assert found[1][0].isnan()
    assert found[1][1].isnan()


@pytest.mark.parametrize(("sizes", "settings"), [
    (DISCRETE, {}), (DISCRETE, {"ent_coef": 0.2}), (DISCRETE, {"actor_objective": "cross-entropy"}),
    (DISCRETE, {"actor_objective": "mixed"}), (DISCRETE, {"privileged_critic": True}),
    (DISCRETE, {"entropy_in_target": False}), (MASKED, {"actor_objective": "value"}),
    (MASKED, {"actor_objective": "mixed"}), (MASKED, {"ent_coef": 0.2}),
    (MASKED, {"target_entropy": 0.25}), (CONTINUOUS, {}), (CONTINUOUS, {"ent_coef": 0.2}),
    (CONTINUOUS, {"ent_coef": 0.0}), (CONTINUOUS, {"privileged_critic": True}),
    (CONTINUOUS, {"entropy_in_target": False}), (CONTINUOUS, {"log_std_range": (-0.3, 0.2)}),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("device", DEVICES)
def test_an_agent_learns_and_tells_the_same(
    sizes: Sizes, settings: dict[str, Any], device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_learner(sizes, **settings)
    data = masked_batch() if sizes.action_mask else batch(sizes)
    if device == "cuda":
        data, state = data.map(Tensor.cuda), made.state_dict()
        made = Learner(made.settings, sizes, device="cuda")
        made.load_actor({k[6:]: x for k, x in state.items() if k.startswith("actor.")})
    # plain and fused draws ask for their noise in another order
    monkeypatch.setattr(Tensor, "normal_", lambda x, **_: x.fill_(0.4))
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
    near = {"rtol": 1e-4, "atol": 1e-6} if device == "cpu" else {"rtol": 1e-3, "atol": 1e-5}
    for x, y in zip(slopes, expected, strict=True):
        torch.testing.assert_close(x, y, **near)
    assert list(numbers) == list(told)
    for name, x in told.items():
        torch.testing.assert_close(numbers[name], x, msg=name)
