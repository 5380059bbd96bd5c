"""What an MMER is made of: numbers that are known, and runs that are drawn."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")
BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def maxima(monkeypatch):
    before = set(sys.modules)
    monkeypatch.syspath_prepend(BENCHMARKS)
    yield importlib.import_module("paper_maxima")
    for name in set(sys.modules) - before:
        if (BENCHMARKS / f"{name}.py").exists():
            del sys.modules[name]


# Of 1, 2 and 3 numbers by hand: 0, 1/√π, 3/(2√π); of 50 and 100 from tables of order statistics.
@pytest.mark.parametrize(
    ("n", "mean"), [(1, 0.0), (2, 0.56419), (3, 0.84628), (50, 2.24907), (100, 2.50759)]
)
def test_the_largest_of_normal_numbers(maxima, n, mean):
    assert maxima.largest_of(n) == pytest.approx(mean, abs=1e-4)


def test_level_and_rise_are_those_of_a_line_and_scatter_is_about_it(maxima):
    line = 0.5 + 0.01 * np.arange(50)
    waves = 0.1 * (-1.0) ** np.arange(50)
    found = maxima.level([line, line + waves])
    assert found.mean == pytest.approx([line[-20:].mean()] * 2)
    assert found.rise[0] == pytest.approx(0.5)
    assert found.scatter[0] == pytest.approx(0.0, abs=1e-12)
    assert found.scatter[1] == pytest.approx(0.1 * np.sqrt(20 / 18), rel=0.02)


def test_the_expected_maximum_is_what_runs_have(maxima):
    rng = np.random.default_rng(0)
    runs = list(0.5 + 0.1 * rng.standard_normal((400, 100)))
    expected = maxima.level(runs).largest(100)
    assert expected.mean() == pytest.approx(np.mean([x.max() for x in runs]), abs=0.01)


def run_of(values, seed):
    """A finished run of RepeatFirstEasy with these evaluations."""
    from kalmanac._report.runs import Run

    module = sys.modules["paper_claims_popgym"]
    experiment = module.arm("RepeatFirstEasy", "vssm+kf", "500K of 1M steps")
    what = experiment.changed({"seed": seed}).to_data()
    steps = 10_000 * np.arange(1, len(values) + 1)
    return Run(
        name=f"seed{seed}", folder=Path(f"seed{seed}"), experiment=what, provenance={},
        summary={"status": "finished", "step": 500_000}, steps=steps,
        values={"in/mean_reward": np.asarray(values)},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("seeds", "evaluations", "told"), [(3, 50, True), (1, 50, False), (3, 19, False)]
)
def test_a_row_needs_two_seeds_and_evaluations_enough(maxima, seeds, evaluations, told):
    rng = np.random.default_rng(1)
    runs = [run_of(0.8 + 0.02 * rng.standard_normal(evaluations), seed) for seed in range(seeds)]
    book = sys.modules["paper_evidence"].Book(runs)
    assert book.finished == seeds
    rows = list(maxima.rows(book, "vssm+kf", "500K of 1M steps"))
    assert len(rows) == told
    if told:
        (row,) = rows
        assert len(row) == len(maxima.HEAD)
        assert row[:2] == ("RepeatFirstEasy", "1.000 ± 0.000")
        assert float(row[3].split()[0]) == pytest.approx(0.8, abs=0.01)
        assert float(row[5].split()[0]) == pytest.approx(0.8 + 2.25 * 0.02, abs=0.015)
        assert float(row[6].split()[0]) > float(row[5].split()[0])
