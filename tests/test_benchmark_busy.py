"""The benchmark on a busy machine trains without variables, alone and beside others, in turns."""

import itertools
import json
import subprocess

import pytest


def test_rounds_alone_and_busy(bench, tmp_path, monkeypatch):
    script, out, calls, busy = bench("busy"), tmp_path / "busy.json", [], []
    clock = iter([2.0, 3.0, 2.0, 8.0])

    def train(words, *, env, **_):
        calls.append((words, env, len(busy)))
        (folder,) = (word for word in words if word.startswith("--folder="))
        run = script.Path(folder.removeprefix("--folder="))
        run.mkdir()
        (run / "timing.jsonl").write_text(json.dumps({"time/elapsed": next(clock)}) + "\n")
        (run / "provenance.json").write_text('{"threads": "2"}')

    class Counting:
        def __init__(self, **_):
            pass

        def start(self):
            busy.append(self)

        def kill(self):
            busy.remove(self)

        def join(self):
            pass

    monkeypatch.setattr(subprocess, "run", train)
    monkeypatch.setattr(script, "_processor_seconds", itertools.count().__next__)
    monkeypatch.setattr(script.multiprocessing, "Process", Counting)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert script.main(["--rounds", "2", "--out", str(out)]) == 1, "2.75 times is too much"
    found = json.loads(out.read_text())
    assert found["times_slower"]["seconds"] == pytest.approx((3 / 2 + 8 / 2) / 2)
    assert [others for *_, others in calls] == [0, found["busy_cores"]] * 2
    assert not any(name.startswith("OMP_") for _, env, _ in calls for name in env)
    assert not busy
