"""Supervised noisy tracking: how close does each history encoder come to the exact Kalman filter?

    python benchmarks/tracking.py [--device cuda] [--quick] [--out results/tracking.json]

A signal drifts slowly, x_t = φ x_{t-1} + sqrt(1 - φ²) ε_t. It is read as y_t = x_t + σ_t ν_t, where
the noise scale σ_t jumps now and then and is given as an input. The encoder sees (y_t, log σ_t)
through one linear layer and has to give x_t through another. Everybody gets the same data, the same
number of updates, the same optimizer. The exact filter knows φ and is the best that can be done.

The paper starts the Kalman layers' process noise at 1. Here its ratio to the reading noise has to
fall to 0.04 / σ², and the raw parameter has to travel far for that, at most one learning rate per
update: within this budget it is the start, not the form, that keeps vssm+kf from the exact filter.
The last contender shows it, by starting at 0.01.
"""

import argparse
import math
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from kalmanac._encoders.parameters import count_parameters
from kalmanac._encoders.registry import ENCODERS, encoder_settings, make_encoder
from kalmanac._ops.scan.inputs import Belief
from kalmanac._ops.scan.kalman import kalman_scan
from record import on_record, save
from report import print_table


@dataclass(frozen=True)
class Task:
    """The signal, its readings and the budget."""

    decay: float = 0.98  # φ
    quietest: float = 0.1  # σ is log-uniform between these two,
    loudest: float = 3.0
    jump: float = 0.1  # and drawn anew with this probability at each step
    steps: int = 64
    batch: int = 32
    updates: int = 400
    learning_rate: float = 3e-2  # for all; LSTM alone is unsteady there
    d_model: int = 16
    tests: int = 1024  # sequences


CONTENDERS: dict[str, tuple[str, dict[str, Any]]] = {name: (name, {}) for name in ENCODERS} | {
    "vssm+kf, Σᵖ from 0.01": ("vssm+kf", {"process_noise": 0.01}),
}


class Sample(NamedTuple):
    """Sequences of signals x, readings y and log σ, (B, T, 1) each."""

    signal: Tensor
    reading: Tensor
    log_scale: Tensor


class Tracker(nn.Module):
    """(y_t, log σ_t) → E → history encoder → estimate of x_t."""

    def __init__(self, contender: str, task: Task) -> None:
        super().__init__()
        name, own = CONTENDERS[contender]
        settings: dict[str, Any] = {"d_model": task.d_model} | own
        if "window" in encoder_settings(name):
            settings["window"] = task.steps
        self.embed = nn.Linear(2, task.d_model)
        self.encoder = make_encoder(name, **settings)
        self.read_out = nn.Linear(task.d_model, 1)

    def forward(self, sample: Sample) -> Tensor:
        """Estimates, (B, T, 1)."""
        z, _ = self.encoder(self.embed(torch.cat([sample.reading, sample.log_scale], -1)))
        return self.read_out(z)


def draw(task: Task, batch: int, generator: torch.Generator) -> Sample:
    """Sequences from the stationary process."""
    shape = (batch, task.steps, 1)
    noise = torch.randn(shape, generator=generator)
    noise[:, 1:] *= math.sqrt(1 - task.decay**2)
    signal = [noise[:, 0]]
    for t in range(1, task.steps):
        signal.append(task.decay * signal[-1] + noise[:, t])
    x = torch.stack(signal, 1)

    low, high = math.log(task.quietest), math.log(task.loudest)
    levels = low + (high - low) * torch.rand(shape, generator=generator)
    jumps = torch.rand(shape, generator=generator) < task.jump
    jumps[:, 0] = True
    last_jump = torch.arange(task.steps)[:, None].expand(shape).masked_fill(~jumps, 0).cummax(1)
    log_scale = levels.gather(1, last_jump.values)
    y = x + log_scale.exp() * torch.randn(shape, generator=generator)
    return Sample(x, y, log_scale)


def exact_filter(task: Task, sample: Sample) -> Tensor:
    """The posterior mean of x_t under the true model, (B, T, 1), in float64."""
    y, r = sample.reading.double(), (2 * sample.log_scale.double()).exp()
    a = torch.tensor([task.decay], dtype=torch.float64)
    # The stationary variance is 1, so that the first prediction is N(0, 1) again.
    prior = Belief(torch.zeros(1).double(), torch.ones(1).double())
    posterior, _ = kalman_scan(a, None, 1 - a * a, y, r, prior, backend="reference")
    return posterior.mean


def mean_squared_error(estimate: Tensor, signal: Tensor) -> float:
    """Over all sequences and steps."""
    return float((estimate.double() - signal.double()).square().mean())


def train(contender: str, task: Task, seed: int, device: torch.device) -> tuple[float, float]:
    """Test error and seconds of one training run."""
    begun = time.perf_counter()
    torch.manual_seed(seed)
    tracker = Tracker(contender, task).to(device)
    data = torch.Generator().manual_seed(1000 + seed)
    optimizer = torch.optim.Adam(tracker.parameters(), task.learning_rate)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, task.updates)
    for _ in range(task.updates):
        sample = Sample(*(x.to(device) for x in draw(task, task.batch, data)))
        loss = (tracker(sample) - sample.signal).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        decay.step()
    with torch.no_grad():
        sample = Sample(*(x.to(device) for x in test_sample(task)))
        error = mean_squared_error(tracker(sample), sample.signal)
    return error, time.perf_counter() - begun


def test_sample(task: Task) -> Sample:
    """The same for every encoder and seed."""
    return draw(task, task.tests, torch.Generator().manual_seed(7))


def main(argv: Sequence[str] | None = None) -> int:
    """Train all, print the table, write JSON."""
    words = list(sys.argv[1:] if argv is None else argv)
    options = _options(words)
    task = Task(updates=options.updates, learning_rate=options.learning_rate)
    if options.quick:
        task = Task(steps=16, batch=4, updates=3, tests=16)
    device = torch.device(options.device)
    sample = test_sample(task)
    floor = mean_squared_error(exact_filter(task, sample), sample.signal)
    raw = mean_squared_error(sample.reading, sample.signal)

    rows = []
    for name in options.only or list(CONTENDERS):
        runs = [train(name, task, seed, device) for seed in range(options.seeds)]
        errors = [error for error, _ in runs]
        rows.append(
            {
                "contender": name,
                "parameters": count_parameters(Tracker(name, task).encoder),
                "errors": errors,
                "mean": statistics.mean(errors),
                "times_exact": statistics.mean(errors) / floor,
                "seconds": sum(seconds for _, seconds in runs),
            }
        )
        print(f"  {name}: {rows[-1]['mean']:.4f} in {rows[-1]['seconds']:.0f} s", flush=True)
    rows.sort(key=lambda row: row["mean"])

    print(f"\nNoisy tracking, {task.updates} updates, mean of {options.seeds} seeds, test MSE")
    body = [["exact filter", "–", f"{floor:.4f}", "1.000", "–"]]
    for row in rows:
        spread = f"{min(row['errors']):.4f} … {max(row['errors']):.4f}"
        line = [row["contender"], f"{row['parameters']:,}", f"{row['mean']:.4f}"]
        body.append([*line, f"{row['times_exact']:.3f}", spread])
    body.append(["the reading itself", "–", f"{raw:.4f}", f"{raw / floor:.3f}", "–"])
    print_table(["", "parameters", "MSE", "× exact", "best … worst seed"], body)

    if options.out is not None:
        document = {
            **on_record("benchmarks/tracking.py", words),
            "device": device.type,
            "task": asdict(task),
            "seeds": options.seeds,
            "exact_filter": floor,
            "reading": raw,
            "rows": rows,
        }
        save(document, options.out)
        print(f"written: {options.out.name}")
    return 0


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--only", nargs="+", choices=list(CONTENDERS), help="these encoders alone")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=Task.updates)
    parser.add_argument("--learning-rate", type=float, default=Task.learning_rate)
    parser.add_argument("--quick", action="store_true", help="three updates of a tiny task")
    parser.add_argument("--out", type=Path, help="also write the numbers as JSON")
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
