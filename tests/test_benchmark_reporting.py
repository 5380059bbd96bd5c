"""A thousand runs are reported on in bounded time and memory."""

import pytest


@pytest.fixture
def reporting(bench):
    return bench("reporting")


def test_its_runs_are_a_thousand_different_ones(reporting):
    found = list(reporting.experiments())
    assert len(found) == len({what.hash for what, *_ in found}) == 1000


@pytest.mark.slow
def test_a_thousand_runs_take_less_than_half_a_minute_of_two_cores(reporting, tmp_path):
    reporting.write_runs(tmp_path / "runs", 1000, rows=0)
    cost = reporting.measure(tmp_path / "runs", tmp_path / "out")
    # Other work on the machine stretches the clock's seconds, so that the processor's are counted.
    assert cost.processor_seconds < 2 * 30
    assert cost.megabytes * cost.processes < 1000
    page = tmp_path / "out" / "index.html"
    assert page.stat().st_size < 40e6
    assert "1,000 runs" in page.read_text()
