"""Time what a training of Best Arm does beside its updates: vector steps, rounds, evaluations.

    python benchmarks/collecting.py [--device cuda] [--seeds 5] [--quick] [--out FILE]

A vector step's parts are processor time of the host; rounds and evaluations are wall-clock time.
The policy asks with probability 0.99, so that episodes are as long as those of a trained one.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from kalmanac._lab.evaluation import OnDevice, evaluate
from kalmanac._lab.experiment import Experiment
from kalmanac._lab.factory import evaluation_environment, make_model, training_environment
from kalmanac._sac.loop import TrainingLoop
from kalmanac._sac.recurrent_sac import RecurrentSAC
from kalmanac._suites.registry import preset
from record import on_record, save
from report import print_table

SAMPLES = 8
NOTES = (
    "parts: milliseconds of one seed's vector step of 64 environments, processor time of the host, "
    "in the fastest of eight samples",
    "round: milliseconds of a vector step of all seeds with its updates, wall-clock",
    "evaluation: seconds of one seed's evaluation in and out of distribution, wall-clock",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, write JSON."""
    words = list(sys.argv[1:] if argv is None else argv)
    options = _options(words)
    steps, rounds = (20, 1) if options.quick else (400, options.rounds)
    experiment = preset("best-arm").experiment(options.encoder)
    if options.quick:
        small = {"batch_size": 4, "context_length": 8, "eval_episodes": 4, "update_to_data": 0.05}
        experiment = experiment.changed(small | {"env_settings": {"horizon": 50}})
    found: dict[str, Any] = {
        "parts": parts(agent(experiment, options.device), steps),
        "round": {
            order: round_milliseconds(experiment, options, order == "overlap", rounds)
            for order in ("in turn", "overlap")
        },
        "evaluation": evaluations(experiment, options.device),
    }
    for title, numbers in found.items():
        print(f"\n{title}")
        print_table(["", ""], [[name, f"{value:.3f}"] for name, value in numbers.items()])
    if options.out is not None:
        document = {
            **on_record("benchmarks/collecting.py", words),
            "notes": NOTES,
            "encoder": options.encoder,
            "seeds": options.seeds,
            **found,
        }
        save(document, options.out)
        print(f"written: {options.out.name}")
    return 0


def agent(experiment: Experiment, device: str) -> RecurrentSAC:
    """An untrained one that asks with probability 0.99, whatever it sees."""
    model = make_model(experiment, training_environment(experiment), device)
    last = model.learner.actor.head.layers[-1]
    assert isinstance(last, torch.nn.Linear)
    with torch.no_grad():
        last.weight.zero_()
        last.bias.copy_(torch.tensor([5.3, 0.0, 0.0]))
    return model


def parts(model: RecurrentSAC, steps: int) -> dict[str, float]:
    """Where the host's time of a vector step goes; acting includes waiting for it."""
    training = model._attached()
    training.settings = replace(training.settings, learning_starts=0, update_to_data=0.0)
    spent: dict[str, float] = {}

    def timed(name: str, owner: Any, method: str) -> None:
        work: Callable[..., Any] = getattr(owner, method)

        def clocked(*given: Any, **named: Any) -> Any:
            began = time.process_time()
            try:
                return work(*given, **named)
            finally:
                spent[name] = spent.get(name, 0.0) + time.process_time() - began

        setattr(owner, method, clocked)

    timed("acting", training, "ask")
    timed("acting", training, "_chosen")
    timed("environment", training.collector.streams.env, "step")
    timed("observations", training.collector.reader, "read")
    timed("replay", training.replay, "add")
    timed("replay", training.replay, "begin")
    loop = model.member(64 * steps * (SAMPLES + 1))
    samples = []
    for _ in range(SAMPLES + 1):
        spent.clear()
        began = time.process_time()
        for _ in range(steps):
            loop.collect()
        samples.append(spent | {"all": time.process_time() - began})
    fastest = min(samples[1:], key=lambda one: one["all"])  # a neighbor slows the others
    found = {name: 1e3 * seconds / steps for name, seconds in fastest.items()}
    whole = found.pop("all")
    rest = whole - sum(found.values())
    return found | {"the rest": rest, "all but acting": whole - found["acting"]}


def round_milliseconds(
    experiment: Experiment, options: argparse.Namespace, overlap: bool, rounds: int
) -> float:
    """A vector step of all seeds and its updates, once graphs are recorded."""
    how = experiment.changed({"overlap": overlap, "learning_starts": 0})
    models = [agent(how.changed({"seed": i}), options.device) for i in range(options.seeds)]
    loop = TrainingLoop([model.member(experiment.total_steps) for model in models])
    steps = loop.steps()
    device, times = models[0].device, []

    def some() -> float:
        began = time.perf_counter()
        for _ in range(rounds):
            next(steps)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return 1e3 * (time.perf_counter() - began) / rounds

    some()
    for _ in range(3):
        times.append(some())
    assert not loop.failures, loop.failures
    return statistics.median(times)


def evaluations(experiment: Experiment, device: str) -> dict[str, float]:
    """In the environments of the host, and on the device."""
    model = agent(experiment, device)
    envs = [evaluation_environment(experiment, name) for name in experiment.evaluations]
    together = OnDevice(experiment, model, 10.0)
    found: dict[str, float] = {}
    for number in range(3):  # the first ones record
        began = time.perf_counter()
        for env in envs:
            evaluate(model, env, experiment.eval_episodes, seed=number)
        middle = time.perf_counter()
        together([2 * number, 2 * number + 1])
        found = {"host": middle - began, "device": time.perf_counter() - middle}
    return found


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--encoder", default="vssm+kf")
    parser.add_argument("--seeds", type=int, default=1, help="that advance together in a round")
    parser.add_argument("--rounds", type=int, default=20, help="vector steps a sample")
    parser.add_argument("--quick", action="store_true", help="small sizes, few repetitions")
    parser.add_argument("--out", type=Path, help="also write the numbers as JSON")
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
