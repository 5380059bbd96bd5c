"""Every number of ours on the page of comparisons is that of its file; so are the printed ones."""

import json
from pathlib import Path

import numpy as np
import pytest

from kalmanac._report.published import (
    BEST,
    bullet_scores,
    novel_scores,
    popgym_own_scores,
    popgym_table,
)

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
PAGE = (ROOT / "docs/comparison.md").read_text()
T = {2: 12.706, 3: 4.303, 5: 2.776}  # Student's t at 97.5 % by the number of seeds
SEEDS = range(3)
SAC = "novel/Pendulum-pomdp-baselines-window-64-half-the-updates-seed0.jsonl"


def lines(name):
    first, *rows = map(json.loads, (RESULTS / name).read_text().splitlines())
    return first, rows


def interval(values, digits):
    half = T[len(values)] * np.std(values, ddof=1) / np.sqrt(len(values))
    ends = (np.mean(values) + half * sign for sign in (-1, 1))
    return f"{np.mean(values):.{digits}f} [{', '.join(f'{end:.{digits}f}' for end in ends)}]"


def late_returns(name, share=0.9):
    """Mean return of the evaluations in the last tenth of the steps, and processor seconds."""
    first, rows = lines(name)
    kept = [r for r in rows if r["step"] >= share * first["steps"] and "after" not in r]
    return np.mean([np.mean(row["returns"]) for row in kept]), rows[-1]["cpu_seconds"]


def novel_rows(task, agent, seed):
    """Evaluations of a run at the published steps."""
    file = RESULTS / f"novel-published/{task}-{agent}-seed{seed}/metrics.jsonl"
    return list(map(json.loads, file.read_text().splitlines()))


def novel_row(task, agent, title):
    runs = [late_returns(f"novel/{task}-{agent}-seed{seed}.jsonl") for seed in SEEDS]
    returns, seconds = zip(*runs, strict=True)
    by_seed = ", ".join(f"{value:.0f}" for value in returns)
    time = f"{min(seconds):.0f} to {max(seconds):.0f}"
    return f"| {task} | {title} | {by_seed} | {interval(returns, 0)} | {time} |"


def evaluations(task, seed, steps):
    rows = lines(f"yardstick/{task}.now-seed{seed}.jsonl")[1]
    return [row["eval/in/mean_reward"] for row in rows if row["step"] <= steps]


def late_of_ours(task, steps):
    return [float(np.mean(evaluations(task, seed, steps)[-5:])) for seed in SEEDS]


def peer_seeds(task):
    """Of the peer's runs that came to their end."""
    found = []
    for seed in SEEDS:
        name = f"popgym-peers/{task}-recurrent-ppo-seed{seed}.jsonl"
        if (RESULTS / name).is_file():
            first, rows = lines(name)
            if any("after" in row for row in rows):
                means = [np.mean(row["returns"]) for row in rows if "after" not in row]
                assert first["steps"] == 200_000
                found.append(float(np.mean(means[-5:])))
    return found


def popgym_row(task, ours):
    mine, theirs = late_of_ours(ours, 200_000), peer_seeds(task)
    cells = []
    for values in (mine, theirs):
        told = ", ".join(f"{value:.2f}" for value in values)
        cells.append(f"{told}: {interval(values, 2)}" if len(values) > 1 else f"{told} (one seed)")
    return f"| {task} | {cells[0]} | {cells[1]} |"


def published_row(task, ours, steps):
    own, paper = popgym_own_scores().scores[task], popgym_table().scores[task]
    assert paper[BEST].mean == own.best
    mine = late_of_ours(ours, steps)
    top = np.mean([max(evaluations(ours, seed, steps)) for seed in SEEDS])
    return (
        f"| {task} | POPGym's PPO, 15M steps: GRU {own.gru.mean:.3f}, best {own.best:.3f}; the "
        f"paper's vssm+kf, 1M: {paper['vssm+kf'].mean:.3f} | {interval(mine, 3)}; best "
        f"evaluation {top:.3f} | {steps:,} steps;"
    )


def sac_row():
    returns, seconds = late_returns(SAC)
    return f"| Pendulum | pomdp-baselines' SAC | {returns:.0f} | one seed | {seconds:.0f} |"


ROWS = [
    novel_row(task, agent, title)
    for task in ("CartPole", "Pendulum")
    for agent, title in (("vssm+kf", "vssm+kf"), ("recurrent-ppo", "RecurrentPPO"))
]
PUBLISHED = [
    published_row("RepeatPreviousEasy", "repeat-previous", 300_000),
    published_row("CountRecallEasy", "count-recall", 300_000),
    published_row("NoisyPositionOnlyCartPoleHard", "cart-pole", 300_000),
]


def test_classic_control_without_velocities():
    for row in ROWS:
        assert row in PAGE
    ours, theirs = (
        {task: [late_returns(f"novel/{task}-{agent}-seed{seed}.jsonl")[1] for seed in SEEDS]
         for task in ("CartPole", "Pendulum")}
        for agent in ("vssm+kf", "recurrent-ppo")
    )  # fmt: skip
    ratios = [sum(ours[task]) / sum(theirs[task]) for task in ours]
    assert all(13 < ratio < 17 for ratio in ratios)
    assert 5 * max(theirs["CartPole"]) < min(ours["CartPole"]), "100,000 steps beside 20,000"


def test_popgym_beside_the_peer():
    assert popgym_row("RepeatPreviousEasy", "repeat-previous") in PAGE
    assert popgym_row("NoisyPositionOnlyCartPoleHard", "cart-pole") in PAGE


def test_popgym_beside_published_numbers():
    for row in PUBLISHED:
        assert row in PAGE


def test_published_numbers_are_those_of_the_report():
    scores = bullet_scores().scores
    for agent in ("RESeL-Mamba", "GPIDE-ESS", "MF-RNN", "PPO-GRU"):
        pairs = [scores[f"Hopper-{what}"][agent] for what in "PV"]
        assert ", ".join(f"{mean:g} ± {spread:g}" for mean, spread in pairs) in PAGE
    novel = json.loads((ROOT / "src/kalmanac/_report/published_novel.json").read_text())["scores"]
    for task, form in (("CartPole", ".0f"), ("Pendulum", ".1f"), ("MountainCarContinuous", ".1f")):
        told = novel[f"novel/{task}"]
        printed = f"ppo_lstm {told['mean']:{form}} ± {told['deviation']:{form}}"
        assert f"{printed}, {told['steps']:,} steps" in PAGE


@pytest.mark.parametrize(
    ("task", "steps", "seeds", "digits"),
    [("CartPole", "100,000", 3, 0), ("Pendulum", "100,000", 3, 0),
     ("MountainCarContinuous", "300,000", 1, 1)],
)  # fmt: skip
def test_both_at_the_published_steps(task, steps, seeds, digits):
    ours = []
    for seed in range(5):
        rows = novel_rows(task, "vssm-kf", seed)
        late = [row for row in rows if row["step"] >= 0.9 * rows[-1]["step"]]
        ours.append(np.mean([row["eval/in/mean_reward"] for row in late]))
    theirs = [
        late_returns(f"novel-published-peers/{task}-recurrent-ppo-seed{seed}.jsonl")[0]
        for seed in range(seeds)
    ]
    told = [", ".join(f"{x:.{digits}f}" for x in values) for values in (ours, theirs)]
    assert f"| {task}, {steps} steps | {told[0]} | {told[1]} |" in PAGE


@pytest.mark.parametrize(
    ("task", "digits"), [("CartPole", 0), ("Pendulum", 1), ("MountainCarContinuous", 1)]
)
def test_novel_at_the_published_steps(task, digits):
    """Five whole seeds of each agent; none below the printed mean."""
    told = novel_scores().scores[f"novel/{task}"]
    cells = []
    for agent in ("vssm-kf", "gru"):
        means = []
        for seed in range(5):
            rows = novel_rows(task, agent, seed)
            assert rows[-1]["step"] == told.steps
            means.append(float(np.mean([row["eval/in/mean_reward"] for row in rows[-5:]])))
        assert min(means) >= told.mean
        cells.append(f"{agent.replace('-', '+')} {interval(means, digits)}")
    assert "; ".join(cells) in PAGE


def walker_late(task, agent):
    """The mean of the last five evaluations, of whole seeds."""
    means = []
    for seed in SEEDS:
        file = RESULTS / f"walkers/{task}-{agent}-seed{seed}/metrics.jsonl"
        rows = list(map(json.loads, file.read_text().splitlines()))
        assert rows[-1]["step"] == 300_000
        means.append(float(np.mean([row["eval/in/mean_reward"] for row in rows[-5:]])))
    return means


@pytest.mark.parametrize("task", ["Hopper-P", "Hopper-V", "Walker2d-P"])
def test_walkers(task):
    whole = walker_late(task.replace("-V", "-P"), "oracle")
    cells = []
    for agent in ("vssm-kf", "gru", "memoryless"):
        means = walker_late(task, agent)
        told = ", ".join(f"{mean:,.0f}" for mean in means)
        cells.append(f"{told}: {np.mean(means) / np.mean(whole):.0%}")
    cells.append(", ".join(f"{mean:,.0f}" for mean in whole))
    assert f"| {task} | {' | '.join(cells)} |" in PAGE


def test_speed():
    cases = json.loads((RESULTS / "compiled-h200.json").read_text())["cases"]
    rates = {(x["task"], x["seeds"], x["how"]): x["found"].get("per_second") for x in cases}
    rivals = ("ours", "default, captured", "JAX, one jit", "plain PyTorch, nn.GRU")
    for task in ("POPGym", "DMC"):
        for seeds in (1, 5):
            numbers = [rates[task, seeds, how] for how in rivals]
            row = " | ".join("fails" if x is None else f"{x:,.0f}" for x in numbers)
            assert f"seed{'s' * (seeds > 1)} | {row} |" in PAGE


def test_mountain_car():
    files = [f"mountain-car/correlation-0.9-seed{seed}.jsonl" for seed in SEEDS]
    ends = [lines(file)[1][-1]["eval/in/mean_reward"] for file in files]
    told = f"{', '.join(f'{x:.1f}' for x in ends)}: {sum(ends) / 3:.1f} after 60,000 steps"
    assert told in PAGE


def test_the_public_recurrent_sac():
    first, rows = lines(SAC)
    assert sac_row() in PAGE
    assert (rows[-1]["step"], rows[-1]["updates"]) == (first["steps"], 10_000)
    assert first["settings"]["train"]["sampled_seq_len"] == 64
