"""The motor: agents beside an engineer's controllers, over how many readings are missing.

    kalmanac sweep motor                                        # or the jobs of dropout.py
    python benchmarks/motor.py runs/motor/* --out results/motor

The command line's one picture and one table: return and speed error in the same test episodes for
every agent that was trained, by itself or behind an exact Kalman filter (filtered_motor.py), and
for the engineer's cascade of PI controllers, which holds the last reading, takes zeros for
readings, or stands behind that filter. Its gains are those that
gem_controllers has by default (a = 4), and those of the best a for each share of missing readings,
found in episodes apart from the test's. Without runs, there is the engineer's part alone.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kalmanac._envs.motor import SERVO, Motor
from kalmanac._envs.motor_control import DEFAULT, Engineer, KalmanFilter, LastReading, tuned
from kalmanac._envs.registry import make_env
from kalmanac._envs.sensors import Corruption
from kalmanac._lab.experiment import Experiment
from kalmanac._lab.factory import evaluation_environment
from kalmanac._lab.play import load_run
from kalmanac._sac.recurrent_sac import RecurrentSAC
from kalmanac._suites.dropout import BURST, DELAY, NOISE, RATES
from motor_picture import Drawn, draw
from record import on_record, save
from report import print_table

LOAD = Motor().load
CHOICES = (1.2, 1.35, 1.5, 1.75, 2.0, 2.5, 3.0, DEFAULT)  # of a
TUNE_SEED, TEST_SEED = 3_000_003, 4_000_003  # apart from those of trainings and their evaluations
FIT_EPISODES, FIT_SEED = 32, 5_000_003  # of the agent's belief
SHOWN_RATE = 0.5
FILTERED = "filtered_motor:FilteredMotor"  # behind the exact filter: filtered_motor.py
Floats = NDArray[np.float64]


class Played(NamedTuple):
    """Episodes side by side, (episodes,) or (episodes, T, …)."""

    returns: Floats
    error: Floats  # mean distance of speed and reference, rad/s
    truth: Floats  # (…, 5): current, speed, load torque, reference, level
    reading: Floats  # (…, 3)
    observed: NDArray[np.bool_]
    belief: Floats  # (…, 2, N): mean and variance of whoever believes; N = 0 where nobody does


def corruption(rate: float) -> Corruption:
    """What happens to the readings."""
    burst = BURST if rate else None
    return Corruption(noise=NOISE, delay=DELAY, dropout=rate, dropout_burst=burst)


ENGINEERS: dict[str, tuple[Callable[[], LastReading | KalmanFilter], bool]] = {
    "PI, not told": (LastReading, False),
    "PI, holds the last reading": (LastReading, True),
    "PI behind the exact filter": (lambda: KalmanFilter(LOAD, NOISE, DELAY), True),
}


def play_engineer(name: str, a: float, rate: float, episodes: int, seed: int) -> Played:
    """One controller in episodes with seeds that count on from `seed`."""
    estimate, told = ENGINEERS[name]
    engineer = Engineer(tuned(a=a), estimate(), told=told)
    env, rows = make_env("motor", corruption=corruption(rate)), []
    for number in range(episodes):
        observation, info = env.reset(seed=seed + number)
        engineer.reset()
        steps, over, total = list[tuple[Any, ...]](), False, 0.0
        while not over:
            there = bool(info.get("observed", True))
            action = engineer.act(observation, there)
            before, truth = observation, info["privileged"]
            observation, reward, _, over, info = env.step(action)
            reached = abs(info["privileged"][1] - truth[3])
            steps.append((before, there, truth, reached))
            total += float(reward)
        reading, observed, truths, errors = map(np.array, zip(*steps, strict=True))
        nobody = np.zeros((len(steps), 2, 0))
        rows.append((total, SERVO.speed * errors.mean(), truths, reading, observed, nobody))
    return Played(*(np.array(x) for x in zip(*rows, strict=True)))


def play_agent(model: RecurrentSAC, experiment: Experiment, episodes: int, seed: int) -> Played:
    """The same of an agent, without exploration; all episodes at once."""
    env = evaluation_environment(experiment, "in", episodes)
    session, steps = model.session(), list[tuple[Any, ...]]()
    observation, infos = env.reset(seed=seed)
    total, over = np.zeros(env.num_envs), False
    while not over:
        told = {"observed": infos["observed"]} if "observed" in infos else {}
        action = session.act(observation, **({} if experiment.privileged else told))
        state, belief = session.state.encoder, np.zeros((env.num_envs, 2, 0))
        if hasattr(state, "variance"):
            belief = np.stack([x[:, -1].numpy() for x in (state.mean, state.variance)], 1)
        before, truth = np.array(observation), np.array(infos["privileged"])
        observed = np.array(told.get("observed", np.ones(env.num_envs, np.bool_)))
        observation, rewards, _, ended, infos = env.step(action)
        last = infos["final_info"]["privileged"] if ended.any() else infos["privileged"]
        reached = np.abs(np.stack(list(last))[:, 1] - truth[:, 3])
        steps.append((before, observed, truth, belief, reached))
        total += rewards
        over = bool(ended.all())  # they are of one length
    env.close()
    readings, there, truths, beliefs, errors = (np.stack(x, 1) for x in zip(*steps, strict=True))
    return Played(total, SERVO.speed * errors.mean(1), truths, readings, there, beliefs)


def best_a(name: str, rate: float, episodes: int) -> tuple[float, dict[str, float]]:
    """The a with the highest return in the episodes for tuning, and all returns."""
    found = {
        a: float(play_engineer(name, a, rate, episodes, TUNE_SEED).returns.mean()) for a in CHOICES
    }
    return max(found, key=lambda a: found[a]), {f"{a:g}": round(x, 2) for a, x in found.items()}


def engineers(episodes: int, tuning: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Name → rate → what it reached, with a = 4 and with the best a; and how that was found."""
    rows: dict[str, Any] = {}
    search: dict[str, Any] = {}
    for name in ENGINEERS:
        for rate in RATES:
            best, found = best_a(name, rate, tuning)
            search.setdefault(name, {})[f"{rate:g}"] = {"best": best, "returns": found}
            for title, a in ((f"{name}, a = {DEFAULT:g}", DEFAULT), (f"{name}, best a", best)):
                played = play_engineer(name, a, rate, episodes, TEST_SEED)
                rows.setdefault(title, {})[f"{rate:g}"] = numbers([played])
    return rows, search


def numbers(runs: Sequence[Played]) -> dict[str, Any]:
    """Return and error, with standard errors: over seeds if there are several, else episodes."""
    several = len(runs) > 1
    returns = np.array([run.returns.mean() for run in runs]) if several else runs[0].returns
    errors = np.array([run.error.mean() for run in runs]) if several else runs[0].error
    return {
        "return": [round(float(x), 2) for x in (returns.mean(), _error(returns))],
        "error": [round(float(x), 3) for x in (errors.mean(), _error(errors))],
        "runs": len(runs),
    }


def _error(values: Floats) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def rows_of(experiment: Experiment) -> Iterator[tuple[str, float]]:
    """The rows of the table that a run counts in, and its share of missing readings there."""
    agent, rate = experiment.agent, experiment.dropout
    if experiment.env == FILTERED:
        rate = float(dict(experiment.env_settings).get("dropout", SHOWN_RATE))
        yield f"{agent} behind the exact filter", rate
    elif experiment.privileged:  # whatever is missing
        yield from ((agent, any_rate) for any_rate in RATES)
    else:
        critic = ", critic sees readings alone" * (not experiment.privileged_critic)
        if experiment.dropout_told or not rate:
            yield f"{agent}, told{critic}", rate
        if not experiment.dropout_told or not rate:  # there is nothing to be told
            yield f"{agent}, not told{critic}", rate


def agents(folders: Sequence[Path], episodes: int) -> dict[str, Any]:
    """Agent → rate → what its seeds reached."""
    found: dict[tuple[str, float], list[Played]] = defaultdict(list)
    for folder in folders:
        model, experiment = load_run(folder, "last")
        if experiment.env not in ("motor", FILTERED):
            raise SystemExit(f"motor.py: got a run of {experiment.env}, expected one of the motor")
        played = play_agent(model, experiment, episodes, TEST_SEED)
        for name, rate in rows_of(experiment):
            found[name, rate].append(played)
        print(f"  {folder.name}: {played.returns.mean():.1f}", flush=True)
    rows: dict[str, Any] = {}
    for (name, rate), runs in sorted(found.items()):
        rows.setdefault(name, {})[f"{rate:g}"] = numbers(runs)
    return rows


def drawn(folder: Path) -> Drawn:
    """An episode of this agent, with its belief and the exact filter's.

    What the agent's memory believes of the speed is read from the means of its latent channels by
    weights w, fitted in other episodes by least squares; its variance is Σ w² σ² of the channels
    times one factor, fitted there, too.
    """
    model, experiment = load_run(folder, "last")
    fit = play_agent(model, experiment, FIT_EPISODES, FIT_SEED)
    test = play_agent(model, experiment, 1, TEST_SEED)
    mean, band = np.zeros(0), np.zeros(0)
    if fit.belief.shape[-1]:
        inputs = np.concatenate([fit.belief[..., 0, :], np.ones((*fit.belief.shape[:2], 1))], -1)
        flat = inputs.reshape(-1, inputs.shape[-1])
        ridge = 1e-3 * len(flat) * np.eye(flat.shape[1])
        w = np.linalg.solve(flat.T @ flat + ridge, flat.T @ fit.truth[..., 1].ravel())
        spread = fit.belief[..., 1, :] @ w[:-1] ** 2
        factor = np.mean((inputs @ w - fit.truth[..., 1]) ** 2) / spread.mean()
        mean = SERVO.speed * (test.belief[0, :, 0] @ w[:-1] + w[-1])
        band = SERVO.speed * np.sqrt(factor * (test.belief[0, :, 1] @ w[:-1] ** 2))
    engineer = play_engineer("PI behind the exact filter", 1.5, SHOWN_RATE, 1, TEST_SEED)
    return Drawn(
        f"{experiment.agent}{', told of gaps' if experiment.dropout_told else ''}",
        test.truth[0], test.reading[0], test.observed[0], mean, band,
        SERVO.speed * engineer.truth[0, :, 1],
    )  # fmt: skip


def print_rows(rows: Mapping[str, Mapping[str, Any]]) -> None:
    """The table: returns, and errors in rad/s, over shares of missing readings."""
    head = [
        "",
        *(f"{rate:.0%} missing" for rate in RATES),
        *(f"rad/s, {rate:.0%}" for rate in RATES),
    ]
    body = []
    for name, row in rows.items():
        cells = [row.get(f"{rate:g}") for rate in RATES]
        told = [f"{x['return'][0]:.1f} ± {x['return'][1]:.1f}" if x else "–" for x in cells]
        body.append([name, *told, *(f"{x['error'][0]:.1f}" if x else "–" for x in cells)])
    print_table(head, body)


def main(argv: Sequence[str] | None = None) -> int:
    """Tune, play, print the table, write the files."""
    words = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", nargs="*", type=Path, help="run folders of the motor")
    parser.add_argument("--out", type=Path, help="folder for the numbers and the picture")
    parser.add_argument("--episodes", type=int, default=100, help="of the test")
    parser.add_argument("--tuning-episodes", type=int, default=40)
    options = parser.parse_args(words)
    rows, search = engineers(options.episodes, options.tuning_episodes)
    rows |= agents([run for run in options.runs if run.is_dir()], options.episodes)
    print(f"\nReturn in {options.episodes} test episodes ± standard error; mean speed error")
    print_rows(rows)
    if options.out is not None:
        document = {
            **on_record("benchmarks/motor.py", words),
            "motor": {**SERVO._asdict(), "load": LOAD},
            "readings": {"noise": NOISE, "delay": DELAY, "burst": BURST},
            "gains": {f"{a:g}": tuned(a=a)._asdict() for a in CHOICES},
            "tuning": {"episodes": options.tuning_episodes, "found": search},
            "test_episodes": options.episodes,
            "rows": rows,
        }
        save(document, options.out / "motor.json")
        if shown := pick(options.runs):
            draw(drawn(shown), options.out / "motor.png")
    return 0


def pick(folders: Sequence[Path]) -> Path | None:
    """The first run with a Kalman layer that was told of half of the readings, or else none."""
    for folder in folders:
        if not folder.is_dir():
            continue
        _, experiment = load_run(folder, "last")
        told = experiment.dropout_told and experiment.dropout == SHOWN_RATE
        if told and experiment.encoder.startswith("vssm+kf") and not experiment.privileged:
            return folder
    return None


if __name__ == "__main__":
    sys.exit(main())
