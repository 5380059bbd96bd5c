"""A whole update of the agent with the Kalman encoder as one `jax.jit`: a peer of `Learner.update`.

The same networks, losses, Adam and target as `kalmanac._sac`, written in JAX as one would: the
filter is `jax.lax.associative_scan`, gradients come from `jax.grad`, and the old state's memory is
given to the new one. Several seeds are one axis of `jax.vmap`. One Kalman layer, one window a row.

JAX is none of the package's extras: `pip install jax`, or on a GPU `pip install "jax[cuda12]"`.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import Tensor

from kalmanac._encoders.layers import NORM_EPS
from kalmanac._ops.adam import TINY
from kalmanac._replay.sampling import Batch
from kalmanac._sac.learner import Learner
from peers import jax_filter
from update_peer import FILTER, Rules, arrays_of, learned_of, rules_of, target_of

Parameters = dict[str, Any]  # by the names of `Learner.state_dict`
kalman_filter = jax_filter(jax)


class State(NamedTuple):
    """What an update changes."""

    learned: Parameters  # actor, critic and log α
    target: Parameters  # named as the critic
    average: Parameters  # of gradients, for Adam
    square: Parameters
    steps: Any


class JaxSAC:
    """The state of one agent or of several, (seeds, …), and its compiled update."""

    def __init__(self, learned: Parameters, target: Parameters, rules: Rules, seeds: int) -> None:
        average, square = ({k: _zero(x) for k, x in learned.items()} for _ in range(2))
        self.state = State(learned, target, average, square, _zero(learned["log_alpha"]))
        self.seeds = seeds
        one = partial(update, rules)
        self._update = jax.jit(one if seeds == 1 else jax.vmap(one), donate_argnums=0)

    @staticmethod
    def of(*learners: Learner) -> "JaxSAC":
        """With the parameters of learners that have not learned yet: Adam begins anew."""
        if learners[0].settings.encoder != "vssm+kf":
            raise ValueError(f"encoder: got {learners[0].settings.encoder!r}, expected 'vssm+kf'")
        rules = rules_of(learners[0])
        target = [target_of(own) for own in learners]
        parts = (_side_by_side([learned_of(own) for own in learners]), _side_by_side(target))
        return JaxSAC(*parts, rules, len(learners))

    @staticmethod
    def batch_of(*batches: Batch) -> Parameters:
        """A batch of each seed as JAX's arrays on the same device, for `update`."""
        return _side_by_side([arrays_of(batch) for batch in batches])

    def update(self, batch: Parameters, noise: Sequence[Tensor | None]) -> dict[str, Any]:
        """One step of actor, critic, target and temperature; returns the losses before it.

        `noise` of each seed is None where actions are discrete.
        """
        return {k: jnp.reshape(x, self.seeds) for k, x in self.repeat(self.drawn(batch, noise))}

    def drawn(self, batch: Parameters, noise: Sequence[Tensor | None]) -> Parameters:
        """The batch with this noise beside it."""
        given = [{"noise": x} for x in noise if x is not None]
        return batch | _side_by_side(given) if given else batch

    def repeat(self, batch: Parameters) -> Any:
        """An update with a batch that has its noise; the losses and their names."""
        self.state, found = self._update(self.state, batch)
        return found.items()

    def parameters(self) -> dict[str, np.ndarray[Any, Any]]:
        """Actor, critic, target and log α, (seeds, …), by the names of `Learner.state_dict`."""
        target = {f"target{k[6:]}": x for k, x in self.state.target.items()}
        found = jax.device_get(self.state.learned | target)
        return {k: x if self.seeds > 1 else x[None] for k, x in found.items()}

    def settle(self) -> None:
        """Wait for the updates."""
        jax.block_until_ready(self.state)


def update(rules: Rules, state: State, batch: dict[str, Any]) -> tuple[State, dict[str, Any]]:
    """The next state, and the losses by name."""

    def total(learned: Parameters) -> tuple[Any, dict[str, Any]]:
        found = losses(rules, learned, state.target, batch)
        return sum(found.values()), found  # none reaches another's parameters

    with jax.default_matmul_precision("tensorfloat32"):  # on a CPU it is float32 all the same
        gradients, found = jax.grad(total, has_aux=True)(state.learned)
    steps = state.steps + 1
    over, rest = rules.betas
    average = _map(lambda m, g: over * m + (1 - over) * g, state.average, gradients)
    square = _map(lambda v, g: rest * v + (1 - rest) * g * g, state.square, gradients)
    pace, scale = rules.learning_rate / (1 - over**steps), jnp.sqrt(1 - rest**steps)
    learned = _map(
        lambda x, m, v: x - pace * m / (jnp.sqrt(v) / scale + TINY), state.learned, average, square
    )
    target = {k: x + rules.tau * (learned[k] - x) for k, x in state.target.items()}
    return State(learned, target, average, square, steps), found


def losses(
    rules: Rules, learned: Parameters, target: Parameters, batch: dict[str, Any]
) -> dict[str, Any]:
    """As `Learner.losses_of`: all encoders run once, and pads count nowhere."""
    valid, frozen = batch["valid"], jax.lax.stop_gradient
    count = jnp.maximum(valid.sum(), 1)
    temperature = jnp.exp(frozen(learned["log_alpha"]))
    padded = jnp.arange(valid.shape[1] + 1) >= batch["lengths"][:, None]
    tokens = jnp.concatenate([batch["observation"], batch["previous_action"]], -1)
    tokens = jnp.where(padded[..., None], 0, tokens)  # (B, T + 1, O + A)
    width = batch["observation"].shape[-1]

    def mean(x: Any) -> Any:
        return jnp.where(valid, x, 0).sum() / count

    own, judge, slow = _part(learned, "actor."), _part(learned, "critic."), _part(target, "critic.")
    output = policy(own, features(rules, own, tokens, width))
    ahead = features(rules, slow, tokens, width)
    here = features(rules, judge, tokens[:, :-1], width)
    if rules.discrete:
        log_p = jax.nn.log_softmax(output)
        entropy = -(jnp.exp(log_p) * log_p).sum(-1)  # (B, T + 1)
        later = (jnp.exp(log_p[:, 1:]) * twin_q(slow, ahead)[:, :, 1:].min(0)).sum(-1)
        later, now_entropy = later + temperature * entropy[:, 1:], entropy[:, :-1]
        every = twin_q(judge, here)
        q = (every * batch["action"]).sum(-1)
        value = (jnp.exp(log_p[:, :-1]) * frozen(every).min(0)).sum(-1)
    else:
        next_action, next_entropy = draws(rules, frozen(output[:, 1:]), batch["noise"][0])
        action, now_entropy = draws(rules, output[:, :-1], batch["noise"][1])
        following = twin_q(slow, jnp.concatenate([ahead[:, 1:], next_action], -1))
        later = following[..., 0].min(0) + temperature * next_entropy
        taken = jnp.where(valid[..., None], batch["action"], 0)
        q = twin_q(judge, jnp.concatenate([here, taken], -1))[..., 0]
        value = twin_q(frozen(judge), jnp.concatenate([frozen(here), action], -1))[..., 0].min(0)
    goal = batch["reward"] + rules.gamma * jnp.where(batch["terminated"], 0, later)
    off = jnp.where(valid, q - frozen(goal), 0)
    found = {
        "actor_loss": -mean(value + temperature * now_entropy),
        "critic_loss": (off * off).sum() / count,
    }
    if rules.entropy_goal is not None:
        excess = frozen(mean(now_entropy)) - rules.entropy_goal
        found["ent_coef_loss"] = learned["log_alpha"] * excess
    return found


def draws(rules: Rules, output: Any, noise: Any) -> tuple[Any, Any]:
    """Squashed actions (B, T, A), and their -log π (B, T)."""
    mean, log_std = jnp.split(output, 2, -1)
    log_std = jnp.clip(log_std, *rules.log_std_range)
    raw = mean + jnp.exp(log_std) * noise
    gaussian = -0.5 * (noise * noise + math.log(2 * math.pi)) - log_std
    squash = 2 * (math.log(2.0) - raw - jax.nn.softplus(-2 * raw))
    return jnp.tanh(raw), -(gaussian - squash).sum(-1)


def features(rules: Rules, p: Parameters, tokens: Any, width: int) -> Any:
    """[z_t, o_t] (B, T, E + O): embedder, projection, Kalman filter, projection, norm, skip."""
    own = _part(p, FILTER)
    h = _linear(p, "network.embedder", tokens)
    u, w, rho = jnp.split(_linear(own, "in_projection", h), 3, -1)
    rate = -jnp.exp(own["dynamics.log_rate"])
    exponent = jax.nn.softplus(own["dynamics.raw_step_size"]) * rate
    a, b = jnp.exp(exponent), jnp.expm1(exponent) / rate * own["dynamics.input_gain"]
    q = jax.nn.softplus(own["raw_process_noise"]) + rules.q_min
    mean, _ = kalman_filter(a, b, q, u, w, jax.nn.softplus(rho) + rules.r_min)
    z = _linear(own, "out_projection", mean)
    if "network.encoder.stack.norm.weight" in p:
        size = jnp.sqrt((z * z).mean(-1, keepdims=True) + NORM_EPS)
        z = z / size * p["network.encoder.stack.norm.weight"]
    return jnp.concatenate([z, tokens[..., :width]], -1)


def policy(p: Parameters, x: Any) -> Any:
    """A policy's numbers, (B, T, P)."""
    for i in range(sum(k.startswith("head.") for k in p) // 2):
        x = _linear(p, f"head.layers.{i}", jax.nn.relu(x) if i else x)
    return x


def twin_q(p: Parameters, x: Any) -> Any:
    """Both critics' outputs, (2, B, T, m)."""
    rows = x.reshape(-1, x.shape[-1])
    for i in range(sum(k.startswith("head.") for k in p) // 2):
        rows = (jax.nn.relu(rows) if i else rows) @ p[f"head.weights.{i}"] + p[f"head.biases.{i}"]
    return rows.reshape(2, *x.shape[:-1], -1)


def _linear(p: Parameters, name: str, x: Any) -> Any:
    return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]


def _part(p: Parameters, prefix: str) -> Parameters:
    return {k.removeprefix(prefix): x for k, x in p.items() if k.startswith(prefix)}


def _map(function: Any, *trees: Parameters) -> Parameters:
    return jax.tree_util.tree_map(function, *trees)


def place_for(device: torch.device) -> Any:
    """JAX's first device of this kind; RuntimeError if it has none."""
    return jax.devices("gpu" if device.type == "cuda" else "cpu")[0]


def _side_by_side(parts: Sequence[dict[str, Tensor]]) -> Parameters:
    """Arrays of all seeds, (seeds, …); without that axis where there is one seed."""
    place = place_for(next(iter(parts[0].values())).device)
    whole = (
        parts[0] if len(parts) == 1 else {k: torch.stack([p[k] for p in parts]) for k in parts[0]}
    )
    # a copy: updates take its memory
    return {k: jax.device_put(x.detach().cpu().numpy().copy(), place) for k, x in whole.items()}


def _zero(like: Any) -> Any:
    return jnp.zeros_like(like, device=like.sharding)  # there to stay: else a second compilation
