"""What cannot be made of some runs is made of the others."""

import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("plotly")

from kalmanac._report.build import without_odd_runs


def names(groups):
    return sorted(run.name for group in groups for run in group.runs)


def refusing(*odd):
    def make(groups):
        for name in names(groups):
            if name in odd:
                raise RuntimeError(f"no room for\n{name}")
        return names(groups)

    return make


def test_odd_runs_are_left_out_and_named(all_groups):
    every = names(all_groups)
    odd = [every[0], every[5], every[-1]]
    notices = []
    assert without_odd_runs(refusing(*odd), all_groups, notices, "the page") == [
        name for name in every if name not in odd
    ]
    assert sorted(notices) == [
        f"{name}: left out of the page: RuntimeError('no room for\\n{name}')" for name in odd
    ]


def test_sound_runs_are_made_at_once(all_groups):
    notices, calls = [], []
    assert without_odd_runs(calls.append, all_groups, notices, "the page") is None
    assert calls == [all_groups]
    assert notices == []


def test_what_cannot_be_made_of_all_together_is_named_itself(all_groups, capsys):
    def make(groups):
        if len(names(groups)) > 1:
            raise ValueError("a crowd")

    notices = []
    assert without_odd_runs(make, all_groups, notices, "the page") is None
    assert notices == ["the page: left out: ValueError('a crowd')"]
    trace = capsys.readouterr().err
    assert trace.startswith("Traceback"), "it is a bug of ours"
    assert trace.endswith("ValueError: a crowd\n")


def test_a_full_disk_is_nobody_s_fault(all_groups):
    def make(groups):
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        without_odd_runs(make, all_groups, [], "the page")
