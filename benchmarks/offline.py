"""Learning from data alone, then on: what pre-training makes of an agent's replay and episodes.

    python benchmarks/offline.py track [--seeds 3] [--quick] [--out results/offline/track.json]
    python benchmarks/offline.py dmc/cheetah-run --sources mediocre replay --device cuda --jobs 3 \
        --out results/offline/cheetah-run.json

For each seed an agent is trained, and stopped twice: on its way (mediocre) and at its end
(trained). Each plays with its own exploration, and what it did is the data; a third source is the
mediocre agent's replay, all that it did while it learned (replay). From each, new agents are
pre-trained without an environment: by behavior cloning alone, and by copies of better actions
(`near_data`), with the same number of updates. Then the latter goes on in the environment, from the
data and its own steps, and is looked at on its way; so is the mediocre agent that simply goes on.
All returns but the data's are means of deterministic episodes.

`--jobs 3` runs three seeds side by side. Each row is printed and written as it comes, so that a run
that is stopped keeps what it has. Rules are chosen with seeds from 10 on (`--first 10`).
"""

import argparse
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from queue import Empty
from typing import Any

from kalmanac import Corruption, EpisodeData, RecurrentSAC, evaluate_policy, make_vector
from record import on_record, save
from report import print_table

SOURCES = ("mediocre", "replay", "trained")
CLONING, OURS, ONLINE = "behavior cloning", "ours", "then online"
GOES_ON = "its agent goes on"


@dataclass(frozen=True)
class Task:
    """How long things take in an environment, and the agent's settings there."""

    env: str
    mediocre: int  # environment steps of the agent whose data are mediocre
    trained: int  # and of the one whose data are good
    data: int  # steps of data of each
    updates: int  # of a pre-training
    online: int  # environment steps afterwards
    sources: Sequence[str] = SOURCES
    looks: int = 4  # evaluations on the way, the last one at the end
    near_data: float = 0.5
    num_envs: int = 8
    episodes: int = 32  # of an evaluation
    env_settings: Mapping[str, Any] = field(default_factory=dict)
    repeat: int = 1  # steps of the environment for each action
    settings: Mapping[str, Any] = field(default_factory=dict)
    from_data: Mapping[str, Any] = field(default_factory=dict)  # others of agents that begin so


CONTROL: dict[str, Any] = {
    "encoder": "vssm+kf", "learning_rate": 1e-3, "learning_starts": 3_000,
    "update_to_data": 0.5, "initial_ent_coef": 0.1, "overlap": True,
    "tau": 0.02, "normalize_observations": False,
    "average_span": 0.25,  # a single actor's returns change by hundreds in 1,000 updates
}  # fmt: skip
# else own episodes of a few steps so far are drawn as often as whole ones of the data
LONG_EPISODES: Mapping[str, Any] = {"drawing": "transitions"}
TASKS = {
    "track": Task(
        env="track", mediocre=2_000, trained=4_048, data=1_920, updates=400, online=2_048,
        env_settings={"horizon": 32},
        settings={
            "encoder": "vssm+kf", "encoder_settings": {"d_state": 16}, "actor_hidden": (64,),
            "critic_hidden": (64, 64), "learning_rate": 3e-3, "tau": 0.05, "batch_size": 16,
            "context_length": 32, "learning_starts": 512, "update_to_data": 0.1,
            "initial_ent_coef": 0.01,
            "gamma": 0.0,  # an estimate has no later consequences
            "normalize_observations": False,
        },
    ),
    "dmc/cartpole-swingup": Task(  # without noise; episodes of 1,000 steps
        env="dmc/cartpole-swingup", mediocre=30_000, trained=54_000, data=20_000, updates=6_000,
        online=24_000, episodes=20, num_envs=20,
        settings=CONTROL, from_data=LONG_EPISODES,
    ),
    # Without noise; four steps of 10 ms for each action, so that an episode has 250 and a single
    # action matters. A return is a mean speed, and has no cliff.
    "dmc/cheetah-run": Task(
        env="dmc/cheetah-run", repeat=4, mediocre=10_000, trained=30_000, data=5_000,
        updates=3_000, online=20_000, episodes=20, num_envs=20,
        settings=CONTROL | {"learning_starts": 2_000}, from_data=LONG_EPISODES,
    ),
}  # fmt: skip
SIZES = {
    "mediocre": "environment steps of the mediocre agent",
    "trained": "and of the trained one",
    "data": "steps of data of each",
    "updates": "of a pre-training",
    "online": "environment steps afterwards",
    "episodes": "of an evaluation",
}
QUICK: Mapping[str, Any] = {
    "mediocre": 40, "trained": 80, "data": 96, "updates": 3, "online": 32, "episodes": 2,
}  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Train, play, pre-train, go on; write all numbers and print the table."""
    words = sys.argv[1:] if argv is None else list(argv)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument(
        "--sources", nargs="+", choices=SOURCES, default=SOURCES, help="whose data; all without"
    )
    parser.add_argument("--near", type=float, help="weight of staying near the data")
    for name, what in SIZES.items():
        parser.add_argument(f"--{name}", type=int, help=what)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="seeds at a time, each a process")
    parser.add_argument("--quick", action="store_true", help="a few updates, to see that it runs")
    parser.add_argument("--out", type=Path, help="JSON file for all numbers")
    options = parser.parse_args(words)
    task = TASKS[options.task]
    if options.quick:
        task = replace(task, **QUICK, settings={**task.settings, "learning_starts": 20})
    if options.near is not None:
        task = replace(task, near_data=options.near)
    task = replace(task, sources=[name for name in SOURCES if name in options.sources])
    given = {name: getattr(options, name) for name in SIZES}
    task = replace(task, **{name: size for name, size in given.items() if size is not None})
    seeds = range(options.first, options.first + options.seeds)
    rows: list[dict[str, Any]] = []
    document = on_record("benchmarks/offline.py", words) | {"task": asdict(task), "rows": rows}
    if options.out:
        save(document, options.out)
    for row in all_seeds(task, seeds, options.device, options.jobs):
        rows.append(row)
        print(row, flush=True)
        if options.out:
            save(document, options.out)
    print_table(["data", "", "steps", "mean", "std", "of seeds"], table(rows))
    return 0


def all_seeds(task: Task, seeds: Sequence[int], device: str, jobs: int) -> Iterator[dict[str, Any]]:
    """The rows of all seeds, as they come."""
    if jobs == 1:
        for seed in seeds:
            yield from one_seed(task, seed, device)
        return
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(jobs, mp_context=context) as pool:
        rows = manager.Queue()
        workers = [pool.submit(put_rows, rows, task, seed, device) for seed in seeds]
        while not (all(worker.done() for worker in workers) and rows.empty()):
            with suppress(Empty):
                yield rows.get(timeout=1)
        for worker in workers:
            worker.result()


def put_rows(rows: Any, task: Task, seed: int, device: str) -> None:
    """One seed's rows into a queue."""
    for row in one_seed(task, seed, device):
        rows.put(row)


def one_seed(task: Task, seed: int, device: str) -> Iterator[dict[str, Any]]:
    """All returns of one seed, as rows with what they are of."""
    began, began_at = time.process_time(), time.perf_counter()
    shown = vector(task, task.episodes)

    def row(data: str, what: str, value: float, **more: float) -> dict[str, Any]:
        clock = {
            "seconds": round(time.perf_counter() - began_at, 1),
            "processor_seconds": round(time.process_time() - began, 1),
        }
        return {"seed": seed, "data": data, "what": what, "return": value, **more, **clock}

    def score(model: RecurrentSAC) -> float:
        """Mean return of deterministic episodes, the same ones for every agent."""
        return evaluate_policy(model, shown, task.episodes, seed=10_000).mean_reward

    def on(model: RecurrentSAC, data: str, what: str) -> Iterator[dict[str, Any]]:
        """The agent goes on in the environment, and is looked at on its way."""
        looks, before = 0, model.num_timesteps
        for _ in model.advance(task.online):
            steps = model.num_timesteps - before
            if steps * task.looks >= task.online * (looks + 1):
                looks += 1
                yield row(data, what, score(model), steps=steps)

    on_its_way = [name for name in task.sources if name != "trained"]
    for name, episodes, agent in sources(task, seed, device):
        returns = [float(one.rewards.sum()) for one in episodes]
        yield row(name, "the data", statistics.fmean(returns), episodes=len(returns))
        yield row(name, "its agent", score(agent))
        for what, near in ((CLONING, 1.0), (OURS, task.near_data)):
            settings = {**task.settings, **task.from_data}
            model = RecurrentSAC(seed=seed + 100, device=device, **settings)
            env = vector(task, task.num_envs)
            model.set_spaces(env.single_observation_space, env.single_action_space)
            model.add_episodes(episodes)
            model.pretrain(task.updates, near_data=near)
            trust = model.learner.pretrained.trust
            yield row(name, what, score(model), updates=model.num_updates, trust=trust)
            if what == OURS:
                model.set_env(env)
                yield from on(model, name, ONLINE)
        if name in on_its_way[-1:]:
            yield from on(agent, "mediocre", GOES_ON)


def sources(
    task: Task, seed: int, device: str
) -> Iterator[tuple[str, list[EpisodeData], RecurrentSAC]]:
    """The episodes of each source, and its agent, which may be trained on in between."""
    model = RecurrentSAC(env=vector(task, task.num_envs), seed=seed, device=device, **task.settings)
    with tempfile.TemporaryDirectory() as folder:
        for name in task.sources:
            until = task.trained if name == "trained" else task.mediocre
            if model.num_timesteps > until:
                raise ValueError(
                    f"{name}: got an agent of {model.num_timesteps} steps, which has gone on, "
                    f"expected at most {until}: more of --trained, or less of --online"
                )
            model.learn(until - model.num_timesteps)
            player = model
            if name != "replay":
                model.save(Path(folder, name))
                player = RecurrentSAC.load(
                    Path(folder, name), vector(task, task.num_envs), device=device,
                    update_to_data=0.0, seed=seed + 1,
                )  # fmt: skip
                player.learn(task.data)
            episodes = list(player.episodes())
            longest = max(len(one.rewards) for one in episodes)  # those of a task are alike
            whole = [one for one in episodes if len(one.rewards) == longest]
            yield name, whole, model


def vector(task: Task, n: int) -> Any:
    """So many environments."""
    corruption = Corruption(frame_repeat=task.repeat)  # none where nothing is repeated
    return make_vector(task.env, n, corruption=corruption, **task.env_settings)


def table(rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Means over seeds of what was reached."""
    groups: dict[tuple[str, str, str], list[float]] = {}
    for row in rows:
        key = (row["data"], row["what"], str(row.get("steps", "")))
        groups.setdefault(key, []).append(row["return"])
    return [
        [*key, f"{statistics.fmean(x):.2f}", f"{statistics.pstdev(x):.2f}", str(len(x))]
        for key, x in groups.items()
    ]


if __name__ == "__main__":
    sys.exit(main())
