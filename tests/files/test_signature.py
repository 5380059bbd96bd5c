"""What this user wrote on this machine: a secret of mode 600, made once, and never in the way."""

import os
import stat
import threading

import pytest

from kalmanac._files.durable import secret_file, sign, signed


@pytest.fixture(autouse=True)
def config(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config"


def test_what_is_signed_is_known_again_and_nothing_else(config):
    assert not signed(b"text", "0" * 64)
    assert not config.exists(), "asking makes no secret"
    signature = sign(b"text")
    assert signature is not None
    assert signed(b"text", signature)
    assert sign(b"text") == signature
    for other, its in ((b"text ", signature), (b"text", signature[:-1] + "x"), (b"text", "é")):
        assert not signed(other, its)


def test_only_its_user_reads_the_secret(config):
    sign(b"")
    assert secret_file().is_relative_to(config)
    assert stat.S_IMODE(secret_file().stat().st_mode) == 0o600
    assert stat.S_IMODE(secret_file().parent.stat().st_mode) == 0o700
    assert [file.name for file in secret_file().parent.iterdir()] == ["secret"]


@pytest.mark.parametrize("spoil", ["loose", "short", "long", "empty"])
def test_a_secret_that_others_may_know_or_that_is_damaged_is_replaced(spoil):
    before = sign(b"text")
    if spoil == "loose":
        secret_file().chmod(0o644)
    else:
        secret_file().write_bytes(b"x" * {"short": 31, "long": 33, "empty": 0}[spoil])
    assert not signed(b"text", before)
    after = sign(b"text")
    assert after != before
    assert signed(b"text", after)
    assert stat.S_IMODE(secret_file().stat().st_mode) == 0o600


def test_all_who_begin_at_once_have_one_secret():
    signatures, gate = [], threading.Barrier(8)

    def begin():
        gate.wait()
        signatures.append(sign(b"text"))

    threads = [threading.Thread(target=begin) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(signatures)) == 1
    assert signed(b"text", signatures[0])


@pytest.mark.parametrize("place", ["a file", "a folder for the secret", "nowhere"])
def test_without_a_place_for_it_nothing_is_signed(place, config, monkeypatch):
    if place == "a file":
        config.write_text("")
    elif place == "nowhere":
        monkeypatch.setenv("XDG_CONFIG_HOME", "/proc/nowhere")
    else:
        secret_file().mkdir(parents=True)
    assert sign(b"text") is None
    assert not signed(b"text", "0" * 64)


def test_a_relative_directory_is_ignored_as_the_standard_says(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", "config")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert secret_file() == tmp_path / ".config" / "kalmanac" / "secret"


def test_another_users_secret_is_left_to_them(monkeypatch):
    sign(b"text")
    before = secret_file().read_bytes()
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000)  # as with sudo in somebody's home
    assert sign(b"text") is None
    assert secret_file().read_bytes() == before
