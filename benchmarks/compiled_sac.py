"""A whole update of the agent as one function of tensors, in plain PyTorch, for `torch.compile`.

The same networks, losses, Adam and target as `kalmanac._sac`, written as one would who has no
kernels: the filter is a scan by doubling, gradients come from `torch.func.grad`, and seeds are an
axis that `torch.func.vmap` adds. Nothing breaks the graph, so that forward, backward and Adam are
compiled as one.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import grad, vmap

from kalmanac._encoders.layers import NORM_EPS
from kalmanac._ops.adam import TINY
from kalmanac._replay.sampling import Batch
from kalmanac._sac.learner import Learner
from plain_pytorch import doubled
from update_peer import FILTER, Rules, arrays_of, learned_of, rules_of, target_of

Parameters = dict[str, Tensor]  # by the names of `Learner.state_dict`
NORM = "network.encoder.stack.norm.weight"


class State(NamedTuple):
    """What an update changes, in place."""

    learned: Parameters  # actor, critic and log α
    target: Parameters  # named as the critic
    average: Parameters  # of gradients, for Adam
    square: Parameters
    steps: Tensor

    def tensors(self) -> list[Tensor]:
        """All of them."""
        return [*(x for part in self[:-1] for x in part.values()), self.steps]


class CompiledSAC:
    """The state of one agent or of several, and its update.

    `how` are arguments of `torch.compile`; None leaves the update as it is, in float32.
    """

    def __init__(self, learners: Sequence[Learner], how: dict[str, Any] | None) -> None:
        self.precision = "highest" if how is None else "high"  # the latter is TF32
        self.seeds, self.rules = len(learners), rules_of(learners[0])
        learned = self._side_by_side([learned_of(x) for x in learners])
        target = [target_of(own) for own in learners]
        average, square = ({k: torch.zeros_like(x) for k, x in learned.items()} for _ in range(2))
        steps = learned["log_alpha"].new_zeros(())
        self.state = State(learned, self._side_by_side(target), average, square, steps)
        for x in self.state.tensors():  # as parameters of a module are: graphs know their places
            torch._dynamo.mark_static_address(x)
        self._noise: Tensor | None = None
        run = partial(update, self.rules, self.seeds > 1)
        self._update = run if how is None else torch.compile(run, fullgraph=True, **how)

    def batch_of(self, batches: Sequence[Batch]) -> Parameters:
        """A batch for each seed, side by side."""
        found = self._side_by_side([arrays_of(batch) for batch in batches])
        for x in found.values():
            torch._dynamo.mark_static_address(x)
        return found

    def update(self, batch: Parameters, noise: Sequence[Tensor | None]) -> Parameters:
        """One step of actor, critic, target and temperature; returns the losses before it."""
        run = self.repeated(batch, noise)
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(self.precision)  # the compiler asks by this name
        found = run()
        torch.set_float32_matmul_precision(before)
        return {k: x.detach().clone().reshape(self.seeds) for k, x in found.items()}

    def repeated(self, batch: Parameters, noise: Sequence[Tensor | None]) -> Callable[[], Any]:
        """An update with the same batch and noise, again and again, and nothing beside it."""
        given = [x for x in noise if x is not None]
        if given:
            drawn = self._side_by_side([{"noise": x} for x in given])["noise"]
            if self._noise is None:
                self._noise = torch.zeros_like(drawn)
                torch._dynamo.mark_static_address(self._noise)
            self._noise.copy_(drawn)
        return lambda: self._update(self.state, batch, self._noise)

    def parameters(self) -> Parameters:
        """Actor, critic, target and log α, (seeds, …)."""
        target = {f"target{k[6:]}": x for k, x in self.state.target.items()}
        found = self.state.learned | target
        return {k: x if self.seeds > 1 else x[None] for k, x in found.items()}

    def _side_by_side(self, parts: Sequence[Parameters]) -> Parameters:
        if self.seeds == 1:
            return {k: x.detach().clone() for k, x in parts[0].items()}
        return {k: torch.stack([part[k].detach() for part in parts]) for k in parts[0]}


def update(
    rules: Rules, many: bool, state: State, batch: Parameters, noise: Tensor | None
) -> Parameters:
    """Change the state, and return the losses by name."""
    slopes: Any = grad(partial(_total, rules), has_aux=True)
    if many:
        slopes = vmap(slopes, in_dims=(0, 0, 0, None if noise is None else 0))
    by_name, found = slopes(state.learned, state.target, batch, noise)
    move(rules, state, by_name)
    return found


def move(rules: Rules, state: State, by_name: Parameters) -> None:
    """Adam, and the target behind it."""
    over, rest = rules.betas
    names = list(state.learned)
    gradients = [by_name[k] for k in names]
    values, average, square = ([part[k] for k in names] for part in (state[0], *state[2:4]))
    with torch.no_grad():
        state.steps.add_(1)
        torch._foreach_lerp_(average, gradients, 1 - over)
        torch._foreach_mul_(square, rest)
        torch._foreach_addcmul_(square, gradients, gradients, 1 - rest)
        pace = rules.learning_rate / (1 - over**state.steps)
        scale = torch.sqrt(1 - rest**state.steps)
        for x, m, v in zip(values, average, square, strict=True):
            x.sub_(pace * m / (v.sqrt() / scale + TINY))
        slow = list(state.target.values())
        torch._foreach_lerp_(slow, [state.learned[k] for k in state.target], rules.tau)


def _total(rules: Rules, *tensors: Any) -> tuple[Tensor, Parameters]:
    found = losses(rules, *tensors)
    return torch.stack(list(found.values())).sum(), found  # none reaches another's parameters


def losses(
    rules: Rules, learned: Parameters, target: Parameters, batch: Parameters, noise: Tensor | None
) -> Parameters:
    """As `Learner.losses_of`: all encoders run once, and pads count nowhere."""
    valid = batch["valid"]
    count = valid.sum().clamp(min=1)
    temperature = learned["log_alpha"].detach().exp()
    padded = torch.arange(valid.shape[1] + 1, device=valid.device) >= batch["lengths"][:, None]
    tokens = torch.cat([batch["observation"], batch["previous_action"]], -1)
    tokens = torch.where(padded[..., None], 0, tokens)  # (B, T + 1, O + A)
    width = batch["observation"].shape[-1]

    own, judge, slow = _part(learned, "actor."), _part(learned, "critic."), _part(target, "critic.")
    output = policy(own, features(rules, own, tokens, width))
    ahead = features(rules, slow, tokens, width)
    here = features(rules, judge, tokens[:, :-1], width)
    if rules.discrete:
        log_p = F.log_softmax(output, -1)
        entropy = -(log_p.exp() * log_p).sum(-1)  # (B, T + 1)
        later = (log_p[:, 1:].exp() * twins(slow, ahead)[:, :, 1:].amin(0)).sum(-1)
        later, now_entropy = later + temperature * entropy[:, 1:], entropy[:, :-1]
        every = twins(judge, here)
        q = (every * batch["action"]).sum(-1)
        value = (log_p[:, :-1].exp() * every.detach().amin(0)).sum(-1)
    else:
        assert noise is not None
        next_action, next_entropy = drawn(rules, output[:, 1:].detach(), noise[0])
        action, now_entropy = drawn(rules, output[:, :-1], noise[1])
        following = twins(slow, torch.cat([ahead[:, 1:], next_action], -1))
        later = following[..., 0].amin(0) + temperature * next_entropy
        taken = torch.where(valid[..., None], batch["action"], 0)
        q = twins(judge, torch.cat([here, taken], -1))[..., 0]
        fixed = {k: x.detach() for k, x in judge.items()}
        value = twins(fixed, torch.cat([here.detach(), action], -1))[..., 0].amin(0)
    goal = batch["reward"] + rules.gamma * torch.where(batch["terminated"], 0, later)
    off = torch.where(valid, q - goal.detach(), 0)
    value = value + temperature * now_entropy
    found = {
        "actor_loss": -torch.where(valid, value, 0).sum() / count,
        "critic_loss": (off * off).sum() / count,
    }
    if rules.entropy_goal is not None:
        excess = torch.where(valid, now_entropy, 0).detach().sum() / count - rules.entropy_goal
        found["ent_coef_loss"] = learned["log_alpha"] * excess
    return found


def drawn(rules: Rules, output: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Squashed actions (B, T, A), and their -log π (B, T)."""
    mean, log_std = output.chunk(2, -1)
    log_std = log_std.clamp(*rules.log_std_range)
    raw = mean + log_std.exp() * noise
    gaussian = -0.5 * (noise * noise + math.log(2 * math.pi)) - log_std
    squash = 2 * (math.log(2.0) - raw - F.softplus(-2 * raw))
    return torch.tanh(raw), -(gaussian - squash).sum(-1)


def features(rules: Rules, p: Parameters, tokens: Tensor, width: int) -> Tensor:
    """[z_t, o_t] (B, T, E + O): embedder, projection, Kalman filter, projection, norm, skip.

    An agent without memory has o_t alone.
    """
    seen = tokens[..., :width]
    if "network.embedder.weight" not in p:
        return seen
    z = filtered(rules, _part(p, FILTER), _linear(p, "network.embedder", tokens))
    if NORM in p:
        z = z * torch.rsqrt((z * z).mean(-1, keepdim=True) + NORM_EPS) * p[NORM]
    return torch.cat([z, seen], -1)


def filtered(rules: Rules, own: Parameters, h: Tensor) -> Tensor:
    """z of a Kalman layer with these parameters, (B, T, E)."""
    u, w, rho = _linear(own, "in_projection", h).chunk(3, -1)
    rate = -own["dynamics.log_rate"].exp()
    exponent = F.softplus(own["dynamics.raw_step_size"]) * rate
    a, b = exponent.exp(), torch.expm1(exponent) / rate * own["dynamics.input_gain"]
    q = F.softplus(own["raw_process_noise"]) + rules.q_min
    mean = doubled(a, b, q, u, w, F.softplus(rho) + rules.r_min).mean
    return _linear(own, "out_projection", mean)


def policy(p: Parameters, x: Tensor) -> Tensor:
    """A policy's numbers, (B, T, P)."""
    for i in range(_depth(p)):
        x = _linear(p, f"head.layers.{i}", x.relu() if i else x)
    return x


def twins(p: Parameters, x: Tensor) -> Tensor:
    """Both critics' outputs, (2, B, T, m)."""
    rows = x.flatten(0, 1)
    for i in range(_depth(p)):
        rows = (rows.relu() if i else rows) @ p[f"head.weights.{i}"] + p[f"head.biases.{i}"]
    return rows.unflatten(1, x.shape[:2])


def _depth(p: Parameters) -> int:
    return sum(k.startswith("head.") for k in p) // 2


def _linear(p: Parameters, name: str, x: Tensor) -> Tensor:
    return F.linear(x, p[f"{name}.weight"], p[f"{name}.bias"])


def _part(p: Parameters, prefix: str) -> Parameters:
    return {k.removeprefix(prefix): x for k, x in p.items() if k.startswith(prefix)}
