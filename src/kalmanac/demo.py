"""`kalmanac demo`: one picture of a Kalman scan filtering a noisy signal, with its ±2σ band.

The signals are drawn from the very model that filters them (paper, Eqs. 2 and 3), so that the
band's coverage has a known right answer, 95.4 %:

    x_t = a x_{t-1} + √q ε_t,    w_t = x_t + √r_t ν_t,    x_{-1} ~ N(0, q / (1 - a²))

The readings' noise grows and shrinks, a stretch of readings is missing, and a new episode starts
at a reset.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from kalmanac.ops import Belief, kalman_scan

STEPS = 240
SIGNALS = 500  # filtered by the same call; one is drawn, all are counted
DECAY, PROCESS_NOISE = 0.985, 0.03
NOISY = slice(50, 105)  # readings of standard deviation LOUD instead of QUIET
MISSING = slice(130, 160)
RESET = 195
QUIET, LOUD = 0.25, 1.2
DRAWN = 306  # a signal whose second episode starts visibly elsewhere
FILE = "kalmanac-demo.png"
# Okabe & Ito's colours, which colour-blind readers can tell apart
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#8A8A8A"


class Filtered(NamedTuple):
    """SIGNALS sequences and what the filter made of them, each (B, T)."""

    truth: Tensor
    readings: Tensor
    noise: Tensor  # variance r
    observed: Tensor  # bool
    mean: Tensor
    std: Tensor
    gain: Tensor


class Scores(NamedTuple):
    """Over all signals: error of readings and filter at the same steps, and the band's coverage."""

    rmse_readings: float
    rmse_filter: float
    coverage: float  # share of all steps, the missing ones too, with the truth inside ±2σ


def simulate_and_filter(seed: int = 0) -> Filtered:
    """Draw signals from the model, then filter all of them with one call of `kalman_scan`."""
    draw = torch.Generator().manual_seed(seed)

    def normal(*size: int) -> Tensor:
        return torch.randn(size, generator=draw)

    start = Belief(torch.zeros(1), torch.tensor([PROCESS_NOISE / (1 - DECAY**2)]))
    x = start.variance.sqrt() * normal(SIGNALS)
    states = []
    for t in range(STEPS):
        if t == RESET:
            x = start.variance.sqrt() * normal(SIGNALS)
        x = DECAY * x + PROCESS_NOISE**0.5 * normal(SIGNALS)
        states.append(x)
    truth = torch.stack(states, 1)

    noise = torch.full((SIGNALS, STEPS), QUIET**2)
    noise[:, NOISY] = LOUD**2
    readings = truth + noise.sqrt() * normal(SIGNALS, STEPS)
    observed = torch.ones(SIGNALS, STEPS, dtype=torch.bool)
    observed[:, MISSING] = False
    reset = torch.zeros(SIGNALS, STEPS, dtype=torch.bool)
    reset[:, RESET] = True

    posterior, _, filtering = kalman_scan(
        torch.tensor([DECAY]), None, torch.tensor([PROCESS_NOISE]),
        readings[..., None], noise[..., None], start,
        reset=reset, observed=observed, details=True,
    )  # fmt: skip
    mean, variance = (field[..., 0] for field in posterior)
    return Filtered(truth, readings, noise, observed, mean, variance.sqrt(), filtering.gain[..., 0])


def score(x: Filtered) -> Scores:
    """Numbers beside the picture, over all signals."""
    seen = x.observed
    inside = (x.truth - x.mean).abs() <= 2 * x.std
    return Scores(
        (x.readings - x.truth)[seen].square().mean().sqrt().item(),
        (x.mean - x.truth)[seen].square().mean().sqrt().item(),
        inside.float().mean().item(),
    )


def draw(x: Filtered, path: Path, row: int = DRAWN) -> None:
    """Signal, readings, filter and band above; the gain below. Writes one PNG file."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import numpy as np

    truth, readings, mean, std, gain = (
        field[row].numpy() for field in (x.truth, x.readings, x.mean, x.std, x.gain)
    )
    seen = x.observed[row].numpy()
    steps = np.arange(STEPS)
    episodes = (slice(0, RESET), slice(RESET, STEPS))  # lines and band break at the reset
    style = {"font.size": 11, "axes.spines.top": False, "axes.spines.right": False}
    with plt.rc_context(style):
        figure, (above, below) = plt.subplots(
            2, 1, figsize=(11, 6.2), sharex=True, height_ratios=(3, 1), layout="constrained"
        )
        figure.suptitle(
            "The Kalman scan follows good readings, smooths noisy ones, and says how sure it is",
            fontsize=14, fontweight="bold",
        )  # fmt: skip
        above.plot(
            steps[seen], readings[seen], ".", color=ORANGE, ms=5, alpha=0.75, label="noisy readings"
        )
        for part in episodes:
            low, high = (mean + sign * 2 * std for sign in (-1, 1))
            above.fill_between(steps[part], low[part], high[part], color=BLUE, alpha=0.2, lw=0)
            above.plot(steps[part], truth[part], color="black", lw=1.3)
            above.plot(steps[part], mean[part], color=BLUE, lw=2)
        names = ("±2σ band", "true signal (hidden from the filter)", "filtered signal")
        for artist, name in zip((above.collections[0], *above.lines[1:3]), names, strict=True):
            artist.set_label(name)
        above.set_ylabel("signal")
        below.plot(steps, gain, color=GREEN, lw=2, drawstyle="steps-mid")
        below.set(xlabel="step", xlim=(0, STEPS - 1), ylim=(-0.05, 1.05))
        below.set_ylabel("Kalman gain:\ntrust in readings")

        top = 1.02
        for axes in (above, below):
            axes.axvspan(NOISY.start - 0.5, NOISY.stop - 0.5, color=ORANGE, alpha=0.08, lw=0)
            axes.axvspan(MISSING.start - 0.5, MISSING.stop - 0.5, color=GREY, alpha=0.18, lw=0)
            axes.axvline(RESET - 0.5, color="black", lw=1.2, ls=(0, (4, 3)))
        for where, text in (
            ((NOISY.start + NOISY.stop) / 2, "noisier readings:\nsmaller gain, wider band"),
            ((MISSING.start + MISSING.stop) / 2, "no readings:\nthe band grows"),
            (RESET, "reset: a new\nepisode begins"),
        ):
            above.text(
                where, top, text, transform=above.get_xaxis_transform(), ha="center", va="bottom",
                fontsize=10,
            )  # fmt: skip
        figure.legend(
            *above.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False
        )
        figure.savefig(path, dpi=110)
        plt.close(figure)


def main(argv: Sequence[str]) -> int:
    """The verb: filter, draw, and say in two lines what came out."""
    parser = argparse.ArgumentParser(
        prog="kalmanac demo",
        description="Filter a noisy signal with missing readings and a reset by one call of "
        f"kalman_scan, and draw it as {FILE}.",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("runs"), metavar="FOLDER", help="default: %(default)s"
    )
    options = parser.parse_args(argv)
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        print("kalmanac demo: needs matplotlib: pip install kalmanac[report]", file=sys.stderr)
        return 1
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        print(f"kalmanac demo: --out {options.out}: {error.strerror}", file=sys.stderr)
        return 1

    filtered = simulate_and_filter()
    path = options.out / FILE
    draw(filtered, path)
    scores = score(filtered)
    better = scores.rmse_readings / scores.rmse_filter
    print(
        f"error (RMSE, {SIGNALS} signals): readings {scores.rmse_readings:.3f}, "
        f"filtered {scores.rmse_filter:.3f}, {better:.1f} times smaller"
    )
    print(f"true signal inside the ±2σ band: {scores.coverage:.1%} of steps (expected 95.4 %)")
    print(path)
    return 0
