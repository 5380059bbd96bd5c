"""What `kalmanac status` says of runs in every state."""

import dataclasses

import pytest

from kalmanac._cli.program import main
from kalmanac._files.run_folder import RunFolder
from kalmanac._lab.post_training import GridOfBandits
from kalmanac._sweep.record import Failure, Record
from tests.lab.tiny import TINY
from tests.sweep.small import planned


def test_every_state_is_counted_and_failures_are_explained(tmp_path, capsys):
    plan = planned(tmp_path, *(dataclasses.replace(TINY, seed=seed) for seed in range(6)))
    plan[1] = plan[1]._replace(post_training=(GridOfBandits(),), suites=("other",))
    record = Record(tmp_path)
    record.plan(plan)
    for one, status in zip(plan, ["finished", "finished", "interrupted", "failed"], strict=False):
        with RunFolder(one.folder, one.experiment.to_data(), events=False) as folder:
            folder.summarize(status=status, step=40)
    record.fail(plan[3].experiment.hash, Failure("the motor burnt out", ""))
    record.fail(plan[4].experiment.hash, Failure("no such environment", ""))
    assert main(["status", str(tmp_path)]) == 0
    table, *failed = capsys.readouterr().out.split("failed: ")
    head, small, other, total = table.splitlines()
    assert head.split() == ["suite", "runs", "finished", "to", "evaluate", "interrupted", "failed",
                            "waiting"]  # fmt: skip
    assert small.split() == ["small", "5", "1", "1", "2", "1"]
    assert other.split() == ["other", "1", "1"]
    assert total.split()[-6:] == ["6", "1", "1", "1", "2", "1"]
    assert failed[0].startswith(f"best-arm/{plan[3].folder.name}: the motor burnt out")
    last, where = failed[1].splitlines()
    assert last == f"best-arm/{plan[4].folder.name}: no such environment"
    assert where == f"tracebacks: {tmp_path / '.sweep' / 'failed'}"


@pytest.mark.parametrize("there", [True, False])
def test_a_folder_without_a_sweep_is_refused_in_one_line(tmp_path, there, capsys):
    assert main(["status", str(tmp_path if there else tmp_path / "none")]) == 2
    output = capsys.readouterr().err
    assert "expected one of `kalmanac sweep`" in output
    assert output.count("\n") == 1
