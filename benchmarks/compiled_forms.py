"""Every fused form of an update beside `torch.compile` of its plain form.

A form is what the update does at one place, forward and backward: `ours` returns values and
gradients by the kernels, `plain` the values that are compiled, and whose gradients the compiler
makes. Both are asked for the same numbers.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

import compiled_sac
from experience import filled
from kalmanac._ops import sac_losses
from kalmanac._ops.gru import gru, plain_gru
from kalmanac._ops.hold import zero_order_hold
from kalmanac._ops.mlp import plain_mlp
from kalmanac._ops.rms_norm import RMSNorm
from kalmanac._ops.squashed_gaussian import draw, fused_draws
from kalmanac._sac.distributions import SquashedGaussian
from kalmanac._sac.learner import Learner
from update import Task, make_learner
from update_peer import FILTER, learned_of, rules_of

NORM = "network.encoder.stack.norm"
Answer = Callable[[], Sequence[Tensor]]
APART = {"cpu": 1e-4, "cuda": 2e-2}  # relative to the length; TF32 factors on a GPU


class Form(NamedTuple):
    """Both ways to the same values and gradients; `compile` makes the rival of `plain`."""

    ours: Answer
    plain: Callable[[], Any]
    leaves: Sequence[Tensor]  # whose gradients are asked for; none: values alone
    values: bool = True  # False: gradients alone are compared

    def rival(self, compile: Callable[..., Any]) -> Answer:
        """The compiled form, with its gradients; kernels of ours are switched off from here on."""
        # the compiler does not switch this one off itself
        setattr(sac_losses, "fused", lambda x: False)  # noqa: B010
        compiled = compile(self.plain)
        return with_gradients(compiled, self.leaves, self.values) if self.leaves else compiled


def forms(task: Task, device: torch.device) -> dict[str, Callable[[], Form]]:
    """Makers of all forms that an update of this task has."""
    learner = make_learner("vssm+kf", task, device)
    some = _Numbers(task, device)
    found: dict[str, Callable[[], Form]] = {
        "actor's head": lambda: actor_head(learner, some),
        "twin heads": lambda: twin_heads(learner, some),
        "linear layer": lambda: linear_layer(learner, some),
        "linear layer and hold": lambda: linear_layer_and_hold(learner, some),
        "Kalman layer": lambda: kalman_layer(learner, some),
        "GRU": lambda: gru_layer(make_learner("gru", task, device), some),
        "losses": lambda: losses(learner, some),
        "Adam and target": lambda: adam(task, device),
    }
    if not task.sizes.discrete:
        found["draws"] = lambda: draws(learner, some)
    norm = learner.actor.get_submodule(NORM)
    if isinstance(norm, RMSNorm):
        found["RMSNorm"] = lambda: rms_norm(norm, some)
    return found


def with_gradients(
    function: Callable[[], Any], leaves: Sequence[Tensor], values: bool = True
) -> Answer:
    """Values of the function, and the gradients of a fixed weighing of them."""
    slopes: list[Tensor] = []

    def run() -> Sequence[Tensor]:
        came = function()
        found = [came] if isinstance(came, Tensor) else list(came)
        learned = [x for x in found if x.requires_grad]
        if not slopes:
            slopes.extend(_slope(x) for x in learned)
        gradients = torch.autograd.grad(learned, list(leaves), slopes)
        return [*found, *gradients] if values else gradients

    return run


def apart(one: Sequence[Tensor], other: Sequence[Tensor]) -> float:
    """The largest distance of any of these, by the length of its tensor.

    Not the largest difference: where rounding turns one hidden unit off, a row's slope is another.
    """
    pairs = [(a.detach().double(), b.detach().double()) for a, b in zip(one, other, strict=True)]
    off = [((a - b).norm() / a.norm().clamp(min=1e-12)).item() for a, b in pairs]
    return float(np.max(off))  # a NaN stays one


class _Numbers:
    """Random inputs of a task's sizes."""

    def __init__(self, task: Task, device: torch.device) -> None:
        self.task, self.draw = task, torch.Generator(device).manual_seed(0)
        self.tokens = (task.batch, task.context + 1)
        lengths = np.full(task.batch, task.context)
        replay = filled(task.sizes, lengths, np.random.default_rng(0), device)
        self.batch = replay.sample(task.batch, task.context, generator=self.draw)

    def leaf(self, *shape: int) -> Tensor:
        """Numbers that want a gradient."""
        return self.plain(*shape).requires_grad_()

    def plain(self, *shape: int) -> Tensor:
        """Numbers that want none."""
        return torch.randn(shape, generator=self.draw, device=self.draw.device)


def actor_head(learner: Learner, some: _Numbers) -> Form:
    """Three layers on [z, o]."""
    head, z = learner.actor.head, some.leaf(*some.tokens, learner.settings.embedding)
    seen = some.plain(*some.tokens, some.task.sizes.observation)
    leaves = [z, *head.parameters()]
    return Form(
        with_gradients(lambda: head(z, seen), leaves),
        lambda: plain_mlp(
            (z, seen),
            [layer.weight.mT[None] for layer in head.linear()],
            [layer.bias[None, None] for layer in head.linear()],
        ).squeeze(0),
        leaves,
    )


def twin_heads(learner: Learner, some: _Numbers) -> Form:
    """Both critics on [z, o], with the action where it is continuous."""
    head, z = learner.critic.head, some.leaf(*some.tokens, learner.settings.embedding)
    sizes = some.task.sizes
    others = [some.plain(*some.tokens, sizes.observation)]
    if not sizes.discrete:
        others.append(some.plain(*some.tokens, sizes.action))
    leaves = [z, *head.parameters()]
    return Form(
        with_gradients(lambda: head(z, *others), leaves),
        lambda: plain_mlp((z, *others), list(head.weights), list(head.biases)),
        leaves,
    )


def linear_layer(learner: Learner, some: _Numbers) -> Form:
    """The projection to the filter's signals."""
    layer: Any = learner.actor.get_submodule(f"{FILTER}in_projection")
    x = some.leaf(*some.tokens, learner.settings.embedding)
    leaves = [x, layer.weight, layer.bias]
    return Form(
        with_gradients(lambda: layer(x), leaves),
        lambda: torch.nn.functional.linear(x, layer.weight, layer.bias),
        leaves,
    )


def linear_layer_and_hold(learner: Learner, some: _Numbers) -> Form:
    """The same, and a and b of the filter."""
    layer: Any = learner.actor.get_submodule(f"{FILTER}in_projection")
    dynamics: Any = learner.actor.get_submodule(f"{FILTER}dynamics")
    x = some.leaf(*some.tokens, learner.settings.embedding)
    leaves = [x, layer.weight, layer.bias, *dynamics.parameters()]
    return Form(
        with_gradients(lambda: dynamics.beside(layer, x), leaves),
        lambda: (
            torch.nn.functional.linear(x, layer.weight, layer.bias),
            *zero_order_hold(*dynamics.system()),
        ),
        leaves,
    )


def kalman_layer(learner: Learner, some: _Numbers) -> Form:
    """Projection, filter, projection."""
    layer, rules = learner.actor.get_submodule(FILTER[:-1]), rules_of(learner)
    h = some.leaf(*some.tokens, learner.settings.embedding)
    own: compiled_sac.Parameters = dict(layer.named_parameters())
    leaves = [h, *own.values()]
    return Form(
        with_gradients(lambda: layer(h)[0], leaves),
        lambda: compiled_sac.filtered(rules, own, h),
        leaves,
    )


def gru_layer(learner: Learner, some: _Numbers) -> Form:
    """All steps of a layer; the compiler takes them one after the other, not cuDNN's walk."""
    own = next(x for x in learner.actor.modules() if isinstance(x, torch.nn.GRU))
    x = some.leaf(*some.tokens, own.input_size)
    weights = list(own.parameters())
    leaves, start = [x, *weights], x.new_zeros(len(x), own.hidden_size)
    return Form(
        with_gradients(lambda: gru(x, start, weights), leaves),
        lambda: plain_gru(x, start, weights),
        leaves,
    )


def rms_norm(layer: RMSNorm, some: _Numbers) -> Form:
    """Of what an encoder gives."""
    x = some.leaf(*some.tokens, *layer.normalized_shape)
    leaves = [x, layer.weight]
    return Form(
        with_gradients(lambda: layer(x), leaves),
        lambda: torch.nn.functional.rms_norm(x, layer.normalized_shape, layer.weight, layer.eps),
        leaves,
    )


def losses(learner: Learner, some: _Numbers) -> Form:
    """The three losses, and the gradients of what the heads gave."""
    batch, sizes, rules = some.batch, some.task.sizes, learner.rules
    log_alpha, goal = learner.log_alpha, learner.entropy_goal
    steps = (batch.reward, batch.terminated, batch.valid, log_alpha, rules)
    if sizes.discrete:
        roots = [some.leaf(*some.tokens, sizes.action), some.leaf(2, *some.tokens, sizes.action)]
        following = some.plain(2, *some.tokens, sizes.action)

        def fused() -> sac_losses.Losses:
            return sac_losses.discrete_losses(
                roots[0], roots[1], following, batch.action, *steps, entropy_goal=goal
            )

        def plain() -> Tensor:  # without the numbers to report, which the kernels give too
            counted, temperature = sac_losses.Counted.of(batch.valid), log_alpha.detach().exp()
            there = sac_losses.Shares.of(roots[0].detach()[:, 1:])
            later = there.soft_value(following[:, :, 1:], temperature)
            target = sac_losses.bootstrap_target(batch.reward, batch.terminated, later, rules.gamma)
            here, q = sac_losses.Shares.of(roots[0][:, :-1]), roots[1][:, :, :-1]
            value = here.soft_value(q.detach(), temperature)
            total = sac_losses.actor_loss(value, counted)
            total = total + sac_losses.critic_loss((q * batch.action).sum(-1), target, counted)
            mean = counted.mean(here.entropy)
            return total + sac_losses.temperature_loss(log_alpha, mean, goal)

    else:
        roots = [some.leaf(2, *some.tokens, 1), some.leaf(2, *some.tokens, 1)]
        roots.append(some.leaf(*some.tokens))
        following, later = some.plain(2, *some.tokens, 1), some.plain(*some.tokens)

        def fused() -> sac_losses.Losses:
            return sac_losses.fused_continuous_losses(
                roots[0], roots[1], following, roots[2], later, *steps, entropy_goal=goal
            )

        def plain() -> Tensor:
            found = sac_losses.continuous_losses(
                roots[1][:, :, :-1, 0].amin(0), roots[2][:, :-1], roots[0][:, :, :-1, 0],
                following[:, :, 1:, 0].amin(0), later[:, 1:], *steps, entropy_goal=goal,
            )  # fmt: skip
            return torch.stack(list(found.losses.values())).sum()

    leaves = [*roots, *([log_alpha] if learner.learns_temperature else [])]
    if not sac_losses.takes_last_token(batch.reward, sizes.action):
        return Form(with_gradients(plain, leaves, False), plain, leaves, False)
    return Form(lambda: fused().slopes or [], plain, leaves, False)


def draws(learner: Learner, some: _Numbers) -> Form:
    """Actions and entropies here and at the next steps, and the gradient of the policy's output."""
    policy = learner.actor.distribution
    assert isinstance(policy, SquashedGaussian)
    actions, limits = some.task.sizes.action, policy.log_std_range
    output = some.leaf(*some.tokens, 2 * actions)
    rows, steps = some.tokens[0], some.tokens[1] - 1
    noise = some.plain(2, rows, steps, actions)
    # as the update gives them: at all tokens; at the last, which drew nothing, they are ignored
    slopes = [_slope(noise[0]), _slope(noise[0, ..., 0])]
    slopes = [torch.cat([x, x[:, -1:]], 1) for x in slopes]

    def fused() -> list[Tensor]:
        here, later = fused_draws(output, noise, limits)
        gradients = torch.autograd.grad([here.action, here.entropy], [output], slopes)
        values = here.action[:, :-1], here.entropy[:, :-1], later.action[:, 1:]
        return [*values, later.entropy[:, 1:], *gradients]

    def plain() -> list[Tensor]:
        later = draw(output.detach()[:, 1:], noise[0], limits)
        here = draw(output[:, :-1], noise[1], limits)
        return [here.action, here.entropy, later.action, later.entropy]

    whole = sac_losses.takes_last_token(some.batch.reward, actions)
    return Form(fused if whole else with_gradients(plain, [output]), plain, [output])


def adam(task: Task, device: torch.device) -> Form:
    """A step of all parameters, and the target's; values behind as many steps as were made."""
    learner, other = (make_learner("vssm+kf", task, device) for _ in range(2))
    names, draw_ = list(learned_of(learner)), torch.Generator(device).manual_seed(0)
    own = {k: torch.randn(x.shape, generator=draw_, device=device) for k, x in
           learned_of(learner).items()}  # fmt: skip
    gradients = [own[k] for k in names]
    peer, rules = compiled_sac.CompiledSAC([other], None), rules_of(other)

    def ours() -> Sequence[Tensor]:
        learner.optimizer.step(gradients, None, ("actor", "critic"))
        return [x.detach() for x in learned_of(learner).values()]

    def plain() -> Sequence[Tensor]:
        compiled_sac.move(rules, peer.state, own)
        return list(peer.state.learned.values())

    return Form(ours, plain, [])


def _slope(like: Tensor) -> Tensor:
    """Something fixed that is the same for every form; a sum weighs 1.

    All of one sign: gradients that are sums of what cancels are rounding more than anything else.
    """
    if like.dim() == 0:
        return torch.ones_like(like)
    return torch.linspace(0.5, 1.5, like.numel(), device=like.device).view(like.shape)
