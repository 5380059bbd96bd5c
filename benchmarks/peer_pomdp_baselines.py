"""pomdp-baselines' recurrent SAC in PendulumNoVel, with the settings that it has for the pendulum.

Called by `peers_training.py` with a Python that has torch, gymnasium and ruamel.yaml, and a
checkout of github.com/twni2016/pomdp-baselines; it imports nothing of ours. Agent, replay buffer,
training loop and evaluation are theirs, unchanged. What they import and does not run on current
Pythons (gym, pybullet_envs), or is for logs and pictures, is replaced by the few names that are
used. Its first line of output tells versions and settings, each of the others an evaluation.
"""

import argparse
import codecs
import contextlib
import importlib.metadata
import json
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import torch

PACKAGES = ("gymnasium", "torch", "numpy")
SETTINGS = "configs/pomdp/pendulum/v/rnn.yml"  # written for velocities alone; theirs for a pendulum
STEPS = 200  # of an episode


class Box:
    """Actions in [−1, 1], with a generator that can be seeded as old gym's."""

    shape = (1,)

    def __init__(self) -> None:
        self.np_random = np.random.RandomState()

    def sample(self) -> Any:
        """Any action."""
        return self.np_random.uniform(-1.0, 1.0, self.shape).astype(np.float32)


class Positions:
    """Pendulum without its velocity, with the methods of old gym."""

    _max_episode_steps = STEPS

    def __init__(self) -> None:
        self._env = gymnasium.make("Pendulum-v1")
        self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = Box()
        self._seed: int | None = None

    def seed(self, seed: int) -> None:
        """Let the next episode begin with this seed."""
        self._seed = seed

    def reset(self) -> Any:
        """Begin an episode."""
        observation, _ = self._env.reset(seed=self._seed)
        self._seed = None
        return observation[:2]

    def step(self, action: Any) -> tuple[Any, float, bool, dict[str, Any]]:
        """Take one action."""
        torque = 2.0 * np.clip(action, -1.0, 1.0)
        observation, reward, terminated, truncated, _ = self._env.step(torque)
        told = {"TimeLimit.truncated": True} if truncated else {}
        return observation[:2], float(reward), terminated or truncated, told


def main() -> None:
    """Train, and print lines of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--task", required=True, choices=["novel/Pendulum"])
    parser.add_argument("--source", required=True, type=Path, help="their checkout")
    for name in ("seed", "steps", "every", "episodes", "threads"):
        parser.add_argument(f"--{name}", required=True, type=int)
    parser.add_argument("--set", metavar="NAME=JSON", nargs="*", default=[], help="of train")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    options = parser.parse_args()
    with contextlib.redirect_stdout(sys.stderr):
        train(options)


def train(options: argparse.Namespace) -> None:
    """One run, as their `policies/main.py` does it."""
    sys.path.insert(0, str(options.source))
    codecs.register(lambda name: codecs.lookup("utf-8") if name == "future_fstrings" else None)
    for name in ("envs", "envs.pomdp", "envs.credit_assign", "utils.evaluation"):
        sys.modules[name] = ModuleType(name)
    nothing = dict.fromkeys(("log", "record_step", "record_tabular"), lambda *_: None)
    put("utils.logger", **nothing)
    put("gym", make=lambda _: Positions(), spaces=gymnasium.spaces)
    sys.modules["gym.spaces"] = gymnasium.spaces
    from policies.learner import Learner  # theirs
    from ruamel.yaml import YAML
    from torchkit.pytorch_utils import set_gpu_mode
    from utils import system

    told = YAML(typ="safe").load((options.source / SETTINGS).read_text())
    told["train"]["num_iters"] = options.steps // STEPS - told["train"]["num_init_rollouts_pool"]
    for word in options.set:
        name, _, value = word.partition("=")
        told["train"][name] = json.loads(value)
    told["eval"]["log_interval"] = options.every // STEPS
    told["env"]["num_eval_tasks"] = options.episodes
    system.reproduce(options.seed)
    torch.set_num_threads(options.threads)
    set_gpu_mode(options.device == "cuda", 0)
    away = np.zeros(2)  # both clocks while evaluating

    class Watched(Learner):  # type: ignore[misc]
        """Theirs; what it would write to files goes to our lines."""

        def log(self) -> None:
            """Evaluate."""
            nonlocal away
            begun = clocks()
            self.eval_env.seed(options.seed + 10_000 + self._n_env_steps_total)
            returns, _, _, lengths = self.evaluate(self.eval_tasks)
            wall, cpu = begun - start - away
            show(
                {
                    "step": self._n_env_steps_total,
                    "updates": self._n_rl_update_steps_total,
                    "seconds": round(wall, 2),
                    "cpu_seconds": round(cpu, 2),
                    "returns": [round(float(x), 3) for x in returns[:, 0]],
                    "lengths": [int(x) for x in lengths],
                }
            )
            away = away + (clocks() - begun)

        def log_train_stats(self, train_stats: Any) -> None:
            """Leave out."""

        def save_model(self, *_: Any) -> None:
            """Leave out."""

    learner = Watched(
        env_args=told["env"], train_args=told["train"], eval_args=told["eval"],
        policy_args=told["policy"], seed=options.seed,
    )  # fmt: skip
    learner.eval_env = Positions()
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    commit = ["git", "-C", str(options.source), "rev-parse", "HEAD"]
    found = subprocess.run(commit, capture_output=True, text=True, check=False)
    versions["pomdp-baselines"] = found.stdout.strip() or "unknown commit"
    show(
        {
            "agent": "recurrent SAC (pomdp-baselines)", "versions": versions,
            "settings": {"train": told["train"], "policy": told["policy"]},
        }
    )  # fmt: skip
    start = clocks()
    learner.train()


def put(name: str, **names: Any) -> None:
    """Let `name` be a module of these names alone."""
    module = ModuleType(name)
    vars(module).update(names)
    sys.modules[name] = module


def clocks() -> Any:
    """Seconds that passed, and seconds that the processor worked."""
    return np.array([time.perf_counter(), time.process_time()])


def show(row: dict[str, Any]) -> None:
    """One line on the standard output that this process was started with."""
    print(json.dumps(row), file=sys.__stdout__, flush=True)


if __name__ == "__main__":
    main()
