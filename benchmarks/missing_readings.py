"""Missing readings: what is it worth to an agent to be told which ones are missing?

    python benchmarks/missing_readings.py [--quick] [--out results/missing-readings.json]

The task is `track`: a hidden target wanders, a noisy reading of its place comes at every step, and
the action is an estimate that pays minus its squared error. Half of the readings are missing; zeros
stand in their place. The same agent, vssm+kf, learns it twice: told of the gaps, its filter only
predicts there; not told, it takes every zero for a reading. Everything else is the same, seeds and
gaps included.

Below stand two references: the exact Kalman filter, which knows the gaps, and the best linear
estimate from all readings so far, which does not.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib

from kalmanac._envs.track import filter_error
from kalmanac._files.run_reader import read_metrics, series
from kalmanac._lab.experiment import Experiment
from kalmanac._lab.run import run
from record import on_record, save
from report import print_table

matplotlib.use("Agg")
import matplotlib.pyplot as plt

MISSING = 0.5
HORIZON = 64
SHARED = Experiment(
    env="track",
    env_settings={"horizon": HORIZON},
    dropout=MISSING,
    encoder="vssm+kf",
    total_steps=24_000,
    num_envs=16,
    learning_starts=2_000,
    update_to_data=0.05,
    batch_size=16,
    context_length=64,
    learning_rate=3e-3,
    gamma=0.0,  # an estimate has no later consequences
    tau=0.05,
    ent_coef=0.01,
    actor_hidden=(64,),
    critic_hidden=(64, 64),
    eval_every=2_000,
    eval_episodes=128,
    log_every=2_000,
)
CONTENDERS = {"told": True, "not told": False}


def learned(experiment: Experiment, folder: Path) -> dict[str, Any]:
    """The error at every evaluation of a run."""
    begun = time.perf_counter()
    outcome = run(experiment, folder, device="cpu", events=False)
    steps, returns = series(read_metrics(folder), "eval/in/mean_reward")
    return {
        "seed": experiment.seed,
        "status": outcome.status,
        "steps": steps,
        "errors": [round(-total / HORIZON, 5) for total in returns],
        "seconds": round(time.perf_counter() - begun, 1),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Train all, print the table, write JSON."""
    words = list(sys.argv[1:] if argv is None else argv)
    options = _options(words)
    shared = SHARED
    if options.quick:
        shared = replace(SHARED, total_steps=600, learning_starts=200, eval_every=300)
    exact = filter_error(missing=MISSING, horizon=HORIZON)
    linear = filter_error(missing=MISSING, horizon=HORIZON, told=False)
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in CONTENDERS}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(options.seeds):
            for name, told in CONTENDERS.items():
                one = shared.changed({"seed": seed, "dropout_told": told})
                found[name].append(learned(one, Path(folder) / f"{name}-{seed}"))
                last = found[name][-1]
                print(f"  seed {seed}, {name}: {last['errors'][-1]:.4f} in {last['seconds']:.0f} s",
                      flush=True)  # fmt: skip

    document = {
        **on_record("benchmarks/missing_readings.py", words),
        "experiment": shared.to_data(),
        "exact_filter": exact,
        "best_linear_not_told": linear,
        "runs": found,
    }
    print_errors(document)
    if options.out is not None:
        save(document, options.out)
        draw(document, options.out.with_suffix(".png"))
        print(f"written: {options.out.name} and its curves")
    return 0


def settled(run: dict[str, Any]) -> float:
    """The mean error over the second half of a run's evaluations; single ones scatter."""
    errors: list[float] = run["errors"]
    return statistics.mean(errors[len(errors) // 2 :])


def print_errors(document: dict[str, Any]) -> None:
    """The table."""
    exact, linear = document["exact_filter"], document["best_linear_not_told"]
    print(f"\nMean squared error with {MISSING:.0%} of the readings missing,")
    print("mean over the second half of the evaluations")
    seeds = [one["seed"] for one in document["runs"]["told"]]
    body = []
    for name, runs in document["runs"].items():
        errors = [settled(one) for one in runs]
        mean = statistics.mean(errors)
        cells = [*(f"{x:.3f}" for x in errors), f"{mean:.3f}", f"{mean / exact:.2f}"]
        body.append([f"vssm+kf, {name}", *cells])
    dashes = ["–"] * len(seeds)
    body.append(["exact filter, told", *dashes, f"{exact:.3f}", "1.00"])
    body.append(["best linear, not told", *dashes, f"{linear:.3f}", f"{linear / exact:.2f}"])
    print_table(["", *(f"seed {seed}" for seed in seeds), "mean", "× exact filter"], body)


def draw(document: dict[str, Any], path: Path) -> None:
    """The error of every seed over the steps, and the two references."""
    figure, axes = plt.subplots(figsize=(5.5, 3.5), layout="constrained")
    for (name, runs), color in zip(document["runs"].items(), ("C0", "C1"), strict=True):
        for i, one in enumerate(runs):
            label = f"vssm+kf, {name}" if i == 0 else None
            axes.plot(one["steps"], one["errors"], color, label=label, linewidth=1)
    for name, label, style in (
        ("exact_filter", "exact filter, told", "--"),
        ("best_linear_not_told", "best linear, not told", ":"),
    ):
        axes.axhline(document[name], color="0.3", linestyle=style, linewidth=1, label=label)
    axes.set(xlabel="environment steps", ylabel="mean squared error", ylim=(0.1, 0.6))
    axes.legend(frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a few updates")
    parser.add_argument("--out", type=Path, help="also write the numbers and curves as JSON")
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
