"""Seeded random problems for the scans: what may be present, how long, how noisy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from kalmanac._ops.scan.inputs import Belief


@dataclass(frozen=True)
class Noise:
    """Ranges that the noise variances are drawn from, uniformly in their logarithm."""

    name: str
    q: tuple[float, float]
    r: tuple[float, float]

    @property
    def ordinary(self) -> bool:
        """Inside the range that has the strict float32 budget."""
        return self.q[0] >= 1e-2 and self.r[1] <= 1e2


ORDINARY = Noise("ordinary", (1e-2, 1e3), (1e-6, 1e2))
WHOLE = Noise("whole", (1e-6, 1e3), (1e-6, 1e6))
SMOOTHING = Noise("q=1e-6,r=1e6", (1e-6, 1e-6), (1e6, 1e6))  # gains near zero: longest memory
FOLLOWING = Noise("q=1e3,r=1e-6", (1e3, 1e3), (1e-6, 1e-6))  # gains near one
QUIET = Noise("q=1e-6,r=1e-6", (1e-6, 1e-6), (1e-6, 1e-6))
LOUD = Noise("q=1e3,r=1e6", (1e3, 1e3), (1e6, 1e6))
ORDINARY_EDGE = Noise("q=1e-2,r=1e2", (1e-2, 1e-2), (1e2, 1e2))
MILD = Noise("mild", (0.1, 1.0), (0.1, 1.0))  # for finite differences


@dataclass(frozen=True)
class Case:
    """One random problem; equal cases give equal problems."""

    steps: int
    noise: Noise = ORDINARY
    batch: int = 5
    channels: int = 3
    u: bool = True
    b: bool = True
    varying_q: bool = False
    prior: str = "rows"  # "none", "shared" (N,) or "rows" (B, N)
    state: str = "rows"
    lengths: bool = True
    resets: float = 3.0  # expected number per row
    missing: float = 0.3  # share of readings
    seed: int = 0
    slow: bool = False  # only with the mark `slow`

    def __str__(self) -> str:
        changed = [
            f"{f.name}={getattr(self, f.name)}"
            for f in fields(self)
            if f.name not in ("steps", "noise", "slow") and getattr(self, f.name) != f.default
        ]
        return "-".join([f"T={self.steps}", self.noise.name, *changed])


@dataclass(frozen=True)
class Problem:
    """The arguments of one call of `kalman_scan`."""

    a: Tensor
    b: Tensor | None
    u: Tensor | None
    q: Tensor
    w: Tensor
    r: Tensor
    prior: Belief | None
    state: Belief | None
    lengths: Tensor | None
    reset: Tensor | None
    observed: Tensor | None

    def arguments(self) -> dict[str, object]:
        """Keyword arguments of the call (and of the textbook filter)."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def map(self, change: Callable[[Tensor], Tensor]) -> Problem:
        """`change` applied to every tensor."""

        def apply(x: object) -> object:
            if isinstance(x, tuple):
                return Belief(*(change(field) for field in x))
            return None if x is None else change(x)

        return Problem(**{name: apply(x) for name, x in self.arguments().items()})

    def to(self, dtype: torch.dtype | None = None, device: str = "cpu") -> Problem:
        """In another floating dtype and on another device."""
        return self.map(
            lambda x: x.to(device, dtype if x.is_floating_point() and dtype else x.dtype)
        )

    def numpy(self) -> dict[str, object]:
        """The arguments as numpy arrays."""

        def convert(x: object) -> object:
            if isinstance(x, tuple):
                return tuple(field.numpy() for field in x)
            return None if x is None else x.numpy()

        return {name: convert(x) for name, x in self.arguments().items()}

    def with_gradients(self) -> tuple[Problem, dict[str, Tensor]]:
        """A copy whose floating tensors are leaves that want gradients, and these by name."""
        copy = self.map(lambda x: x.detach().clone().requires_grad_(x.is_floating_point()))
        leaves = {}
        for name, x in copy.arguments().items():
            if isinstance(x, tuple):
                leaves |= {f"{name}.{field}": y for field, y in zip(x._fields, x, strict=True)}
            elif x is not None and x.is_floating_point():
                leaves[name] = x
        return copy, leaves


def draw(case: Case, dtype: torch.dtype = torch.float64) -> Problem:
    """The problem of a case, rounded to `dtype`, on the CPU."""
    random = torch.Generator().manual_seed(1000 * case.seed + case.steps)
    B, T, N = shape = (case.batch, case.steps, case.channels)

    def normal(*size: int) -> Tensor:
        return torch.randn(size, generator=random, dtype=torch.float64)

    def uniform(low: float, high: float, *size: int) -> Tensor:
        return low + (high - low) * torch.rand(size, generator=random, dtype=torch.float64)

    def variance(low: float, high: float, *size: int) -> Tensor:
        ends = torch.tensor([low, high], dtype=torch.float64).log10().tolist()
        return 10 ** uniform(*ends, *size)

    def belief(kind: str) -> Belief | None:
        size = {"shared": (N,), "rows": (B, N)}.get(kind)
        return size and Belief(normal(*size), variance(0.1, 10.0, *size))

    def chance(share: float) -> Tensor:
        return torch.rand((B, T), generator=random) < share

    lengths = reset = observed = None
    if case.lengths:
        lengths = torch.randint(0, T + 1, (B,), generator=random)
        lengths[: min(B, 3)] = torch.tensor([T, 0, 1])[:B].clamp(max=T)
    if case.resets:
        reset = chance(case.resets / max(T, 1))
        reset[::2, :1] = True
        reset[:1, -1:] = True
    if case.missing:
        observed = ~chance(case.missing)
        observed[3:4] = False
    problem = Problem(
        a=1 - 10 ** uniform(-3.0, -0.05, N),
        b=uniform(0.5, 1.5, N) if case.b else None,
        u=normal(*shape) if case.u else None,
        q=variance(*case.noise.q, *(shape if case.varying_q else (N,))),
        w=normal(*shape),
        r=variance(*case.noise.r, *shape),
        prior=belief(case.prior),
        state=belief(case.state),
        lengths=lengths,
        reset=reset,
        observed=observed,
    )
    return problem.to(dtype)


def forms(steps: int, noise: Noise, **changes: object) -> list[Case]:
    """One case for every way in which the optional arguments are usually combined."""
    full = replace(Case(steps, noise), **changes)
    return [
        full,
        replace(full, varying_q=True, b=False, prior="shared", state="none", seed=1),
        replace(full, u=False, b=False, prior="none", state="shared", resets=0, seed=2),
        replace(
            full, b=False, prior="none", state="none", lengths=False, resets=0, missing=0, seed=3
        ),
    ]


NOISES = [ORDINARY, ORDINARY_EDGE, WHOLE, SMOOTHING, FOLLOWING, QUIET, LOUD]
LENGTHS = [1, 2, 63, 64, 257, 1025, 4096]


def grid() -> list[Case]:
    """All lengths × noises × forms. Of the longer ones a part runs always, all when asked for."""
    cases = []
    for steps in LENGTHS:
        for i, noise in enumerate(NOISES):
            for j, case in enumerate(forms(steps, noise)):
                if steps > 1000:
                    always = steps == 1025 and (noise, j) in ((ORDINARY, 1), (SMOOTHING, 3))
                else:
                    always = steps <= 2 or (i + j + steps) % 2 == 0
                cases.append(replace(case, slow=not always))
    return cases


LONG_MEMORY = Case(
    4096, ORDINARY_EDGE, batch=2, channels=8, b=False, prior="none", state="none", lengths=False,
    resets=0, missing=0,
)  # fmt: skip


def long_memory(inputs: str) -> Problem:
    """Decays up to 0.9999, in float32; one row reads at every step, the other never does.

    The filter soon stands still, so that the same rounding comes back at every step; with
    `inputs` "constant" the mean stands still too, with "random" it does not.
    """
    problem = draw(LONG_MEMORY, torch.float32)
    observed = torch.ones(LONG_MEMORY.batch, LONG_MEMORY.steps, dtype=torch.bool)
    observed[1] = False
    a = 1 - torch.logspace(-4, -1, LONG_MEMORY.channels)
    problem = replace(problem, a=a, observed=observed)
    if inputs == "random":
        return problem
    return replace(problem, u=torch.full_like(problem.u, 0.3), w=torch.full_like(problem.w, 0.7))
