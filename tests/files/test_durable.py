import os
from pathlib import Path

import pytest

from kalmanac._files.durable import LinkError, append, cut, open_rows, write_whole


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    file = tmp_path / "x"
    write_whole(file, b"old")

    def fail(*_):
        raise OSError(28, "No space left on device")

    for call in ("fsync", "replace"):
        with monkeypatch.context() as broken:
            broken.setattr(os, call, fail)
            with pytest.raises(OSError, match="No space"):
                write_whole(file, b"half")
        assert file.read_bytes() == b"old"
        assert [path.name for path in tmp_path.iterdir()] == ["x"]
    write_whole(file, b"new")
    assert file.read_bytes() == b"new"


def test_a_file_that_comes_in_parts_is_whole_or_not_at_all_too(tmp_path):
    def parts(*, whole):
        yield b"one, "
        if not whole:
            raise RuntimeError("no more")
        yield b"two"

    write_whole(tmp_path / "x", parts(whole=True))
    with pytest.raises(RuntimeError, match="no more"):
        write_whole(tmp_path / "x", parts(whole=False))
    assert (tmp_path / "x").read_bytes() == b"one, two"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_the_disk_is_reached_before_the_name_and_the_name_before_the_return(tmp_path, monkeypatch):
    calls = []
    fsync, replace = os.fsync, os.replace

    def noted_fsync(handle):
        calls.append(Path(f"/proc/self/fd/{handle}").readlink().name)
        fsync(handle)

    def noted_replace(source, target):
        calls.append("renamed")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    write_whole(tmp_path / "x", b"1")
    assert calls == [f".x.{os.getpid()}.partial", "renamed", tmp_path.name]


def test_appending_cuts_off_what_a_crash_left(tmp_path):
    file = tmp_path / "x"
    append(file, 0, b"abc")
    append(file, 3, b"lost")
    append(file, 3, b"de")
    assert file.read_bytes() == b"abcde"
    cut(file, 4)
    assert file.read_bytes() == b"abcd"
    with pytest.raises(ValueError, match=r"x: got 4 bytes, expected at least 9"):
        cut(file, 9)


def test_no_link_is_written_through(tmp_path):
    letter, link = tmp_path / "letter", tmp_path / "link"
    letter.write_bytes(b"a letter")
    link.symlink_to(letter)
    for write in (lambda: append(link, 0, b"x"), lambda: cut(link, 0)):
        with pytest.raises(LinkError, match="link, which is a link, expected a file or a folder"):
            write()
    with pytest.raises(OSError, match="symbolic links"):
        open_rows(link)
    (tmp_path / f".x.{os.getpid()}.partial").symlink_to(letter)
    write_whole(tmp_path / "x", b"text")
    assert (tmp_path / "x").read_bytes() == b"text"
    write_whole(link, b"text")
    assert not link.is_symlink()
    assert letter.read_bytes() == b"a letter"


def test_a_second_name_of_a_file_keeps_what_it_holds(tmp_path):
    for change in (lambda file: append(file, 3, b"x"), lambda file: cut(file, 3)):
        write_whole(tmp_path / "file", b"abcdef")
        os.link(tmp_path / "file", tmp_path / "copy")
        change(tmp_path / "file")
        assert (tmp_path / "file").read_bytes()[:3] == b"abc"
        assert (tmp_path / "copy").read_bytes() == b"abcdef"
        (tmp_path / "copy").unlink()


def test_rows_are_added_behind_those_that_are_there(tmp_path):
    for line in ("one\n", "two\n"):
        with open_rows(tmp_path / "rows") as file:
            file.write(line)
    assert (tmp_path / "rows").read_text() == "one\ntwo\n"
