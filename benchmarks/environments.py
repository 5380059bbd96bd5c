"""Time a step of every DeepMind Control and POPGym task through our adapter and without it.

    python benchmarks/environments.py [--quick] [--out results/environments-cpu.json]

Raw steps are those of dm_control's and popgym's own objects, with the same actions; episodes begin
again as they end, in both. Where the adapter also tells popgym's hidden state, raw steps ask for it
too. Times are of the processor, not of the clock, and samples of both take turns, so that a busy
machine changes little. Each has a process of its own: Python adapts the code of a step to the
objects that it meets, and two kinds of them would slow each other down. An adapter that shows other
rewards is not timed, and the exit status is 1.
"""

import argparse
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from kalmanac._envs.dmc import DMC, NOISE, quiet
from kalmanac._envs.extras import load
from kalmanac._envs.popgym import HORIZONS, POPGym
from record import on_record, save
from report import print_table

LIMIT = 0.30
PAIRS = 3  # of processes; where things lie in memory differs between them
NOTES = (
    "microseconds of processor time a step, medians; the new episodes that end ones are counted in",
    "cost: median over the rounds of adapted / raw − 1, in the same round of three process pairs",
    "with state: popgym's get_state() at every step, raw and adapted",
)
POPGYM: dict[str, dict[str, bool]] = {
    "": {},
    ", with state": {"state": True},
}
Loop = Callable[[], list[Any]]  # steps through the actions once; all rewards
Pair = Callable[[], tuple[Loop, Loop]]  # makes both, raw and adapted


def main(argv: Sequence[str] | None = None) -> int:
    """Measure every task, print the tables, write JSON; 1 if an adapter was refused."""
    words = list(sys.argv[1:] if argv is None else argv)
    options = _options(words)
    rounds, steps, pairs = (3, 60, 1) if options.quick else (options.rounds, options.steps, PAIRS)
    tasks: dict[str, Pair] = {}
    for task in NOISE:
        tasks[f"dmc/{task}"] = partial(dmc_pair, task, steps)
    for kind, how in POPGYM.items():
        for task in HORIZONS:
            tasks[f"popgym/{task}{kind}"] = partial(popgym_pair, task, 10 * steps, **how)
    rows, refused = [], []
    for name, pair in tasks.items():
        if options.only and not any(word in name for word in options.only):
            continue
        found = race(pair, 10 * steps if "popgym" in name else steps, rounds, pairs)
        if found is None:
            refused.append(name)
        else:
            rows.append({"name": name, **found})
    report(rows, refused)
    if options.out is not None:
        document = {
            **on_record("benchmarks/environments.py", words),
            "notes": NOTES,
            "rows": rows,
            "refused": refused,
        }
        save(document, options.out)
        print(f"written: {options.out.name}")
    return 1 if refused else 0


def race(pair: Pair, steps: int, rounds: int, pairs: int) -> dict[str, float] | None:
    """Both loops in turn, each in its own process; None if their rewards differ."""
    times: tuple[list[float], list[float]] = ([], [])
    pair()  # loads here what each process would have to load by itself
    for _ in range(pairs):
        with Runner(pair, 0) as raw, Runner(pair, 1) as adapted:
            if not np.allclose(raw.rewards, adapted.rewards, rtol=1e-6):
                return None
            for number in range(rounds):
                for which in (0, 1) if number % 2 else (1, 0):
                    times[which].append((raw, adapted)[which].sample() / steps * 1e6)
    ratios = [b / a for a, b in zip(*times, strict=True)]
    return {
        "raw": statistics.median(times[0]),
        "adapted": statistics.median(times[1]),
        "cost": statistics.median(ratios) - 1,
    }


class Runner:
    """One loop of a pair in a process of its own, which waits until it is asked to run."""

    def __init__(self, pair: Pair, which: int) -> None:
        fork = multiprocessing.get_context("fork")  # with all modules that are loaded here
        self._pipe, there = fork.Pipe()
        self._process = fork.Process(target=_serve, args=(pair, which, there), daemon=True)
        self._process.start()
        there.close()
        self.rewards: list[Any] = self._pipe.recv()

    def sample(self) -> float:
        """Seconds of the processor for one loop."""
        self._pipe.send("run")
        return float(self._pipe.recv())

    def __enter__(self) -> "Runner":
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.send("")
        self._process.join()


def _serve(pair: Pair, which: int, pipe: Connection) -> None:
    if hasattr(os, "sched_setaffinity"):  # all on one core: two may differ by more than we measure
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    loop = pair()[which]
    pipe.send(loop())
    while pipe.recv():
        began = time.process_time()
        loop()
        pipe.send(time.process_time() - began)


def dmc_pair(task: str, steps: int) -> tuple[Loop, Loop]:
    """dm_control itself, and through the adapter, in the same episode each time."""
    env = DMC(task)
    domain, _, name = task.partition("-")
    from dm_control import suite  # the adapter has chosen how to go without a display

    random = np.random.RandomState()
    with quiet("absl"):
        own = suite.load(domain, name, task_kwargs={"random": random})
    derived = np.random.default_rng(0).integers(2**32)
    spec = own.action_spec()
    draws = np.random.default_rng(1).uniform(-1, 1, (steps, *spec.shape)).astype(np.float32)
    scaled = (spec.maximum + spec.minimum) / 2 + (spec.maximum - spec.minimum) / 2 * draws

    def raw() -> list[Any]:
        random.seed(derived)
        own.reset()
        return [own.step(action).reward for action in scaled]

    def adapted() -> list[Any]:
        env.reset(seed=0)
        return [env.step(action)[1] for action in draws]

    return raw, adapted


def popgym_pair(task: str, steps: int, state: bool = False) -> tuple[Loop, Loop]:
    """popgym itself, and through the adapter, in the same episodes each time."""
    env = POPGym(task, truth=state)
    own: Any = getattr(load("popgym", "popgym.envs"), task)()
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(steps)]
    translate = env.own_action
    ready = actions if translate is None else [translate(action) for action in actions]

    def raw() -> list[Any]:
        own.reset(seed=0)
        rewards = []
        for action in ready:
            _, reward, terminated, truncated, _ = own.step(action)
            if state:
                own.get_state()
            rewards.append(reward)
            if terminated or truncated:
                own.reset()
        return rewards

    def adapted() -> list[Any]:
        env.reset(seed=0)
        rewards = []
        for action in actions:
            _, reward, terminated, truncated, _ = env.step(action)
            rewards.append(reward)
            if terminated or truncated:
                env.reset()
        return rewards

    return raw, adapted


def report(rows: Sequence[dict[str, Any]], refused: Sequence[str]) -> None:
    """One table for each family, and their totals."""
    print("Microseconds a step, raw and through the adapter (processor time, medians)\n")
    body = [
        [row["name"], f"{row['raw']:.2f}", f"{row['adapted']:.2f}", f"{row['cost']:+.0%}"]
        for row in rows
    ]
    print_table(["", "raw", "adapted", "cost"], body)
    for family, kind in (("dmc", ""), *(("popgym", kind) for kind in POPGYM)):
        mine = [
            row
            for row in rows
            if row["name"].startswith(family) and row["name"].partition(",")[2] == kind[1:]
        ]
        if mine:
            raw, adapted = (sum(row[key] for row in mine) for key in ("raw", "adapted"))
            over = [row["name"] for row in mine if row["cost"] > LIMIT]
            print(
                f"\n{family}{kind}: all tasks together {adapted / raw - 1:+.0%}; "
                f"above {LIMIT:.0%}: {', '.join(over) or 'none'}"
            )
    for name in refused:
        print(f"  REFUSED {name}: other rewards than without the adapter")


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", nargs="+", metavar="WORD", help="tasks whose names hold a WORD")
    parser.add_argument("--rounds", type=int, default=15, help=f"samples in each of {PAIRS} pairs")
    parser.add_argument(
        "--steps", type=int, default=100, help="of dm_control a sample; popgym: ×10"
    )
    parser.add_argument("--quick", action="store_true", help="few steps and repetitions")
    parser.add_argument("--out", type=Path, help="also write the numbers as JSON")
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
