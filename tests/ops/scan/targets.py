"""Where the tests run: every backend of the table on every device of this machine.

On a GPU they take less than on a CPU. `reference` and `parallel` are PyTorch's operators there as
here, so that a few cases of each table are enough. The kernels of `gpu` are compiled anew for each
length and form of a table and know nothing of its noises, so that each length and form takes one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings

from kalmanac._ops.scan.backends import BACKENDS, usable
from tests.ops.scan.cases import ORDINARY, Case


@dataclass(frozen=True)
class Limit:
    """What a way to run a backend can bear. Those of a slow one on a CPU carry the mark `slow`."""

    steps: int  # longest sequence
    examples: int  # of a law
    every: int  # takes each so-many-th case of a table
    half_ulps: float  # by how much a number is off when it is stored in half precision


NO_LIMIT = Limit(steps=10**9, examples=10**9, every=1, half_ulps=0.5)

# Nine has no factor in common with the numbers of forms and of noises: all of both are met.
OPERATORS = Limit(steps=64, examples=2, every=9, half_ulps=0.5)
LIMITS = {
    # almost every example of a law has a form of its own, which takes seconds to compile
    ("gpu", "cuda"): replace(NO_LIMIT, examples=3),
    # only an interpreter can run it there; Triton's truncates to bfloat16
    ("gpu", "cpu"): Limit(steps=64, examples=2, every=9, half_ulps=1.0),
    ("reference", "cuda"): OPERATORS,
    ("parallel", "cuda"): OPERATORS,
}


@dataclass(frozen=True)
class Target:
    """One backend on one device."""

    backend: str
    device: str

    @property
    def limit(self) -> Limit:
        return LIMITS.get((self.backend, self.device), NO_LIMIT)

    def require(self, *dtypes: torch.dtype) -> None:
        """Skip the test if the backend cannot run these dtypes here."""
        for dtype in dtypes:
            reason = usable(torch.device(self.device), dtype)[self.backend]
            if reason is not None:
                pytest.skip(f"{self.backend} on {self.device}: {reason}")

    def bearable(self, cases: Sequence[Case]) -> list[Case]:
        """The cases that this target runs, in reasonable time."""
        if (self.backend, self.device) == ("gpu", "cuda"):
            return one_noise_each(cases)
        return [case for case in cases if case.steps <= self.limit.steps][:: self.limit.every]

    def __str__(self) -> str:
        return f"{self.backend}-{self.device}"


def one_noise_each(cases: Sequence[Case]) -> list[Case]:
    """Of cases that differ in nothing but noise one, of the next such the one with the next."""
    alike: dict[Case, list[Case]] = {}
    for case in cases:
        alike.setdefault(replace(case, noise=ORDINARY, slow=False), []).append(case)
    return [group[i % len(group)] for i, group in enumerate(alike.values())]


ALL = [Target(backend, "cpu") for backend in BACKENDS]
if torch.cuda.is_available():  # numba's `cpu` has nothing to do there
    ALL += [Target(backend, "cuda") for backend in BACKENDS if backend != "cpu"]


def _marks(target: Target, slow: bool) -> list[pytest.MarkDecorator]:
    if target.device == "cuda":
        return [pytest.mark.gpu]
    return [pytest.mark.slow] if slow else []


def _each(targets: Sequence[Target]) -> pytest.MarkDecorator:
    parameters = [
        pytest.param(target, id=str(target), marks=_marks(target, target.limit != NO_LIMIT))
        for target in targets
    ]
    return pytest.mark.parametrize("target", parameters)


every_backend_on_every_device = _each(ALL)
every_target = _each([target for target in ALL if target.limit is not OPERATORS])


def every_target_and(
    cases: Sequence[Case], *dtypes: torch.dtype, without: str | None = None, always: int = 0,
    quick_steps: int = 20,
) -> pytest.MarkDecorator:  # fmt: skip
    """Parametrize by `target` and `case`, and by `dtype` where some are given.

    A slow case carries the mark `slow`. A limited target runs about `always` cases of at most
    `quick_steps` steps without it.
    `without` names a pair that is left out, such as "reference-cpu-float64".
    """
    parameters = []
    for target in ALL:
        bearable = target.bearable(cases)
        quick = [case for case in bearable if case.steps <= quick_steps]
        chosen = quick[:: max(1, len(quick) // always)] if always else []
        for case in bearable:
            slow = case.slow if target.limit == NO_LIMIT else case not in chosen
            marks = _marks(target, slow)
            for dtype in dtypes:
                pair = f"{target}-{str(dtype).removeprefix('torch.')}"
                if pair != without:
                    name = f"{pair}-{case}"
                    parameters.append(pytest.param(target, case, dtype, id=name, marks=marks))
            if not dtypes:
                parameters.append(pytest.param(target, case, id=f"{target}-{case}", marks=marks))
    names = ("target", "case", "dtype") if dtypes else ("target", "case")
    return pytest.mark.parametrize(names, parameters)


def law(**strategies: Any) -> Callable[[Callable[..., None]], Callable[[Target], None]]:
    """A float64 test of `body(target, …)` on every target, for values drawn from `strategies`."""

    def decorate(body: Callable[..., None]) -> Callable[[Target], None]:
        @every_target
        def test(target: Target) -> None:
            target.require(torch.float64)
            examples = min(settings().max_examples, target.limit.examples)
            check = given(**strategies)(lambda **drawn: body(target, **drawn))
            settings(max_examples=examples)(check)()

        test.__name__, test.__doc__ = body.__name__, body.__doc__
        test.__module__ = body.__module__
        return test

    return decorate
