"""Who is timed: both scans of every usable backend, and the peers of `peers.py`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal
from unittest.mock import patch

import torch

from kalmanac._ops.scan.backends import BACKENDS, usable
from kalmanac._ops.scan.inputs import Belief
from kalmanac._ops.scan.kalman import kalman_scan, kalman_scan_packed
from kalmanac._ops.scan.linear import linear_scan
from problem import R_FLOOR, Inputs

PLAIN = ("reference", "parallel")  # exact rather than fast: float64 inside
LOOP_STEPS = 2048  # a loop in Python over more steps only tests patience
ANSWERS = ("mean", "variance", "da", "db", "dq", "du", "dw", "dr")
Mode = Literal["forward", "both"]
Task = Literal["variance", "softplus", "linear"]  # what an answer is checked against


@dataclass(frozen=True)
class Contender:
    """Something that can be timed on a set of inputs.

    `forward(native)` and `both(native)` do the work, `both` with all gradients; `prepare` turns
    `Inputs` into what they take, once. `answer` runs `both` and names what came, on the CPU, for
    the check against the float64 reference; peers that compute something else have no task.
    """

    name: str
    note: str  # what it is, and where it does less or more work
    task: Task | None
    forward: Callable[[Any], Any]
    both: Callable[[Any], Any]
    answer: Callable[[Any], dict[str, torch.Tensor]] | None = None
    prepare: Callable[[Inputs], Any] = lambda inputs: inputs
    bytes_per_element: dict[Mode, int] | None = None  # least traffic in float32
    settle: Callable[[Any], None] | None = None  # waits for results off the torch stream
    skip: Callable[[Inputs], str | None] = lambda inputs: None  # why not at this size
    ours: bool = True  # a crash is a failure, not a reason to leave a peer out


def of_backends(device: torch.device) -> tuple[list[Contender], dict[str, str]]:
    """Contenders of every usable backend, and for the other backends the reason why not."""
    found: list[Contender] = []
    absent: dict[str, str] = {}
    for backend, why_not in usable(device, torch.float32).items():
        if why_not is not None:
            absent[backend] = why_not
            continue
        found.append(_kalman(backend, "variance"))
        if BACKENDS[backend].fused:
            found += [_kalman(backend, "softplus"), _packed(backend)]
        if backend == "gpu":
            found.append(_uncut())
        found.append(_linear(backend))
    return found, absent


def _kalman(backend: str, task: Literal["variance", "softplus"]) -> Contender:
    floor = R_FLOOR if task == "softplus" else None

    def noise(x: Inputs) -> torch.Tensor:
        return x.r if task == "variance" else x.rho

    def run(x: Inputs) -> Belief:
        return kalman_scan(x.a, x.u, x.q, x.w, noise(x), b=x.b, r_floor=floor, backend=backend)[0]

    def forward(x: Inputs) -> Belief:
        with torch.no_grad():
            return run(x)

    def both(x: Inputs) -> tuple[Any, ...]:
        posterior = run(x)
        leaves = (x.a, x.b, x.q, x.u, x.w, noise(x))
        return (*posterior, *torch.autograd.grad(posterior.mean, leaves, x.cotangent))

    notes = {
        "reference": "a Python loop over the steps; does more: float64 inside, masks",
        "parallel": "the paper's log-depth scan; does more: float64 inside, masks",
    }
    note = notes.get(backend, "fused forward and closed-form backward")
    if task == "softplus":
        note += "; does more: softplus of the noise and its gradient inside"
    return Contender(
        name=f"kalman {backend}" + (" softplus" if task == "softplus" else ""),
        note=note,
        task=task,
        forward=forward,
        both=both,
        answer=lambda x: named_answer(both(x)),
        bytes_per_element={"forward": 20, "both": 56},
        skip=partial(_backend_skip, backend),
    )


def _packed(backend: str) -> Contender:
    """As a layer calls it: one (B, T, 3N) projection in, one gradient of that shape out."""

    def run(x: Inputs) -> Belief:
        return kalman_scan_packed(
            x.a, x.packed, x.q, layout="uwr", b=x.b, r_floor=R_FLOOR, backend=backend
        )[0]

    def forward(x: Inputs) -> Belief:
        with torch.no_grad():
            return run(x)

    def both(x: Inputs) -> tuple[Any, ...]:
        posterior = run(x)
        leaves = (x.a, x.b, x.q, x.packed)
        return (*posterior, *torch.autograd.grad(posterior.mean, leaves, x.cotangent))

    def answer(x: Inputs) -> dict[str, torch.Tensor]:
        *first, signals = both(x)
        return named_answer([*first, *signals.chunk(3, -1)])

    return Contender(
        name=f"kalman {backend} packed",
        note="softplus inside; the three signals and their gradients each in one (B, T, 3N) tensor",
        task="softplus",
        forward=forward,
        both=both,
        answer=answer,
        bytes_per_element={"forward": 20, "both": 56},
    )


def _uncut() -> Contender:
    """The packed GPU scan without its cut into segments, at sizes where it would be cut."""
    from kalmanac._ops.scan.gpu.tiling import Segments, cut_in_time

    packed = _packed("gpu")

    def whole(rows: int, steps: int, channels: int, chunk: int) -> Segments:
        return Segments(-(-steps // chunk) * chunk, 1)

    def uncut(run: Callable[[Inputs], Any]) -> Callable[[Inputs], Any]:
        def patched(x: Inputs) -> Any:
            with patch("kalmanac._ops.scan.gpu.launch.segments", whole):
                return run(x)

        return patched

    def skip(x: Inputs) -> str | None:
        return None if cut_in_time(*x.size) else "the time axis is not cut at this size"

    assert packed.answer is not None
    return replace(
        packed,
        name="kalman gpu packed uncut",
        note="the same with the time axis in one piece",
        forward=uncut(packed.forward),
        both=uncut(packed.both),
        answer=uncut(packed.answer),
        skip=skip,
    )


def _linear(backend: str) -> Contender:
    def run(x: Inputs) -> torch.Tensor:
        return linear_scan(x.a, x.u, backend=backend)[0]

    def forward(x: Inputs) -> torch.Tensor:
        with torch.no_grad():
            return run(x)

    def both(x: Inputs) -> tuple[Any, ...]:
        states = run(x)
        return (states, *torch.autograd.grad(states, (x.a, x.u), x.cotangent))

    def answer(x: Inputs) -> dict[str, torch.Tensor]:
        names = ("states", "da", "du")
        return {n: t.detach() for n, t in zip(names, both(x), strict=True)}

    return Contender(
        name=f"linear {backend}",
        note="does less: a linear recurrence, no readings and no uncertainty"
        + ("; does more: float64 inside" if backend in PLAIN else ""),
        task="linear",
        forward=forward,
        both=both,
        answer=answer,
        bytes_per_element={"forward": 8, "both": 20},
        skip=partial(_backend_skip, backend),
    )


def named_answer(came: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Results of a Kalman contender's `both`, by name."""
    return {n: t.detach() for n, t in zip(ANSWERS, came, strict=True)}


def too_long(x: Inputs) -> str | None:
    """A reason to skip Python loops over very many steps."""
    steps = x.size.T
    return f"{steps} steps are too many for a loop in Python" if steps > LOOP_STEPS else None


def _backend_skip(backend: str, x: Inputs) -> str | None:
    return too_long(x) if backend == "reference" else None
