"""What a sweep writes down beside its runs."""

import dataclasses
import json

import pytest

from kalmanac._sweep.record import FAILED, PLAN, RECORD, Failure, Record
from tests.lab.tiny import TINY
from tests.sweep.small import planned


def test_plans_add_up_and_failures_are_kept_until_forgotten(tmp_path):
    record = Record(tmp_path)
    assert record.planned() == {}
    assert record.failures() == {}
    first, second = planned(tmp_path, TINY, dataclasses.replace(TINY, seed=1))
    record.plan([first])
    record.plan([second, first._replace(suites=("other",))])
    entries = record.planned()
    assert list(entries) == [first.experiment.hash, second.experiment.hash]
    assert entries[first.experiment.hash].suites == ("small", "other")
    assert entries[second.experiment.hash].folder == second.folder
    record.fail(first.experiment.hash, Failure("it broke", "Traceback"))
    assert record.failures() == {first.experiment.hash: Failure("it broke", "Traceback")}
    record.forget(first.experiment.hash)
    assert list((tmp_path / RECORD / FAILED).iterdir()) == []


def test_a_broken_plan_is_one_line(tmp_path):
    (tmp_path / RECORD).mkdir()
    (tmp_path / RECORD / PLAN).write_text("[]")
    with pytest.raises(ValueError, match="expected one"):
        Record(tmp_path).planned()


def test_odd_entries_and_failures_do_not_hide_the_others(tmp_path):
    (first,) = planned(tmp_path, TINY)
    record = Record(tmp_path)
    record.plan([first])
    file = tmp_path / RECORD / PLAN
    odd = {"up": {"folder": "../x", "suites": [], "evaluations": []}, "none": None,
           "word": {"folder": "a", "suites": [1], "evaluations": []}}  # fmt: skip
    file.write_text(json.dumps(json.loads(file.read_text()) | odd))
    notices = []
    assert list(record.read_plan(notices)) == [first.experiment.hash]
    assert [text.partition(": left out: ")[0] for text in notices] == [
        "planned run up", "planned run none", "planned run word",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="planned run up: left out"):
        record.planned()  # whoever writes the plan again would lose them
    for name, text in (("a", "[]"), ("b", "{"), ("c", '{"error": "x"}')):
        (tmp_path / RECORD / FAILED / f"{name}.json").write_text(text)
    record.fail("d", Failure("it broke", ""))
    failures = record.failures()
    assert [failures[name].error.partition(":")[0] for name in "abcd"] == [
        *["for a reason that cannot be read"] * 3, "it broke",
    ]  # fmt: skip
