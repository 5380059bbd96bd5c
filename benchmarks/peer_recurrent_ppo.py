"""sb3-contrib's RecurrentPPO in a NoVel task, with the settings that rl_zoo3 has for it.

Called by `peers_training.py` with a Python that has rl_zoo3; it imports nothing of ours. Settings,
environments and their wrappers are those of the installed rl_zoo3. It has none for POPGym: tasks of
it have those of CartPoleNoVel, and the previous action in the observation by popgym's own wrappers.
Its first line of output tells versions and settings, each of the others an evaluation.
"""

import argparse
import contextlib
import importlib.metadata
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PACKAGES = ("rl_zoo3", "sb3_contrib", "stable_baselines3", "gymnasium", "torch", "numpy")
IDS = {
    "novel/CartPole": "CartPoleNoVel-v1",
    "novel/Pendulum": "PendulumNoVel-v1",
    "novel/MountainCarContinuous": "MountainCarContinuousNoVel-v0",
}
TOGETHER = 10  # episodes that are evaluated at once


def main() -> None:
    """Train, and print lines of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--task", required=True, help="novel/Pendulum, popgym/… say")
    for name in ("seed", "steps", "every", "episodes", "threads"):
        parser.add_argument(f"--{name}", required=True, type=int)
    options = parser.parse_args()
    with contextlib.redirect_stdout(sys.stderr), tempfile.TemporaryDirectory() as folder:
        train(options, folder)


def train(options: argparse.Namespace, folder: str) -> None:
    """One run, as `python -m rl_zoo3.train --algo ppo_lstm` does it, evaluated on the way."""
    import rl_zoo3.import_envs  # noqa: F401, registers the tasks
    import torch
    from rl_zoo3.exp_manager import ExperimentManager
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.utils import set_random_seed
    from stable_baselines3.common.vec_env import sync_envs_normalization

    torch.set_num_threads(options.threads)
    set_random_seed(options.seed)
    suite, _, task = options.task.partition("/")
    name, config = popgym(task, folder) if suite == "popgym" else (IDS[options.task], None)
    manager = ExperimentManager(
        argparse.Namespace(), "ppo_lstm", name, folder, n_timesteps=options.steps,
        eval_freq=-1, seed=options.seed, verbose=0, device="cpu", config=config,
    )  # fmt: skip
    model, settings = manager.setup_experiment()
    show(
        {
            "agent": "RecurrentPPO (sb3-contrib)",
            "versions": versions(),
            "settings": {name: str(value) for name, value in settings.items()},
        }
    )
    seeing = manager.create_envs(TOGETHER, eval_env=True, no_log=True)
    wall, cpu = time.perf_counter(), time.process_time()
    away = [0.0, 0.0]  # both clocks while evaluating

    def evaluate(**also: Any) -> None:
        begun = time.perf_counter(), time.process_time()
        sync_envs_normalization(model.env, seeing)
        seeing.seed(options.seed + 10_000 + model.num_timesteps)
        returns, lengths = evaluate_policy(
            model, seeing, options.episodes, deterministic=True, return_episode_rewards=True
        )
        ended = time.perf_counter(), time.process_time()
        show(
            {
                "step": model.num_timesteps,
                **also,
                "seconds": round(begun[0] - wall - away[0], 2),
                "cpu_seconds": round(begun[1] - cpu - away[1], 2),
                "returns": [round(float(x), 3) for x in returns],
                "lengths": [int(x) for x in lengths],
            }
        )
        away[0] += ended[0] - begun[0]
        away[1] += ended[1] - begun[1]

    due = options.every

    def after_step(*_: Any) -> bool:
        nonlocal due
        if model.num_timesteps >= due:
            due += options.every
            evaluate()
        return True

    model.learn(options.steps, callback=after_step)
    # It collects whole rollouts: what it learns from the last one comes after the last step
    evaluate(after="the last update")


def popgym(task: str, folder: str) -> tuple[str, str]:
    """Register a task of POPGym; return its id, and a file of settings that hold for it."""
    import gymnasium
    import popgym.envs
    import rl_zoo3
    import yaml
    from popgym.wrappers import Flatten, PreviousAction

    def make(**_: Any) -> Any:
        return Flatten(PreviousAction(getattr(popgym.envs, task)()))

    gymnasium.register(f"{task}-v0", entry_point=make)
    theirs = Path(rl_zoo3.__file__).parent / "hyperparams" / "ppo_lstm.yml"
    settings = yaml.safe_load(theirs.read_text())["CartPoleNoVel-v1"]
    (file := Path(folder) / "popgym.yml").write_text(yaml.safe_dump({"default": settings}))
    return f"{task}-v0", str(file)


def versions() -> dict[str, str]:
    """Those of the packages that matter here."""
    names = [*PACKAGES, *(["popgym"] if "popgym" in sys.modules else [])]
    return {name: importlib.metadata.version(name) for name in names}


def show(row: dict[str, Any]) -> None:
    """One line on the standard output that this process was started with."""
    print(json.dumps(row), file=sys.__stdout__, flush=True)


if __name__ == "__main__":
    main()
