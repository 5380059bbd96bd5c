import errno
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys

import pytest

from kalmanac._files.lock import FolderInUseError, FolderLock, Owner

HOLD = """
import sys
from pathlib import Path
from kalmanac._files.lock import FolderLock
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


def named(**changes):
    """The text of a lock that this process could have left."""
    return json.dumps(Owner.this()._asdict() | {"flock": False} | changes)


NUMBERS = ("1" + "0" * 30, "-1", "0", "1e999", '"x"', "null", "[]")


@pytest.mark.parametrize(
    "text",
    [
        *("", "no json", "[]", "7", '{"pid": 1}', "[" * 4000),
        *(
            f'{{"pid": {number}, "started": 0, "host": "{socket.gethostname()}"}}'
            for number in NUMBERS
        ),
    ],
)
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
    file.write_text(json.dumps(Owner(1, 1, "elsewhere", "another boot", flock=True)._asdict()))
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


def holding(file, *before):
    """Another process that has the lock."""
    return subprocess.Popen(
        [*before, sys.executable, "-c", HOLD, str(file)], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )  # fmt: skip


def let_go(other):
    other.stdin.close()
    other.stdout.close()
    other.wait()


CONTAINER = ("unshare", "--pid", "--fork", "--mount-proc")
if os.geteuid() != 0:
    CONTAINER = (CONTAINER[0], "--user", "--map-root-user", *CONTAINER[1:])


def contained():
    """Whether processes with numbers of their own can be started here."""
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*CONTAINER, "true"], capture_output=True, check=False).returncode == 0


def test_a_lock_holds_between_processes_that_do_not_see_each_other(tmp_path):
    if not contained():
        pytest.skip("no namespace can be made here")
    file = tmp_path / "lock"
    other = holding(file, *CONTAINER)
    assert other.stdout.readline() == b"taken\n"
    owner = FolderLock(file).owner()
    assert owner.pid < 100, "it is among the first ones there"
    assert owner.boot == Owner.this().boot
    assert owner.namespace not in ("", Owner.this().namespace)
    words = f"process {owner.pid} of another container .*{re.escape(owner.namespace)}.* is writing"
    for look in (FolderLock(file).take, FolderLock(file).refuse):
        with pytest.raises(FolderInUseError, match=words):
            look()
    let_go(other)
    with FolderLock(file) as taken:
        assert taken.owner() == Owner.this()


def test_a_lock_holds_where_the_system_tells_nothing_of_processes(tmp_path, monkeypatch):
    file = tmp_path / "lock"
    other = holding(file)
    assert other.stdout.readline() == b"taken\n"
    monkeypatch.setattr("kalmanac._files.lock._read", lambda file: "")
    monkeypatch.setattr("kalmanac._files.lock._namespace", lambda: "")
    with pytest.raises(FolderInUseError, match="is writing"):
        FolderLock(file).take()
    let_go(other)
    with FolderLock(file) as taken:
        assert taken.owner() == Owner(os.getpid(), 0, socket.gethostname(), flock=True)


def test_who_only_looks_leaves_the_lock_as_it_is(tmp_path):
    lock = FolderLock(tmp_path / "lock")
    assert not lock.held()
    assert not (tmp_path / "lock").exists()
    with lock:
        assert FolderLock(lock.file).held()
        assert lock.mine
    assert not lock.held()
    (tmp_path / "lock").write_text(named(flock=True))
    assert not lock.held(), "this process has no such lock"


def test_an_older_version_s_word_is_enough(tmp_path):
    """It wrote its number, and had no lock of the system's."""
    file, me = tmp_path / "lock", Owner.this()
    old = {"pid": me.pid, "started": me.started, "host": me.host}
    file.write_text(json.dumps(old))
    with pytest.raises(FolderInUseError, match=f"process {me.pid} is writing"):
        FolderLock(file).take()
    file.write_text(json.dumps(old | {"started": me.started + 1}))
    with FolderLock(file):
        pass


def test_a_lock_of_this_kernel_s_other_host_names_is_stale_when_nobody_has_it(tmp_path):
    file = tmp_path / "lock"
    file.write_text(named(flock=True, host="a container that is gone"))
    with FolderLock(file):
        pass


def test_where_the_file_system_knows_no_locks_the_file_s_word_counts(tmp_path, monkeypatch):
    def unsupported(handle, how):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", unsupported)
    file = tmp_path / "lock"
    with FolderLock(file) as first:
        assert first.owner() == Owner.this(flock=False)
        with pytest.raises(FolderInUseError, match=f"process {os.getpid()} is writing"):
            FolderLock(file).take()
    assert not file.exists()
    file.write_text(named(started=1))
    with FolderLock(file):
        pass


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_does_not_keep_the_lock(tmp_path):
    lock = FolderLock(tmp_path / "lock")
    lock.take()
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writes, b"0" if lock.mine else b"1")
        signal.pause()
    assert os.read(reads, 1) == b"1"
    os.close(lock._handle)  # as the system does it for one that dies
    lock._handle = None
    try:
        with FolderLock(lock.file):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reads)
        os.close(writes)


@pytest.mark.parametrize("kind", ["link", "second name", "folder", "pipe"])
def test_a_lock_s_file_is_a_file_of_its_own(tmp_path, kind):
    file, foreign = tmp_path / "lock", tmp_path / "foreign"
    foreign.write_text("mine")
    make = {
        "link": lambda: file.symlink_to(foreign), "second name": lambda: file.hardlink_to(foreign),
        "folder": file.mkdir, "pipe": lambda: os.mkfifo(file),
    }  # fmt: skip
    make[kind]()
    with pytest.raises(ValueError, match="expected a lock's"):
        FolderLock(file).take()
    assert FolderLock(file).owner() is None
    assert foreign.read_text() == "mine"
