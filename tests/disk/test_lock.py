import json
import os
import subprocess
import sys

import pytest

from kalmanac.disk import FolderInUseError, FolderLock, Owner

HOLD = """
import sys
from pathlib import Path
from kalmanac.disk import FolderLock
FolderLock(Path(sys.argv[1])).take()
print("taken", flush=True)
sys.stdin.read()
"""


def test_one_at_a_time(tmp_path):
    first, second = FolderLock(tmp_path / "lock"), FolderLock(tmp_path / "lock")
    with first, pytest.raises(FolderInUseError, match=f"process {os.getpid()} is writing"):
        second.take()
    with second:
        assert second.owner() == Owner.this()
    assert not (tmp_path / "lock").exists()


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path):
    file = tmp_path / "lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout.readline() == b"taken\n"
        with pytest.raises(FolderInUseError, match=f"process {other.pid} is writing"):
            FolderLock(file).take()
        other.kill()
    with FolderLock(file) as lock:
        assert lock.owner().pid == os.getpid()


@pytest.mark.parametrize("text", ["", "no json", "[]", '{"pid": 1}'])
def test_a_file_that_names_nobody_locks_nothing(tmp_path, text):
    (tmp_path / "lock").write_text(text)
    with FolderLock(tmp_path / "lock"):
        pass


def test_a_number_that_was_given_to_a_new_process_is_stale(tmp_path):
    me = Owner.this()
    assert me.alive
    if me.started == 0:
        pytest.skip("this system does not tell when a process started")
    assert not me._replace(started=me.started + 1).alive


def test_a_process_of_another_host_counts_as_alive(tmp_path):
    file = tmp_path / "lock"
    file.write_text(json.dumps(Owner(1, 1, "elsewhere")._asdict()))
    with pytest.raises(FolderInUseError, match=r"on elsewhere is writing.*remove .*lock"):
        FolderLock(file).take()


def test_a_dead_process_that_nobody_has_waited_for_locks_nothing(tmp_path):
    file = tmp_path / "lock"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout.readline() == b"taken\n"
    holder.kill()
    os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)  # dead, but still in the table
    with FolderLock(file) as taken:
        assert taken.owner() == Owner.this()
    holder.communicate()
