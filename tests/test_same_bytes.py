"""Fixed-seed trainings give what they gave when they were recorded (`tests/record_same_bytes.py`).

Bytes are compared where this machine's arithmetic is that of the recording, and numbers everywhere.
"""

import functools
import json

import pytest

from tests.record_same_bytes import ENCODERS, RECORDED, TASKS, fingerprint, run

TOLD = json.loads(RECORDED.read_text())
HASHES = ("metrics", "evaluations", "last", "best")
# Other instruction sets and compilers change these rows by less than a hundredth of this.
RELATIVE, ABSOLUTE = 1e-3, 1e-5


@functools.cache
def same_arithmetic():
    return fingerprint() == TOLD["fingerprint"]


def far(recorded, rows):
    """The values that are not the recorded ones, as (step, name, recorded, found).

    Of evaluations, only the names are compared: an action that is chosen as the best one may tip
    with the last bit.
    """
    assert [list(row) for row in rows] == [list(row) for row in recorded]
    return [
        (old["step"], name, old[name], new[name])
        for old, new in zip(recorded, rows, strict=True)
        for name in old
        if not name.startswith("eval/")
        and not abs(new[name] - old[name]) <= ABSOLUTE + RELATIVE * abs(old[name])
    ]


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("encoder", ENCODERS)
def test_a_training_gives_what_was_recorded(encoder, task, tmp_path):
    recorded = TOLD["runs"][f"{encoder} {task}"]
    found = run(task, encoder, tmp_path / "run")
    assert far(recorded["rows"], found["rows"]) == []
    if same_arithmetic():
        assert [name for name in HASHES if found[name] != recorded[name]] == []


def test_the_bytes_are_compared_here():
    if not same_arithmetic():
        pytest.skip(f"recorded with another arithmetic than {fingerprint()}: numbers only")


def test_a_small_change_of_a_number_is_seen():
    rows = TOLD["runs"]["vssm+kf discrete"]["rows"]
    changed = [row | {} for row in rows]
    changed[-1]["train/critic_loss"] *= 1.005
    assert far(rows, rows) == []
    ((step, name, _, _),) = far(rows, changed)
    assert (step, name) == (rows[-1]["step"], "train/critic_loss")
