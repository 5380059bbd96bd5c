"""Peers in plain PyTorch and float32: the paper's log-depth scan, twice, and a loop over the steps.

`scan` is the best we can write, with work linear in T; `doubling` is the shortest one, as most
public code has it, with work T·log T.

The package's own `parallel` and `reference` backends compute in float64 inside, for exactness;
a float32 kernel must not win against them by precision. These do the same filter in float32
with PyTorch's own gradients, and are what the ratios are taken against.
"""

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from contenders import Contender, named_answer, too_long
from kalmanac._ops.scan.inputs import Belief
from kalmanac._ops.scan.parallel import (
    Filter,
    associative_scan,
    combine_filter,
    constant_filter,
    step_filter,
)
from problem import Inputs

SCAN_BYTES = 330  # per element, measured peak of the scan with gradients


def scan(x: Inputs) -> Belief:
    """All prefixes of the five-element operator from N(0, 1), in O(log T) dependent steps."""
    leaf = step_filter(x.a, x.b * x.u, x.q, x.w, x.r)
    zero = torch.zeros_like(x.w[:, :1])
    start = constant_filter(Belief(zero, zero + 1))
    fields = [torch.cat(pair, 1) for pair in zip(start, leaf, strict=True)]
    scanned = Filter(*associative_scan(_join, fields))
    return Belief(scanned.b[:, 1:], scanned.C[:, 1:])


def doubling(x: Inputs) -> Belief:
    """The same by doubling: at distance 1, 2, 4, … every element joins the one so far before it."""
    return doubled(x.a, x.b, x.q, x.u, x.w, x.r)


def doubled(a: Tensor, b: Tensor, q: Tensor, u: Tensor, w: Tensor, r: Tensor) -> Belief:
    """`doubling` of signals u, w and r (B, T, N)."""
    leaf = step_filter(a, b * u, q, w, r)
    zero = torch.zeros_like(w[:, :1])
    start = constant_filter(Belief(zero, zero + 1))
    fields = [torch.cat(pair, 1) for pair in zip(start, leaf, strict=True)]
    distance = 1
    while distance < fields[0].shape[1]:
        joined = _join([f[:, :-distance] for f in fields], [f[:, distance:] for f in fields])
        fields = [torch.cat([f[:, :distance], j], 1) for f, j in zip(fields, joined, strict=True)]
        distance *= 2
    scanned = Filter(*fields)
    return Belief(scanned.b[:, 1:], scanned.C[:, 1:])


def loop(x: Inputs) -> Belief:
    """Predict and update step by step; unbound once, so that the gradient's cost is linear in T."""
    mean, variance = torch.zeros_like(x.w[:, 0]), torch.ones_like(x.w[:, 0])
    means, variances = [], []
    for c, w, r in zip(*(s.unbind(1) for s in (x.b * x.u, x.w, x.r)), strict=True):
        p = x.a * x.a * variance + x.q
        k, g = p / (p + r), r / (p + r)
        mean, variance = g * (x.a * mean + c) + k * w, g * p
        means.append(mean)
        variances.append(variance)
    return Belief(torch.stack(means, 1), torch.stack(variances, 1))


def plain_pytorch() -> list[Contender]:
    """All three."""
    less = "float32, PyTorch's gradients; does less: no lengths, resets or missing readings"
    return [
        _contender("PyTorch scan", f"the paper's log-depth scan, {less}", scan, too_large),
        _contender("PyTorch doubling", f"the same by doubling, {less}", doubling, far_too_large),
        _contender("PyTorch loop", f"a Python loop over the steps, {less}", loop, too_long),
    ]


def far_too_large(x: Inputs) -> str | None:
    """Doubling keeps every pass for its gradients."""
    return too_large(x, bytes_per_element=90 * x.size.T.bit_length())


def too_large(x: Inputs, bytes_per_element: int | None = None) -> str | None:
    """Eager calls and captured graphs hold their memory side by side: leave room for four."""
    needed = (bytes_per_element or SCAN_BYTES) * x.size.elements
    if x.w.device.type == "cuda":
        total = torch.cuda.get_device_properties(x.w.device).total_memory
    else:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if 4 * needed <= total:
        return None
    return f"would need {needed / 1e9:.0f} GB of {total / 1e9:.0f} GB for one call with gradients"


def _contender(
    name: str, note: str, run: Callable[[Inputs], Belief], skip: Callable[[Inputs], str | None]
) -> Contender:
    def forward(x: Inputs) -> Belief:
        with torch.no_grad():
            return run(x)

    def both(x: Inputs) -> tuple[Any, ...]:
        posterior = run(x)
        leaves = (x.a, x.b, x.q, x.u, x.w, x.r)
        return (*posterior, *torch.autograd.grad(posterior.mean, leaves, x.cotangent))

    return Contender(
        name=name,
        note=note,
        task="variance",
        forward=forward,
        both=both,
        answer=lambda x: named_answer(both(x)),
        bytes_per_element={"forward": 20, "both": 56},
        skip=skip,
    )


def _join(left: list[Tensor], right: list[Tensor]) -> list[Tensor]:
    return list(combine_filter(Filter(*left), Filter(*right)))
