"""Damaged checkpoints: one clear line, nothing run or changed, and the one before offered."""

import json
import pickle
import shutil

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kalmanac._cli.program import main
from kalmanac._files.document import BadFileError, decode, encode
from kalmanac._files.run_reader import CHECKPOINTS, checkpoint_file, checkpoint_steps
from kalmanac._lab.checkpointing import CHECKPOINT
from kalmanac._lab.run import resume, run
from tests.files.test_document import Bomb
from tests.lab.test_resuming import after
from tests.lab.tiny import TINY


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run with checkpoints of two steps."""
    folder = tmp_path_factory.mktemp("runs") / "stopped"
    outcome = run(TINY, folder, events=False, checkpoint_every=20, stop=after(17))
    assert (outcome.status, checkpoint_steps(folder)) == ("interrupted", [40, 60])
    return folder


@pytest.fixture
def copy(stopped, tmp_path):
    return shutil.copytree(stopped, tmp_path / "copy")


def contents(folder):
    return {path: path.read_bytes() for path in folder.glob("**/*") if path.is_file()}


def refused(folder, words):
    """In one line, and the folder stays as it was."""
    before = contents(folder)
    with pytest.raises(BadFileError, match=words) as caught:
        resume(folder, events=False)
    assert "\n" not in str(caught.value)
    assert contents(folder) == before
    return str(caught.value)


def offered(folder):
    return rf"; the checkpoint of step 40 is whole: `kalmanac resume {folder} --step 40` goes on"


@pytest.mark.parametrize("damage", ["empty", "short", "foreign", "flipped", "text", "pickle"])
def test_a_damaged_checkpoint_is_refused_and_the_one_before_is_offered(copy, damage):
    file = checkpoint_file(copy, 60)
    whole = file.read_bytes()
    file.write_bytes({
        "empty": b"",
        "short": whole[: len(whole) // 2],
        "foreign": (copy / "last.safetensors").read_bytes(),
        "flipped": whole[:-100] + bytes([whole[-100] ^ 4]) + whole[-99:],
        "text": b"not a checkpoint",
        "pickle": pickle.dumps(Bomb()),
    }[damage])  # fmt: skip
    refused(copy, f"path: got {file}.*{offered(copy)}")
    assert resume(copy, step=40, events=False).status == "finished"


def test_the_verb_says_it_in_one_line(copy, capsys):
    file = checkpoint_file(copy, 60)
    file.write_bytes(file.read_bytes()[:-1])
    assert main(["resume", str(copy)]) == 2
    message = capsys.readouterr().err
    assert message.startswith(f"kalmanac resume: path: got {file}, which is damaged")
    assert message.count("\n") == 1
    assert f"`kalmanac resume {copy} --step 40`" in message


def test_other_versions_are_refused_by_name(copy):
    file = checkpoint_file(copy, 60)
    document = decode(file.read_bytes(), CHECKPOINT, "")
    for version in (0, 2):
        file.write_bytes(encode(document, CHECKPOINT._replace(version=version)))
        refused(copy, f"of format version {version}, expected 1; .*step 40 is whole")


def test_a_checkpoint_of_another_experiment_is_refused(copy):
    file = checkpoint_file(copy, 60)
    document = decode(file.read_bytes(), CHECKPOINT, "")
    document["run"]["experiment"]["seed"] = 5
    file.write_bytes(encode(document, CHECKPOINT))
    refused(copy, "got one of another experiment.*step 40 is whole")
    document["run"]["experiment"] = "nothing"
    file.write_bytes(encode(document, CHECKPOINT))
    refused(copy, "got one of another experiment.*step 40 is whole")


def test_a_checkpoint_from_before_a_setting_came_goes_on_with_its_default(copy):
    file = checkpoint_file(copy, 60)
    document = decode(file.read_bytes(), CHECKPOINT, "")
    for name in ("overlap", "tf32"):
        del document["run"]["experiment"][name]
    file.write_bytes(encode(document, CHECKPOINT))
    described = json.loads((copy / "experiment.json").read_text())
    for name in ("overlap", "tf32"):
        del described[name]
    (copy / "experiment.json").write_text(json.dumps(described))
    assert resume(copy, events=False).status == "finished"


@pytest.mark.parametrize("part", ["model", "callbacks", "folder", "experiment"])
def test_a_checkpoint_without_a_part_is_refused(copy, part):
    file = checkpoint_file(copy, 60)
    document = decode(file.read_bytes(), CHECKPOINT, "")
    del document["run"][part]
    file.write_bytes(encode(document, CHECKPOINT))
    refused(copy, f"got none of {part}.*step 40 is whole")


def test_a_checkpoint_that_does_not_fit_is_refused(copy):
    file = checkpoint_file(copy, 60)
    document = decode(file.read_bytes(), CHECKPOINT, "")
    document["run"]["model"]["learner"].pop("log_alpha")
    file.write_bytes(encode(document, CHECKPOINT))
    refused(copy, "does not fit this run")


def test_damage_in_the_replay_is_refused(copy):
    (segment,) = (copy / CHECKPOINTS).glob("*.segment")
    whole = segment.read_bytes()
    segment.write_bytes(whole[:-1])  # behind the end of the checkpoint before
    refused(copy, f"path: got {segment}, which is damaged.*{offered(copy)}")
    segment.write_bytes(whole[:100] + b"?" + whole[101:])
    refused(copy, f"path: got {segment}.*no other checkpoint is whole")
    segment.unlink()
    refused(copy, f"path: got {segment}.*no other checkpoint is whole")


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_no_random_damage_passes(stopped, data):
    """Whatever is changed in any file of the folder, the run is refused or its bytes unused."""
    files = sorted((stopped / CHECKPOINTS).iterdir())
    file = data.draw(st.sampled_from([path for path in files if "000040" not in path.name]))
    whole = file.read_bytes()
    bad = bytearray(whole)
    kind = data.draw(st.sampled_from(["flip", "cut", "insert", "overwrite"]))
    at = data.draw(st.integers(0, len(bad) - 1))
    if kind == "flip":
        bad[at] ^= 1 << data.draw(st.integers(0, 7))
    elif kind == "cut":
        del bad[at:]
    else:
        chunk = data.draw(st.binary(min_size=1, max_size=16))
        bad[at : at + (len(chunk) if kind == "overwrite" else 0)] = chunk
    if bytes(bad) == whole:
        return
    file.write_bytes(bad)
    try:
        with pytest.raises(BadFileError):
            resume(stopped, events=False)
    finally:
        file.write_bytes(whole)


def test_every_region_of_a_checkpoint_is_guarded(copy):
    file = checkpoint_file(copy, 60)
    whole = file.read_bytes()
    for at in np.linspace(0, len(whole) - 1, 97).astype(int):
        bad = bytearray(whole)
        bad[at] ^= 1 << (at % 8)
        with pytest.raises(BadFileError):
            decode(bytes(bad), CHECKPOINT, "file")


def test_a_folder_without_a_checkpoint_says_so(copy):
    shutil.rmtree(copy / CHECKPOINTS)
    with pytest.raises(ValueError, match="which has no checkpoint, expected one to go on from"):
        resume(copy)


def test_a_finished_run_is_left_alone(tmp_path):
    run(TINY.changed({"total_steps": 8}), tmp_path / "a", events=False)
    with pytest.raises(ValueError, match="which is finished, expected one that was stopped"):
        resume(tmp_path / "a")
    with pytest.raises(FileNotFoundError, match=r"expected one with experiment\.json"):
        resume(tmp_path / "b")
