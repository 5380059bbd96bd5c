"""What the three drawing rules draw, and how often."""

import math
from collections import Counter

import numpy as np
import pytest
import torch

from kalmanac._ops.windows import Windows
from kalmanac._replay.sampling import RULES
from tests.replay.model import DISCRETE, Twin

LENGTHS = (1, 3, 5, 12, 2)
T, DRAWS = 5, 40_000


@pytest.fixture(scope="module")
def twin() -> Twin:
    """Episodes of LENGTHS, each in its own stream; the long one is still open."""
    twin = Twin(DISCRETE, len(LENGTHS))
    for stream, length in enumerate(LENGTHS):
        twin.run(stream, length, "open" if length == max(LENGTHS) else "truncated")
    return twin


def sample_windows(twin: Twin, rule: str, seed: int, *, burn_in: int = 0) -> Windows:
    generator = torch.Generator().manual_seed(seed)
    return twin.replay.sample_windows(DRAWS, T, generator=generator, rule=rule, burn_in=burn_in)


def cuts(windows: Windows) -> list[tuple[int, int, int]]:
    """(episode, start, stop) of each window, where stream = episode."""
    columns = (windows.stream, windows.first, windows.first + windows.steps)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def assert_distributed(actual: list, chances: dict) -> None:
    """χ² within four standard deviations of its mean, and nothing impossible."""
    assert math.isclose(sum(chances.values()), 1)
    counts = Counter(actual)
    assert set(counts) <= set(chances)
    expected = {key: chance * len(actual) for key, chance in chances.items()}
    statistic = sum((counts[key] - n) ** 2 / n for key, n in expected.items())
    freedom = len(chances) - 1
    assert statistic < freedom + 4 * math.sqrt(2 * freedom)


def by_episodes() -> dict:
    chances: Counter = Counter()
    for episode, length in enumerate(LENGTHS):
        if length <= T:
            chances[episode, 0, length] += 1 / len(LENGTHS)
            continue
        for offset in range(-(T - 1), length):
            cut = (episode, max(offset, 0), min(offset + T, length))
            chances[cut] += 1 / len(LENGTHS) / (length + T - 1)
    return dict(chances)


def by_starts() -> dict:
    pairs = [(e, s) for e, length in enumerate(LENGTHS) for s in range(max(length - T, 0) + 1)]
    return {(e, s, min(s + T, LENGTHS[e])): 1 / len(pairs) for e, s in pairs}


def by_transitions() -> dict:
    pairs = [(e, s) for e, length in enumerate(LENGTHS) for s in range(length)]
    return {(e, s, min(s + T, LENGTHS[e])): 1 / len(pairs) for e, s in pairs}


@pytest.mark.parametrize(
    ("rule", "chances"),
    [("episodes", by_episodes()), ("starts", by_starts()), ("transitions", by_transitions())],
)
def test_windows_come_as_often_as_the_rule_says(twin: Twin, rule: str, chances: dict) -> None:
    assert_distributed(cuts(sample_windows(twin, rule, seed=1)), chances)


def test_every_rule_is_tested() -> None:
    assert set(RULES) == {"episodes", "starts", "transitions"}


def test_every_step_of_a_long_episode_is_equally_likely(twin: Twin) -> None:
    long = LENGTHS.index(12)
    windows = [cut for cut in cuts(sample_windows(twin, "episodes", seed=2)) if cut[0] == long]
    seen = np.zeros(12)
    for _, start, stop in windows:
        seen[start:stop] += 1
    chance = T / (12 + T - 1)
    spread = math.sqrt(len(windows) * chance * (1 - chance))
    assert (abs(seen - len(windows) * chance) < 4 * spread).all()


@pytest.mark.parametrize("rule", RULES)
def test_burn_in_reaches_back_from_the_same_windows(twin: Twin, rule: str) -> None:
    plain, warm = sample_windows(twin, rule, seed=3), sample_windows(twin, rule, seed=3, burn_in=2)
    assert torch.equal(warm.burn_in, plain.before.clamp(max=2))
    assert torch.equal(warm.first, plain.first - warm.burn_in)
    assert torch.equal(warm.steps, plain.steps + warm.burn_in)
    assert torch.equal(warm.before, plain.before - warm.burn_in)


@pytest.mark.parametrize("rule", RULES)
def test_draws_follow_the_generator_alone(twin: Twin, rule: str) -> None:
    first, again, other = (
        sample_windows(twin, rule, 4),
        sample_windows(twin, rule, 4),
        sample_windows(twin, rule, 5),
    )
    assert all(torch.equal(x, y) for x, y in zip(first, again, strict=True))
    assert not torch.equal(first.stream, other.stream)
    state = torch.random.get_rng_state()
    sample_windows(twin, rule, 6)
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("rule", RULES)
def test_open_episodes_are_drawn_up_to_their_last_step(rule: str) -> None:
    twin = Twin(DISCRETE, 1)
    twin.begin([0])
    for length in range(1, 9):
        twin.add([0])
        windows = twin.sample(80, 3, rule=rule, seed=length)
        assert max(window.start + window.steps for window in windows) == length
        assert min(window.start for window in windows) == 0


def test_rules_leave_evicted_episodes_out() -> None:
    twin = Twin(DISCRETE, 2, capacity=8)
    for _ in range(7):
        twin.run(0, 3)
    for _ in range(5):
        twin.run(1, 1)
    chances = {"episodes": 1 / 5, "starts": 1 / 5}
    for (
        rule,
        chance,
    ) in chances.items():  # one episode of 3 steps in stream 0, four of 1 in stream 1
        windows = twin.replay.sample_windows(
            DRAWS, T, generator=torch.Generator().manual_seed(0), rule=rule
        )
        assert_distributed(windows.stream.tolist(), {0: chance, 1: 1 - chance})
    windows = twin.replay.sample_windows(
        DRAWS, T, generator=torch.Generator().manual_seed(0), rule="transitions"
    )
    assert_distributed(windows.stream.tolist(), {0: 3 / 7, 1: 4 / 7})
