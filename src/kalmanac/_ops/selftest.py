"""Does a scan backend tell the truth here? Every output and every gradient, against float64.

The truth is the `reference` backend in float64 on the CPU, fed with the same rounded inputs. The
problems are small but hold everything a scan must get right: ragged lengths (0 and 1 among them),
resets, missing readings, a carried state, signals that are views of one projection, noise given
as variances and as raw values, and enormous garbage wherever a value must not count.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kalmanac._ops.device import kind
from kalmanac._ops.scan.inputs import Belief
from kalmanac._ops.scan.kalman import kalman_scan, kalman_scan_packed
from kalmanac._ops.scan.linear import linear_scan

DTYPES = (torch.float32, torch.float64, torch.bfloat16)
SCANS = ("kalman_scan", "linear_scan")
# (B, T, N), and whether decay or noise vary in time; the last is long enough to be cut into chunks
CASES = (((6, 37, 19), False), ((6, 37, 19), True), ((2, 600, 4), False))
GARBAGE = 1e30


class Budget(NamedTuple):
    """The largest error allowed, max|error| / max|truth|, in each of the three groups."""

    values: float  # outputs of all steps
    final: float  # what is carried on: float32 at least, whatever the signals are
    gradients: float


BUDGETS = {
    torch.float64: Budget(1e-10, 1e-10, 1e-10),
    torch.float32: Budget(2e-6, 2e-6, 1e-5),
    torch.bfloat16: Budget(1e-2, 2e-6, 1e-2),
}

Named = dict[str, Tensor]
Outcome = dict[str, Named]  # group of `Budget` → name → tensor


class Problem(NamedTuple):
    """A problem is one call of a scan: differentiable inputs, masks, and how to call it."""

    inputs: Named
    masks: Named
    call: Callable[[Named, dict[str, Any]], Named]


class Verdict(NamedTuple):
    """A verdict: how far one backend is from the truth, over all problems of one scan and dtype."""

    scan: str
    backend: str
    device: str
    dtype: str
    budget: Budget
    errors: dict[str, dict[str, float]]  # group of `Budget` → name → worst error
    crash: str | None  # the error's text if the backend did not even run

    @property
    def ok(self) -> bool:
        return self.crash is None and not self.failures

    @property
    def failures(self) -> list[str]:
        """Return the names of what is outside its budget (a NaN is)."""
        return [
            f"gradient of {name}" if group == "gradients" else name
            for group, limit in self.budget._asdict().items()
            for name, error in self.errors[group].items()
            if not error <= limit
        ]

    def worst(self, group: str) -> float:
        """Return the largest error of a group; NaN if one is NaN or nothing was measured."""
        errors = self.errors[group].values()
        if not errors or any(e != e for e in errors):
            return float("nan")
        return max(errors)


def relative_error(came: Tensor, truth: Tensor) -> float:
    """max|came - truth| / max|truth|, in float64; 0 for two empty or two all-zero tensors."""
    if came.shape != truth.shape:
        raise ValueError(f"came: got shape {tuple(came.shape)}, expected {tuple(truth.shape)}")
    if truth.numel() == 0:
        return 0.0
    truth = truth.detach().cpu().double()
    worst = (came.detach().cpu().double() - truth).abs().max().item()
    scale = truth.abs().max().item()
    return 0.0 if worst == 0 else worst / scale if scale else float("inf")


def judge(scan: str, backend: str, device: torch.device, dtype: torch.dtype) -> Verdict:
    """Run `backend` on every problem of `scan` and compare it with the float64 reference."""
    errors: dict[str, dict[str, float]] = {group: {} for group in Budget._fields}
    crash = None
    try:
        for problem, truths in _problems_and_truths(scan, dtype):
            outcome = _run(problem, backend, device, dtype)
            for group, truth in truths.items():
                for name in truth:
                    error = relative_error(outcome[group][name], truth[name])
                    if not error <= errors[group].get(name, -1.0):  # true for a NaN as well
                        errors[group][name] = error
    except Exception as error:  # whatever a backend throws, the doctor reports it and goes on
        crash = f"{type(error).__name__}: {error}".splitlines()[0]
    name = str(dtype).removeprefix("torch.")
    return Verdict(scan, backend, kind(device), name, BUDGETS[dtype], errors, crash)


@cache
def _problems_and_truths(scan: str, dtype: torch.dtype) -> list[tuple[Problem, Outcome]]:
    """Make problems with garbage where no value counts, and the truth without it."""
    make = _kalman_problem if scan == "kalman_scan" else _linear_problem
    pairs = [_clean_and_dirty(make(shape, varying), dtype) for shape, varying in CASES]
    where = (torch.device("cpu"), torch.float64)
    return [(dirty, _run(clean, "reference", *where)) for clean, dirty in pairs]


def _clean_and_dirty(problem: Problem, dtype: torch.dtype) -> tuple[Problem, Problem]:
    """The problem with inputs rounded to `dtype`, and that with garbage where no value counts."""
    masks = problem.masks
    clean = {name: x.to(dtype).double() for name, x in problem.inputs.items()}
    dirty = {name: x.clone() for name, x in clean.items()}
    for x in dirty.values():
        if x.dim() == 3:  # of every step
            x[torch.arange(x.shape[1]) >= masks["lengths"][:, None]] = GARBAGE
    if "observed" in masks:
        _, w, r = dirty["projection"].chunk(3, -1)
        w[~masks["observed"]] = r[~masks["observed"]] = GARBAGE
    return problem._replace(inputs=clean), problem._replace(inputs=dirty)


def _kalman_problem(shape: tuple[int, int, int], varying: bool) -> Problem:
    """`varying`: process noise of every step, and both noises as raw values before softplus."""
    batch, steps, channels = shape
    draw = torch.Generator().manual_seed(steps + varying)

    def normal(*size: int) -> Tensor:
        return torch.randn(size, generator=draw, dtype=torch.float64)

    def positive(*size: int) -> Tensor:
        return torch.exp(normal(*size))

    noise = normal if varying else positive
    signals = torch.cat([normal(batch, steps, 2 * channels), noise(batch, steps, channels)], -1)
    inputs = {
        "a": 1 - 0.2 * torch.rand(channels, generator=draw, dtype=torch.float64),
        "b": normal(channels),
        "projection": signals,
        "q": noise(batch, steps, channels) if varying else noise(channels),
        "prior.mean": normal(channels),
        "prior.variance": positive(channels),
        "state.mean": normal(batch, channels),
        "state.variance": positive(batch, channels),
    }
    masks = _masks(batch, steps, draw)
    masks["observed"] = torch.rand(batch, steps, generator=draw) > 0.3
    how = {"r_floor": 1e-3, "q_floor": 1e-3} if varying else {"packed": steps > 100}
    return Problem(inputs, masks, partial(_call_kalman, **how))


def _linear_problem(shape: tuple[int, int, int], varying: bool) -> Problem:
    """`varying`: a decay of every step."""
    batch, steps, channels = shape
    draw = torch.Generator().manual_seed(steps + varying)
    decay = (batch, steps, channels) if varying else (channels,)
    inputs = {
        "a": 1 - 0.2 * torch.rand(decay, generator=draw, dtype=torch.float64),
        "b": torch.randn(batch, steps, channels, generator=draw, dtype=torch.float64),
        "initial": torch.randn(channels, generator=draw, dtype=torch.float64),
        "state": torch.randn(batch, channels, generator=draw, dtype=torch.float64),
    }
    return Problem(inputs, _masks(batch, steps, draw), _call_linear)


def _masks(batch: int, steps: int, draw: torch.Generator) -> Named:
    lengths = torch.randint(2, steps, (batch,), generator=draw)
    lengths[0] = steps
    if batch > 3:
        lengths[1], lengths[2] = 0, 1
    return {"lengths": lengths, "reset": torch.rand(batch, steps, generator=draw) < 0.05}


def _call_kalman(
    x: Named, options: dict[str, Any], *, packed: bool = False, **floors: float
) -> Named:
    beliefs = {n: Belief(x[f"{n}.mean"], x[f"{n}.variance"]) for n in ("prior", "state")}
    options = {"b": x["b"], **beliefs, **floors, **options}
    found: Any
    if packed:
        found = kalman_scan_packed(x["a"], x["projection"], x["q"], **options)
    else:
        u, w, r = x["projection"].chunk(3, -1)
        found = kalman_scan(x["a"], u, x["q"], w, r, **options)
    posterior, final = (belief._asdict() for belief in found)
    return posterior | {f"final.{name}": y for name, y in final.items()}


def _call_linear(x: Named, options: dict[str, Any]) -> Named:
    states, final = linear_scan(x["a"], x["b"], x["initial"], state=x["state"], **options)
    return {"states": states, "final": final}


def _run(problem: Problem, backend: str, device: torch.device, dtype: torch.dtype) -> Outcome:
    """Return outputs, and the gradients of a fixed random weighting of all of them."""
    inputs = {n: x.to(device, dtype).requires_grad_() for n, x in problem.inputs.items()}
    masks = {n: x.to(device) for n, x in problem.masks.items()}
    outputs = problem.call(inputs, {**masks, "backend": backend})
    draw = torch.Generator().manual_seed(0)
    # rounded to bfloat16, so that every dtype sees the same weights
    weights = [torch.randn(y.shape, generator=draw).bfloat16() for y in outputs.values()]
    weights = [v.to(device, y.dtype) for v, y in zip(weights, outputs.values(), strict=True)]
    grads = torch.autograd.grad(list(outputs.values()), list(inputs.values()), weights)
    gradients = dict(zip(inputs, grads, strict=True))
    if "projection" in gradients:
        gradients |= zip("uwr", gradients.pop("projection").chunk(3, -1), strict=True)
    return {
        "values": {n: y.detach() for n, y in outputs.items() if not n.startswith("final")},
        "final": {n: y.detach() for n, y in outputs.items() if n.startswith("final")},
        "gradients": gradients,
    }
