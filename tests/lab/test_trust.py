"""Whose code runs: nothing that a foreign folder names, by any verb, without trust."""

import json
import os
import pty
import re
import shutil
import sys
from pathlib import Path

import pytest

import kalmanac
from kalmanac._cli.program import main
from kalmanac._cli.train import VERB, experiment_from
from kalmanac._cli.verb import read_call
from kalmanac._envs.registry import foreign_code
from kalmanac._files.run_reader import SIGNATURE, is_signed, read_summary
from kalmanac._lab.play import load_run
from kalmanac._lab.post_training import ExampleEpisodes, run_post_training
from kalmanac._lab.run import resume, run
from kalmanac._lab.trust import UntrustedError, read_trusted
from kalmanac._sweep.plan import Planned
from kalmanac._sweep.ray_cluster import remotely
from kalmanac._sweep.record import Record
from kalmanac._sweep.work import How, do
from tests.lab.foreign import NAMES, codes, rename, sent
from tests.lab.test_resuming import after
from tests.lab.tiny import TINY

DRIFTING = TINY.changed(
    {"env": "tests.lab.drifting:Drifting", "env_settings": {}, "evaluations": ("in",)}
)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own") / "run"
    run(TINY, folder, events=False, device="cpu", checkpoint_every=20, stop=after(17))
    return folder


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A run of this user with an environment of a module."""
    folder = tmp_path_factory.mktemp("own") / "drifting"
    run(DRIFTING, folder, events=False, device="cpu", checkpoint_every=20, stop=after(30))
    return folder


@pytest.fixture
def mark(tmp_path):
    """Is there when foreign code has run."""
    return tmp_path / "executed"


@pytest.fixture(params=NAMES)
def foreign(request, stopped, mark, tmp_path, monkeypatch):
    """A folder of somebody else, its environment's name, and what names it without a folder."""
    payloads = tmp_path / "payloads"
    env, settings = codes(mark, payloads)[request.param]
    monkeypatch.syspath_prepend(payloads)
    monkeypatch.chdir(tmp_path)
    yield sent(stopped, tmp_path / "runs" / "sent", env, settings), env
    sys.modules.pop("side_effect", None)


@pytest.mark.parametrize("verb", ["eval", "watch", "resume"])
def test_a_verb_that_plays_or_trains_refuses_and_names_flag_and_code(verb, foreign, mark, capsys):
    folder, env = foreign
    assert main([verb, str(folder)]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    module, attribute = env.split(":")
    for words in ("--trust", repr(env), f"import {module!r} and use {attribute!r}", str(folder)):
        assert words in message
    assert not mark.exists()
    assert not (folder / SIGNATURE).exists()


@pytest.mark.parametrize("verb", ["eval", "resume"])
def test_with_trust_it_runs_and_has_to_be_an_environment(verb, foreign, mark, capsys):
    folder, _ = foreign
    assert main([verb, str(folder), "--trust"]) in (1, 2)
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert message.startswith(f"kalmanac {verb}: ")
    assert mark.exists(), "so that the tests above can fail"


@pytest.mark.parametrize(
    "words",
    ["runs {}", "report {} --out report", "status {}", "sweep best-arm --folder {} --dry-run",
     "train --config {}/sent/experiment.json", "train best-arm --folder {}/sent --overwrite"],
)  # fmt: skip
def test_no_other_verb_runs_it_either(words, foreign, mark, capsys):
    folder, env = foreign
    Record(folder.parent).plan([Planned(TINY.changed({"label": "foreign"}), folder)])
    status = main(words.format(folder.parent).split())
    assert not mark.exists()
    if "--overwrite" in words:
        assert status == 2
        assert "holds another experiment" in capsys.readouterr().err
    if "--config" in words:
        message = capsys.readouterr().err
        assert status == 2
        assert message.count("\n") == 1
        assert "--trust" in message
        assert repr(env) in message


@pytest.mark.parametrize("worker", ["local", "ray"])
def test_sweeps_and_searches_run_what_was_planned_alone(worker, foreign, mark, tmp_path):
    folder, _ = foreign
    work, how = (Planned(TINY, folder),), How(tmp_path / "stop", events=False)
    (ended,) = do(work, how) if worker == "local" else remotely(work, how, 0)
    assert ended.status == "failed"
    assert "UntrustedError" in ended.error
    assert not mark.exists()
    (folder / "summary.json").write_text('{"status": "finished"}')
    examples = (Planned(TINY, folder, (ExampleEpisodes(),)),)
    (ended,) = do(examples, how)
    assert "UntrustedError" in ended.error
    assert not mark.exists()


def test_nothing_runs_from_python_either(foreign, mark):
    folder, _ = foreign
    for opens in (
        lambda: resume(folder, events=False),
        lambda: load_run(folder, "best"),
        lambda: run_post_training(folder, (ExampleEpisodes(),)),
        lambda: read_trusted(folder),
        lambda: read_trusted(folder, trust=[TINY]),
    ):
        with pytest.raises(UntrustedError, match="--trust, or trust=True in Python"):
            opens()
    assert not mark.exists()


def test_the_driver_of_a_sweep_is_trusted_by_its_workers(own, tmp_path):
    folder = shutil.copytree(own, tmp_path / "run")
    (folder / SIGNATURE).unlink()  # as on another machine of a cluster
    (ended,) = do((Planned(DRIFTING, folder),), How(tmp_path / "stop", events=False))
    assert ended.status == "finished"


def test_an_own_run_needs_no_question(own, tmp_path, capsys):
    folder = shutil.copytree(own, tmp_path / "run")
    assert main(["resume", str(folder), "--no-tensorboard", "--no-progress"]) == 0
    assert main(["eval", str(folder), "--episodes", "1"]) == 0
    assert capsys.readouterr().err == ""


def test_a_folder_from_before_needs_the_flag_once(own, tmp_path):
    folder = shutil.copytree(own, tmp_path / "run")
    (folder / SIGNATURE).unlink()
    with pytest.raises(UntrustedError):
        resume(folder, events=False)
    assert resume(folder, events=False, trust=True, stop=after(1)).status == "interrupted"
    assert resume(folder, events=False).status == "finished"


def test_a_signature_is_over_the_exact_bytes(own, tmp_path):
    folder = shutil.copytree(own, tmp_path / "run")
    file = folder / "experiment.json"
    content = file.read_bytes()
    assert is_signed(folder, content)
    assert read_trusted(folder) == DRIFTING
    for other in (content + b" ", content.replace(b'"seed": 0', b'"seed": 1')):
        file.write_bytes(other)
        with pytest.raises(UntrustedError):
            read_trusted(folder)
    file.write_bytes(content)
    (folder / SIGNATURE).write_bytes(b"\xff" * 64)
    with pytest.raises(UntrustedError):
        read_trusted(folder)


def test_another_users_signature_is_nothing_here(own, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "another user's"))
    with pytest.raises(UntrustedError):
        read_trusted(own)


def test_a_run_whose_user_can_keep_no_secret_runs_unsigned(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    outcome = run(DRIFTING, tmp_path / "run", events=False, stop=after(3))
    assert not (tmp_path / "run" / SIGNATURE).exists()
    with pytest.raises(UntrustedError):
        resume(outcome.folder)
    assert resume(outcome.folder, events=False, trust=True).status == "finished"


def _read_or_end(terminal):
    """Some bytes; none once the other side is closed and everything has been read."""
    try:
        return os.read(terminal, 100_000)
    except OSError:
        return b""


@pytest.mark.parametrize(("answer", "runs"), [("y", True), ("n", False), ("", False)])
def test_a_terminal_is_asked(answer, runs, own, tmp_path, monkeypatch):
    folder = shutil.copytree(own, tmp_path / "run")
    (folder / SIGNATURE).unlink()
    ours, theirs = pty.openpty()
    with os.fdopen(theirs) as keys, os.fdopen(os.dup(theirs), "w") as out:
        monkeypatch.setattr(sys, "stdin", keys)
        monkeypatch.setattr(sys, "stderr", out)
        os.write(ours, f"{answer}\n".encode())
        status = main(["eval", str(folder), "--episodes", "1"])
        monkeypatch.undo()
    message = b"".join(iter(lambda: _read_or_end(ours), b"")).decode()
    os.close(ours)
    assert status == (0 if runs else 2)
    assert "Run it? [y/N]" in message
    assert "import 'tests.lab.drifting' and use 'Drifting' of it" in message
    assert (folder / SIGNATURE).exists() is runs


@pytest.mark.parametrize(
    "name",
    ["best-arm", "dmc/walker-run", "CartPole-v1", "Hopper-v2", "kalmanac/BestArm-v0", "Oops"],
)
def test_names_that_are_nobody_elses_code(name):
    assert foreign_code(name) is None


def test_ids_of_others_are_their_code():
    import gymnasium

    from tests.lab.tiny import Counts

    assert "import 'gymnasium.envs'" in foreign_code("gymnasium.envs:CartPole-v1")
    gymnasium.register("kalmanac-test/Text-v0", entry_point="tests.lab.tiny:Counts")
    gymnasium.register("kalmanac-test/Class-v0", entry_point=Counts)
    try:
        assert "tests.lab.tiny:Counts" in foreign_code("kalmanac-test/Text-v0")
        assert "tests.lab.tiny" in foreign_code("kalmanac-test/Class-v0")
    finally:
        for name in ("Text", "Class"):
            del gymnasium.registry[f"kalmanac-test/{name}-v0"]


def test_what_is_typed_is_wanted(tmp_path):
    config = tmp_path / "mine.json"
    config.write_text(json.dumps({"env": DRIFTING.env, "noise": 0.1}))
    with pytest.raises(UntrustedError, match="config: got"):
        experiment_from(read_call("train", VERB, ["--config", str(config)]))
    for words in (["--trust"], ["--env", DRIFTING.env], [DRIFTING.env]):
        call = read_call("train", VERB, ["--config", str(config), *words])
        assert experiment_from(call).env == DRIFTING.env


def test_hostile_names_are_shown_without_their_control_characters(stopped, tmp_path, capsys):
    env = "os:\x1b[2J\nsystem" + "x" * 100_000
    folder = sent(stopped, tmp_path / "sent", env, {"\x1b[2J": "\udc80" * 100_000})
    assert main(["eval", str(folder)]) == 2
    message = capsys.readouterr().err
    assert "\x1b" not in message
    assert message.count("\n") == 1
    assert len(message) < 2_000


def test_the_files_of_folders_become_experiments_in_one_place():
    """Everything else would be a way around."""
    package = Path(kalmanac.__file__).parent
    readers = {
        path.relative_to(package).as_posix()
        for path in package.glob("**/*.py")
        if re.search(r"^(?!\s*>>>).*Experiment\.from_(data|json)\(", path.read_text(), re.MULTILINE)
    }
    compares = {"_lab/checkpointing.py", "_sweep/plan.py", "_lab/run_data.py"}  # and no more
    told = {"_lab/evaluation_process.py"}  # by the process that started it, no file
    assert readers == {"_lab/experiment.py", "_lab/trust.py", *compares, *told}


def test_a_checkpoint_cannot_bring_another_environment(stopped, mark, tmp_path):
    env, settings = codes(mark, tmp_path / "payloads")["sympify"]
    folder = sent(stopped, tmp_path / "sent", env, settings)
    experiment = json.loads((stopped / "experiment.json").read_text())
    (folder / "experiment.json").write_text(json.dumps(experiment))
    with pytest.raises(ValueError, match="another experiment"):
        resume(folder, events=False)
    assert not mark.exists()
    assert read_summary(folder)["status"] == "interrupted"
    assert rename(folder, "best-arm", {"horizon": 5})
