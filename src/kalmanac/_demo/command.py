"""The whole demo in order: train, measure, draw, write."""

import sys
from pathlib import Path

from kalmanac._demo import bandit
from kalmanac._demo.bandit import Trained, train
from kalmanac._demo.tracking import MISSING, Tracked, track, tracking
from kalmanac._files.run_reader import MODELS
from kalmanac._sac.recurrent_sac import RecurrentSAC

PICTURE, TABLE = "demo.png", "demo.md"


def demo(folder: Path, seed: int, steps: int | None) -> int:
    """Train what is missing, then measure and draw. 130: interrupted; 1: diverged."""
    print("Four agents, one after the other, minutes in all; Ctrl-C keeps what is finished.")
    planned = [*(bandit.shortened(agent, seed) for agent in bandit.AGENTS), tracking(seed)]
    trained: list[Trained] = []
    for experiment in planned:
        changes = {} if steps is None else {"total_steps": steps}
        trained.append(train(experiment.changed(changes), folder))
        if trained[-1].status == "interrupted":
            raise KeyboardInterrupt
        if trained[-1].status != "finished":
            told, place, status = trained[-1]
            print(f"kalmanac demo: {told.agent} {status}: {place}", file=sys.stderr)
            return 1
    arms = dict(zip(bandit.AGENTS, trained[:-1], strict=True))
    table = leave(folder, arms, track(trained[-1]))
    print(f"\n{table}\npicture: {folder / PICTURE}\ntable:   {folder / TABLE}")
    return 0


def leave(folder: Path, arms: dict[str, Trained], tracked: Tracked) -> str:
    """Measure the agents, draw the picture and write the table, which is returned."""
    from kalmanac._demo.picture import draw  # matplotlib is slow to come

    told, place, _ = arms["vssm+kf"]
    title = bandit.title_of(told)
    rows = {agent: bandit.measure(arms[agent]) for agent in reversed(bandit.AGENTS)}
    ceilings = {name: bandit.threshold(told, name) for name in bandit.PLACES}
    model = RecurrentSAC.load(place / MODELS["last"], device="cpu")
    played = bandit.play_shown(model, told)
    draw(title, arms, ceilings["in"], played, tracked, folder / PICTURE)
    table = f"{bandit.as_table(title, rows, ceilings)}\n{as_lines(tracked)}"
    (folder / TABLE).write_text(table, encoding="utf-8")
    return table


def as_lines(tracked: Tracked) -> str:
    """What came of the tracking, in words."""
    error, exact = tracked.error, tracked.exact_error
    return (
        f"Track, {MISSING:.0%} of the noisy readings missing: mean squared error of vssm+kf "
        f"{error:.3f}, of the exact filter {exact:.3f}: {error / exact:.2f} times.\n"
        f"The target is within the agent's ± 2σ {tracked.inside:.0%} of the time; its σ and the "
        f"exact filter's correlate at {tracked.alike:.2f}.\n"
        "The agent's σ²: the mean of its filter's variances times one factor, fitted on other "
        "episodes. How it widens in gaps\nis the Kalman layer's own arithmetic, there before "
        "any training; the estimate is learnt.\n"
    )
