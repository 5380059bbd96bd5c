"""Which encoders the laws are tested on: every row of the table, and the options of some."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from kalmanac._encoders.contract import HistoryEncoder, State
from kalmanac._encoders.registry import ENCODERS, make_encoder

E = 6


@dataclass(frozen=True)
class Case:
    name: str
    settings: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return " ".join([self.name, *(f"{k}={v}" for k, v in self.settings.items())])

    def build(self, dtype: torch.dtype = torch.float32) -> HistoryEncoder:
        """The encoder, away from its initial values: at the start an input hardly moves a vSSM."""
        torch.manual_seed(0)
        encoder = make_encoder(self.name, d_model=E, **self.settings)
        with torch.no_grad():
            for name, p in encoder.named_parameters():
                p.add_(0.1 * torch.randn(p.shape))
                if name.endswith("raw_step_size"):
                    p.fill_(-3.0)
        return encoder.to(dtype)


ROWS = [Case(name) for name in ENCODERS]
OPTIONS = [
    Case("vssm", {"layers": 2, "norm": True, "d_state": 5}),
    Case("vssm+kf", {"layers": 3, "norm": True, "d_state": 5}),
    Case("vssm+kf", {"input_process_noise": True, "variance_feature": True}),
    Case("vssm+kf-u", {"input_process_noise": True}),
    Case("kf-block", {"layers": 2, "kernel": 1, "input_process_noise": True}),
    Case("mamba", {"layers": 2, "dt_rank": 2, "kernel": 3, "norm": True}),
    Case("gru", {"layers": 2, "d_state": 7, "norm": True}),
    Case("lstm", {"layers": 2, "d_state": 7, "norm": True}),
    Case("s5", {"layers": 2, "d_state": 8}),
    Case("transformer", {"layers": 2, "heads": 2, "norm": True}),
    Case("transformer", {"window": 3}),
    Case("transformer", {"window": 3, "layers": 2}),
]
CASES = ROWS + OPTIONS

every_encoder = pytest.mark.parametrize("case", CASES, ids=str)
every_row = pytest.mark.parametrize("case", ROWS, ids=str)
BUDGETS = {torch.float32: 1e-5, torch.float64: 1e-10}
every_encoder_exactly = pytest.mark.parametrize(  # rows in both dtypes, options in the sharper one
    ("case", "dtype"),
    [(c, torch.float32) for c in ROWS] + [(c, torch.float64) for c in CASES],
    ids=lambda x: str(x).removeprefix("torch."),
)


def sequence(batch: int, steps: int, dtype: torch.dtype = torch.float32, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, steps, E, generator=generator, dtype=torch.float64).to(dtype)


def flags(batch: int, steps: int, share: float, seed: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(batch, steps, generator=generator) < share


def run_in(encoder: HistoryEncoder, batch: int, steps: int = 4) -> State:
    """A state in the middle of an episode."""
    dtype = next((p.dtype for p in encoder.parameters()), torch.float32)
    with torch.no_grad():
        return encoder(sequence(batch, steps, dtype, seed=9))[1]


def by_steps(
    encoder: HistoryEncoder, h: Tensor, state: State, *, reset: Tensor | None = None,
    observed: Tensor | None = None,
) -> tuple[Tensor, State]:  # fmt: skip
    found = []
    for t in range(h.shape[1]):
        z_t, state = encoder.step(
            h[:, t],
            state,
            reset=None if reset is None else reset[:, t],
            observed=None if observed is None else observed[:, t],
        )
        found.append(z_t)
    return torch.stack(found, 1), state


def assert_close(value: Tensor, truth: Tensor, budget: float) -> None:
    """Within `budget`, relative to the largest magnitude where that is above one."""
    assert value.shape == truth.shape, (value.shape, truth.shape)
    assert value.dtype == truth.dtype, (value.dtype, truth.dtype)
    if truth.numel() == 0:
        return
    off = (value - truth).abs().max().item()
    scale = max(1.0, truth.abs().max().item())
    assert off <= budget * scale, f"off by {off:.3g} of {scale:.3g}, allowed {budget:g}"


def assert_states_close(value: State, truth: State, budget: float) -> None:
    assert type(value) is type(truth)
    for x, y in zip(value, truth, strict=True):
        assert_close(x, y, budget)


def rows_of(state: State, at: Iterable[int]) -> State:
    return tuple(x[list(at)] for x in state)
