"""Peers from outside the package: PyTorch's GRU and JAX's associative scan."""

import importlib.util
import os
from collections.abc import Callable
from typing import Any

import torch

from contenders import Contender, named_answer
from problem import Inputs, Size


def gru(size: Size, device: torch.device) -> Contender:
    """nn.GRU(N, N) over the same batch, steps and channels."""
    torch.manual_seed(0)
    module = torch.nn.GRU(size.N, size.N, batch_first=True, device=device)
    weights = tuple(module.parameters())

    def forward(x: Inputs) -> torch.Tensor:
        with torch.no_grad():
            return module(x.gru_input)[0]

    def both(x: Inputs) -> tuple[Any, ...]:
        states = module(x.gru_input)[0]
        return (states, *torch.autograd.grad(states, (x.gru_input, *weights), x.cotangent))

    kernel = "cuDNN" if device.type == "cuda" else "PyTorch's CPU kernel"
    tf32 = device.type == "cuda" and torch.backends.cudnn.allow_tf32
    return Contender(
        name="nn.GRU",
        note=f"nn.GRU(N, N), {kernel}{', TF32' if tf32 else ''}; does more: its gates are matrix "
        "products (and it needs no input projection), with gradients of its weights; does less: "
        "one input signal, no uncertainty",
        task=None,
        forward=forward,
        both=both,
        ours=False,
    )


def jax_scan(device: torch.device) -> Contender | str:
    """`jax.lax.associative_scan` over the five-element operator, jit; or why it cannot run."""
    if importlib.util.find_spec("jax") is None:
        return "jax is not installed"
    # else JAX takes three quarters of the GPU's memory when it starts
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax

    wanted = "gpu" if device.type == "cuda" else "cpu"
    try:
        place = jax.devices(wanted)[0]
    except RuntimeError:
        return f"this jax has no {wanted} device"
    scan = jax_filter(jax)
    forward = jax.jit(scan)

    @jax.jit
    def both(a: Any, b: Any, q: Any, u: Any, w: Any, r: Any, cotangent: Any) -> Any:
        mean, pull, variance = jax.vjp(scan, a, b, q, u, w, r, has_aux=True)
        return (mean, variance, *pull(cotangent))

    def wait(came: Any) -> Any:
        # one GPU stream keeps calls in order; on the CPU they could overlap each other
        return jax.block_until_ready(came) if wanted == "cpu" else came

    def prepare(x: Inputs) -> tuple[Any, ...]:
        fields = (x.a, x.b, x.q, x.u, x.w, x.r, x.cotangent)
        return tuple(jax.device_put(t.detach().cpu().numpy(), place) for t in fields)

    def answer(native: tuple[Any, ...]) -> dict[str, torch.Tensor]:
        return named_answer([torch.tensor(t) for t in jax.device_get(both(*native))])

    return Contender(
        name="JAX scan",
        note="jax.lax.associative_scan of the same filter, jit; does less: its signals are "
        "contiguous, and it knows no lengths, resets or missing readings",
        task="variance",
        forward=lambda native: wait(forward(*native[:-1])),
        both=lambda native: wait(both(*native)),
        answer=answer,
        prepare=prepare,
        bytes_per_element={"forward": 20, "both": 56},
        settle=jax.block_until_ready,
        ours=False,
    )


def jax_filter(jax: Any) -> Callable[..., Any]:
    """The diagonal Kalman filter from N(0, 1) as an associative scan over (A, b, C, η, J).

    The first step is joined with the prior, so that the scanned b and C are the posteriors.
    """
    jnp = jax.numpy

    def combine(i: Any, j: Any) -> Any:
        (A_i, b_i, C_i, eta_i, J_i), (A_j, b_j, C_j, eta_j, J_j) = i, j
        D = 1 + C_i * J_j
        return (
            A_j * A_i / D,
            A_j * (b_i + C_i * eta_j) / D + b_j,
            A_j * A_j * C_i / D + C_j,
            A_i * (eta_j - J_j * b_i) / D + eta_i,
            A_i * A_i * J_j / D + J_i,
        )

    def scan(a: Any, b: Any, q: Any, u: Any, w: Any, r: Any) -> Any:
        c = b * u
        S = q + r
        leaf = (a * r / S, (r * c + q * w) / S, q * r / S, a * (w - c) / S, a * a / S)
        zero = jnp.zeros_like(w[:, :1])
        prior = (zero, zero, zero + 1, zero, zero)
        first = combine(prior, tuple(x[:, :1] for x in leaf))
        leaf = tuple(jnp.concatenate([f, x[:, 1:]], 1) for f, x in zip(first, leaf, strict=True))
        _, mean, variance, _, _ = jax.lax.associative_scan(combine, leaf, axis=1)
        return mean, variance

    return scan
