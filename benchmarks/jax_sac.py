"""A whole update of the agent with the Kalman encoder as one `jax.jit`: a peer of `Learner.update`.

The same networks, losses, Adam and target as `kalmanac._sac`, written in JAX as one would: the
filter is `jax.lax.associative_scan`, gradients come from `jax.grad`, and the old state's memory is
given to the new one. Discrete actions, one Kalman layer, one window a row.

JAX is none of the package's extras: `pip install jax`, or on a GPU `pip install "jax[cuda12]"`.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import Tensor

from kalmanac._encoders.layers import NORM_EPS
from kalmanac._observation import Sizes
from kalmanac._ops.adam import TINY
from kalmanac._replay.sampling import Batch
from kalmanac._sac.learner import Learner
from peers import jax_filter

Parameters = dict[str, Any]  # by the names of `Learner.state_dict`
FILTER = "network.encoder.stack.layers.0."
kalman_filter = jax_filter(jax)


class Rules(NamedTuple):
    """The numbers that are not learned."""

    learning_rate: float
    gamma: float
    tau: float
    entropy_goal: float | None  # None: the temperature is fixed
    r_min: float
    q_min: float
    betas: tuple[float, ...]  # Adam's


class State(NamedTuple):
    """What an update changes."""

    learned: Parameters  # actor, critic and log α
    target: Parameters  # named as the critic
    average: Parameters  # of gradients, for Adam
    square: Parameters
    steps: Any


class JaxSAC:
    """The agent's state and its compiled update."""

    def __init__(self, learned: Parameters, target: Parameters, rules: Rules) -> None:
        average, square = ({k: _zero(x) for k, x in learned.items()} for _ in range(2))
        self.state = State(learned, target, average, square, _zero(learned["log_alpha"]))
        self._update = jax.jit(partial(update, rules), donate_argnums=0)

    @staticmethod
    def of(learner: Learner) -> "JaxSAC":
        """With the parameters of a learner that has not learned yet: Adam begins anew."""
        _check(learner)
        place, own = place_for(learner.device), learner.settings
        learned = {
            f"{part}.{name}": _array(x, place)
            for part, module in (("actor", learner.actor), ("critic", learner.critic))
            for name, x in module.named_parameters()
        }
        target = {f"critic.{k}": _array(x, place) for k, x in learner.target.named_parameters()}
        layer: Any = learner.actor.get_submodule(FILTER[:-1])
        goal = learner.entropy_goal if learner.learns_temperature else None
        rules = Rules(
            own.learning_rate, own.gamma, own.tau, goal, layer.r_min, layer.q_min, own.adam_betas
        )  # fmt: skip
        return JaxSAC(learned | {"log_alpha": _array(learner.log_alpha, place)}, target, rules)

    @staticmethod
    def batch_of(batch: Batch) -> dict[str, Any]:
        """A batch as JAX's arrays on the same device, for `update`."""
        tensors = batch._asdict() | batch.observation.to_stored()
        for name in ("reset", "observed"):
            if tensors.get(name) is not None:
                raise ValueError(f"batch.{name}: got a tensor, expected None: one window a row")
        place = place_for(batch.reward.device)
        return {name: _array(x, place) for name, x in tensors.items() if x is not None}

    def update(self, batch: dict[str, Any]) -> dict[str, Any]:
        """One step of actor, critic, target and temperature; returns the losses before it."""
        self.state, found = self._update(self.state, batch)
        return found

    def parameters(self) -> dict[str, np.ndarray[Any, Any]]:
        """Actor, critic, target and log α, by the names of `Learner.state_dict`."""
        target = {f"target{k[6:]}": x for k, x in self.state.target.items()}
        return jax.device_get(self.state.learned | target)

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

    log_p = jax.nn.log_softmax(policy(rules, _part(learned, "actor."), tokens, width))
    entropy = -(jnp.exp(log_p) * log_p).sum(-1)  # (B, T + 1)

    def value(steps: slice, q: Any) -> Any:
        lower = (jnp.exp(log_p[:, steps]) * q.min(0)).sum(-1)
        return lower + temperature * entropy[:, steps]

    following = twin_q(rules, _part(target, "critic."), tokens, width)[:, :, 1:]
    later = jnp.where(batch["terminated"], 0, value(slice(1, None), following))
    goal = frozen(batch["reward"] + rules.gamma * later)
    q = twin_q(rules, _part(learned, "critic."), tokens[:, :-1], width)
    off = jnp.where(valid, (q * batch["action"]).sum(-1) - goal, 0)
    now = slice(None, -1)
    found = {
        "actor_loss": -mean(value(now, frozen(q))),
        "critic_loss": (off * off).sum() / count,
    }
    if rules.entropy_goal is not None:
        excess = frozen(mean(entropy[:, now])) - rules.entropy_goal
        found["ent_coef_loss"] = learned["log_alpha"] * excess
    return found


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


def policy(rules: Rules, p: Parameters, tokens: Any, width: int) -> Any:
    """Logits (B, T, A)."""
    x = features(rules, p, tokens, width)
    for i in range(sum(k.startswith("head.") for k in p) // 2):
        x = _linear(p, f"head.layers.{i}", jax.nn.relu(x) if i else x)
    return x


def twin_q(rules: Rules, p: Parameters, tokens: Any, width: int) -> Any:
    """Both critics' Q of every action, (2, B, T, A)."""
    x = features(rules, p, tokens, width)
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


def _array(x: Tensor, place: Any) -> Any:
    return jax.device_put(x.detach().cpu().numpy().copy(), place)  # updates take its memory


def _zero(like: Any) -> Any:
    return jnp.zeros_like(like, device=like.sharding)  # there to stay: else a second compilation


def _check(learner: Learner) -> None:
    """What is written here is all of what this learner does."""
    for name, expected in {
        "encoder": "vssm+kf", "privileged_critic": False, "actor_objective": "value",
        "max_grad_norm": None, "previous_action": True, "entropy_in_target": True,
    }.items():  # fmt: skip
        came = getattr(learner.settings, name)
        if came != expected:
            raise ValueError(f"{name}: got {came!r}, expected {expected!r}")
    known = ("d_state", "norm", "raw_step_size", "process_noise", "r_min", "q_min")
    for name in learner.settings.encoder_settings:
        if name not in known:
            raise ValueError(f"encoder_settings: got {name}, expected {', '.join(known)}")
    plain = Sizes(learner.sizes.observation, learner.sizes.action, discrete=True)
    if learner.sizes != plain:
        raise ValueError(f"sizes: got {learner.sizes}, expected {plain}")
