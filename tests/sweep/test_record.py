"""What a sweep writes down beside its runs."""

import dataclasses

import pytest

from kalmanac.sweep.record import FAILED, PLAN, RECORD, Failure, Record
from tests.experiment.tiny import TINY
from tests.sweep.small import planned


def test_plans_add_up_and_failures_are_kept_until_forgotten(tmp_path):
    record = Record(tmp_path)
    assert record.planned() == {}
    assert record.failures() == {}
    first, second = planned(tmp_path, TINY, dataclasses.replace(TINY, seed=1))
    record.plan([first])
    record.plan([second, first._replace(suites=("other",))])
    found = record.planned()
    assert list(found) == [first.experiment.hash, second.experiment.hash]
    assert found[first.experiment.hash].suites == ("small", "other")
    assert found[second.experiment.hash].folder == second.folder
    record.fail(first.experiment.hash, Failure("it broke", "Traceback"))
    assert record.failures() == {first.experiment.hash: Failure("it broke", "Traceback")}
    record.forget(first.experiment.hash)
    assert list((tmp_path / RECORD / FAILED).iterdir()) == []


def test_a_broken_plan_is_one_line(tmp_path):
    (tmp_path / RECORD).mkdir()
    (tmp_path / RECORD / PLAN).write_text("[]")
    with pytest.raises(ValueError, match="expected one"):
        Record(tmp_path).planned()
