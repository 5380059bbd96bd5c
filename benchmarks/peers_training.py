"""Our agent beside two public ones: the same task, steps and machine.

    python benchmarks/peers_training.py --ours vssm+kf --task novel/Pendulum --seed 0 \
        --steps 20000 --update-to-data 0.5 --out results/novel
    python benchmarks/peers_training.py --peer-python PEER/bin/python --task novel/Pendulum \
        --seed 0 --steps 20000 --out results/novel
    python benchmarks/peers_training.py --peer-python PEER/bin/python --peer pomdp-baselines \
        --peer-source CHECKOUT --task novel/Pendulum --seed 0 --steps 20000 --out results/novel

Ours is the library's RecurrentSAC with its defaults, but for what the command names. A peer has a
process of its own and the Python of an environment in which `pip install rl_zoo3` was done (popgym,
too, for tasks of it): sb3-contrib's RecurrentPPO with settings of rl_zoo3; or, with ruamel.yaml and
a checkout of its code, the recurrent SAC of pomdp-baselines with its own settings. Each run leaves
a file of JSON lines: what it was, then its evaluations. Clocks are those of the training, without
evaluations: seconds that passed, and seconds that processors worked.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kalmanac._envs.registry import make_vector
from kalmanac._sac.callbacks import Callback
from kalmanac._sac.eval_callback import EvalCallback
from kalmanac._sac.recurrent_sac import RecurrentSAC
from record import on_record
from report import print_table

PEERS = {
    "recurrent-ppo": "peer_recurrent_ppo.py",
    "pomdp-baselines": "peer_pomdp_baselines.py",
}
TOGETHER = 10  # episodes that are evaluated at once
LATE = 0.9  # of the steps: evaluations from here on are averaged
HEAD = ("", "step", "return", "±", "least", "seconds", "processor")


def main(argv: Sequence[str] | None = None) -> int:
    """Train one agent, write its lines, print its table."""
    words = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    who = parser.add_mutually_exclusive_group(required=True)
    who.add_argument("--ours", metavar="ENCODER", help="train our agent with this encoder")
    who.add_argument("--peer-python", metavar="FILE", help="train the peer with this Python")
    parser.add_argument("--peer", choices=PEERS, default="recurrent-ppo", help="which of them")
    parser.add_argument("--peer-source", metavar="FOLDER", help="pomdp-baselines: its checkout")
    parser.add_argument("--peer-device", default="cpu", help="pomdp-baselines: cpu or cuda")
    parser.add_argument("--task", required=True, help="novel/Pendulum, say")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--update-to-data", type=float, default=1.0, help="ours")
    parser.add_argument("--num-envs", type=int, default=1, help="ours")
    parser.add_argument(
        "--set", metavar="NAME=JSON", nargs="*", default=[],
        help="ours, pomdp-baselines' train: settings other than those",
    )  # fmt: skip
    parser.add_argument("--every", type=int, default=2_000, help="steps between evaluations")
    parser.add_argument("--episodes", type=int, default=50, help="of an evaluation")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True, help="folder for what is written")
    options = parser.parse_args(words)
    torch.set_num_threads(options.threads)
    found = ours(options) if options.ours else peer(options)
    agent = options.ours or options.peer
    told = {"task": options.task, "seed": options.seed, "steps": options.steps}
    name = f"{options.task.partition('/')[2]}-{agent}-seed{options.seed}.jsonl"
    options.out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    with (options.out / name).open("w", encoding="utf-8") as file:
        for line in found:
            if not rows:
                line = on_record("benchmarks/peers_training.py", words) | told | line
            rows.append(line)
            file.write(json.dumps(line) + "\n")
            file.flush()
    print_table(list(HEAD), [cells(agent, row) for row in rows[1:]])
    late = [
        np.mean(row["returns"])
        for row in rows[1:]
        if row["step"] >= LATE * options.steps and "after" not in row
    ]
    print(f"from {LATE:.0%} of the steps on: {np.mean(late):.1f}, mean of {len(late)} evaluations")
    return 0


def ours(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """What was set, then the evaluations of a training."""
    settings = {"update_to_data": options.update_to_data}
    for word in options.set:
        name, _, value = word.partition("=")
        settings[name] = json.loads(value)
    model = RecurrentSAC(
        options.ours, make_vector(options.task, options.num_envs), seed=options.seed, device="cpu",
        **settings,
    )  # fmt: skip
    yield {
        "agent": f"RecurrentSAC ({options.ours})",
        "settings": {"num_envs": options.num_envs} | settings,
        "all_settings": vars(model.settings),
    }
    watch = Watch(make_vector(options.task, TOGETHER), options.every, options.episodes)
    for _ in model.advance(options.steps, watch):
        yield from watch.taken()


class Watch(Callback):
    """Evaluates as `EvalCallback` does, and stops both clocks meanwhile."""

    def __init__(self, env: Any, every: int, episodes: int) -> None:
        self._inner = EvalCallback(env, n_eval_episodes=episodes, eval_freq=every, verbose=0)
        self._rows: list[dict[str, Any]] = []
        self._seen: dict[str, list[float]] = {}
        self._begun = self._away = np.zeros(2)

    def on_start(self, model: RecurrentSAC) -> None:
        """Let the clocks run."""
        self._inner.on_start(model)
        self._begun = _clocks()

    def on_update(self, model: RecurrentSAC, metrics: Any) -> None:
        """Keep what the update tells."""
        for name, value in metrics.items():
            self._seen.setdefault(name, []).append(float(value))

    def on_step(self, model: RecurrentSAC) -> None:
        """Evaluate if it is time."""
        before, count = _clocks(), len(self._inner.evaluations)
        self._inner.on_step(model)
        if len(self._inner.evaluations) > count:
            step, found = self._inner.evaluations[-1]
            wall, cpu = before - self._begun - self._away
            row = {
                "step": step, "updates": model.num_updates,
                "seconds": round(wall, 2), "cpu_seconds": round(cpu, 2),
                "returns": [round(float(x), 3) for x in found.returns],
                "lengths": found.lengths.tolist(),
            }  # fmt: skip
            means = {k: float(f"{np.mean(v):.5g}") for k, v in self._seen.items()}
            self._rows.append(row | means)
            self._seen = {}
        self._away = self._away + (_clocks() - before)

    def taken(self) -> list[dict[str, Any]]:
        """Rows that have come since the last call."""
        rows, self._rows = self._rows, []
        return rows


def peer(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The lines that the peer's own process prints."""
    script = Path(__file__).parent / PEERS[options.peer]
    words = [options.peer_python, str(script), "--task", options.task]
    if options.peer_source:
        words += ["--source", options.peer_source, "--device", options.peer_device]
        words += ["--set", *options.set]
    for name in ("seed", "steps", "every", "episodes", "threads"):
        words += [f"--{name}", str(getattr(options, name))]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield json.loads(line)
    if process.returncode:
        raise SystemExit(f"peer: ended with status {process.returncode}, expected 0")


def cells(agent: str, row: dict[str, Any]) -> list[str]:
    """A line of the table."""
    returns = np.array(row["returns"])
    return [
        agent, f"{row['step']:,}", f"{returns.mean():.1f}", f"{returns.std():.1f}",
        f"{returns.min():.1f}", f"{row['seconds']:.0f} s", f"{row['cpu_seconds']:.0f} s",
    ]  # fmt: skip


def _clocks() -> Any:
    return np.array([time.perf_counter(), time.process_time()])


if __name__ == "__main__":
    sys.exit(main())
