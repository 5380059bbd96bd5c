"""The entry point: help at once, every verb reachable, one clear line for a wrong call."""

import subprocess
import sys

import pytest

from kalmanac._cli.program import VERBS, main
from kalmanac._version import __version__

pytestmark = pytest.mark.usefixtures("compiled_only")


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["help"]])
def test_help_lists_every_verb_with_its_summary(words, capsys):
    assert main(words) == 0
    output = capsys.readouterr().out
    for name, verb in VERBS.items():
        assert name in output
        assert verb.summary in output


def test_no_verb_prints_the_help_and_fails(capsys):
    assert main([]) == 2
    assert "usage: kalmanac VERB" in capsys.readouterr().out


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"kalmanac {__version__}"


def test_ctrl_c_is_one_line(capsys, monkeypatch, tmp_path):
    def interrupted(folder, now):
        raise KeyboardInterrupt

    monkeypatch.setattr("kalmanac._cli.runs.find_runs", interrupted)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    assert main(["runs"]) == 130
    assert capsys.readouterr().err == "kalmanac runs: interrupted\n"


@pytest.mark.parametrize(
    ("word", "hint"), [("doctr", "did you mean 'doctor'?"), ("xyzzy", "expected one of train")]
)
def test_an_unknown_verb_gets_one_line_with_a_hint(word, hint, capsys):
    assert main([word]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1
    assert repr(word) in output.err
    assert hint in output.err


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_its_options(verb, capsys):
    with pytest.raises(SystemExit) as stop:
        main([verb, "--help"])
    assert stop.value.code == 0
    assert f"usage: kalmanac {verb}" in capsys.readouterr().out


@pytest.mark.parametrize("verb", VERBS)
def test_a_flag_that_no_verb_has_gets_one_line(verb, capsys):
    assert main([verb, "--xyzzy", "3"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert said.err.startswith(f"kalmanac {verb}: flag: got '--xyzzy'; expected one of ")


@pytest.mark.parametrize("verb", ["resume", "eval", "report"])
def test_a_verb_without_its_word_gets_one_line(verb, capsys):
    assert main([verb]) == 2
    assert f": got none, expected kalmanac {verb} " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("eval a b", "run: got a b, expected kalmanac eval RUN [options]"),
        ("runs a b", "folder: got a b, expected kalmanac runs [FOLDER] [options]"),
        ("doctor a", "words: got a, expected kalmanac doctor [options]"),
    ],
)
def test_a_word_too_many_gets_one_line(line, message, capsys):
    verb, *_ = words = line.split()
    assert main(words) == 2
    assert capsys.readouterr() == ("", f"kalmanac {verb}: {message}\n")


def test_help_does_not_wait_for_torch():
    code = (
        "import sys; from kalmanac._cli.program import main; main(['--help']); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_python_dash_m_is_the_same_entry_point():
    call = [sys.executable, "-m", "kalmanac"]
    wrong = subprocess.run([*call, "demmo"], capture_output=True, text=True)
    assert wrong.returncode == 2
    assert "did you mean 'demo'?" in wrong.stderr
