"""Files of others: crafted checkpoints and links reach nothing outside of a run's folder."""

import json
import os
import shutil

import pytest

from kalmanac._cli.program import main
from kalmanac._files.document import BadFileError, decode, encode
from kalmanac._files.durable import LinkError
from kalmanac._files.run_folder import RunFolder
from kalmanac._files.run_reader import CHECKPOINTS, checkpoint_file, checkpoint_steps, read_summary
from kalmanac._lab.checkpointing import CHECKPOINT
from kalmanac._lab.run import resume, run
from tests.lab.foreign import change_checkpoint
from tests.lab.test_resuming import after, same_bytes
from tests.lab.tiny import TINY, Counts

LETTER = b"what its owner would not like to lose\n" * 100


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "stopped"
    run(TINY, folder, events=False, checkpoint_every=20, stop=after(17))
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "whole"
    run(TINY, folder, events=False)
    return folder


@pytest.fixture
def copy(stopped, tmp_path):
    return shutil.copytree(stopped, tmp_path / "copy")


@pytest.fixture
def letter(tmp_path):
    """A file of the user's, outside of the run."""
    file = tmp_path / "letter.txt"
    file.write_bytes(LETTER)
    yield file
    assert file.read_bytes() == LETTER


def contents(folder):
    return {path: path.read_bytes() for path in folder.glob("**/*") if path.is_file()}


@pytest.mark.parametrize("name", ["{}", "../letter.txt", "checkpoints/../../letter.txt"])
@pytest.mark.parametrize("lengths", ["with", "instead of"])
def test_a_crafted_checkpoint_cuts_no_other_file(name, lengths, copy, letter):
    def craft(state):
        own = state["folder"]["lengths"] if lengths == "with" else {}
        state["folder"]["lengths"] = own | {name.format(letter): 0}

    change_checkpoint(copy, 60, craft)
    before = contents(copy)
    with pytest.raises(BadFileError, match="the checkpoint of step 40 is whole"):
        resume(copy, events=False)
    assert contents(copy) == before


def no_number(state):
    name = next(name for name in state["model"]["learner"] if name.endswith("weight"))
    state["model"]["learner"][name].view(-1)[0] = float("nan")


def mark(name, value):
    return lambda state: state["folder"].update({name: value})


def length(value):
    return lambda state: state["folder"]["lengths"].update({"metrics.jsonl": value})


@pytest.mark.parametrize(
    "craft",
    [
        length(-1), length(True), length("0"), length(None), length(1.5), mark("summary", 3),
        mark("step", "../x"), mark("lengths", [1]), lambda state: state.update(folder=[]),
        lambda state: state.update(every="often"), lambda state: state.update(every=0),
        lambda state: state.update(every=None), lambda state: state.update(callbacks=3),
        lambda state: state.update(model={}), no_number, mark("threads", "two"), mark("threads", 0),
    ],
)  # fmt: skip
def test_a_malformed_mark_is_one_error_and_changes_nothing(craft, copy, capsys):
    change_checkpoint(copy, 60, craft)
    before = contents(copy)
    assert main(["resume", str(copy), "--no-progress", "--no-tensorboard"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert contents(copy) == before


@pytest.mark.parametrize(
    "chain",
    [
        {"last": "../../letter.txt"}, {"last": -1}, {"last": 10**15}, {"first": 3}, {"length": -1},
        {"length": 10**15}, {"length": True}, {"digest": None}, {"other": 1}, {"first": 0.0},
    ],
)  # fmt: skip
def test_a_malformed_chain_is_one_error(chain, copy, letter):
    file = checkpoint_file(copy, 60)
    document = decode(file.read_bytes(), CHECKPOINT, "it")
    document["chain"] |= chain
    file.write_bytes(encode(document, CHECKPOINT))
    with pytest.raises(BadFileError):
        resume(copy, step=60, events=False)


def test_a_checkpoint_under_another_ones_name_is_refused(copy):
    shutil.copy(checkpoint_file(copy, 40), checkpoint_file(copy, 60))
    with pytest.raises(BadFileError, match="malformed"):
        resume(copy, events=False)
    assert checkpoint_steps(copy) == [40, 60]


NAMES = (
    "metrics.jsonl", "timing.jsonl", "summary.json", "experiment.json", "best.safetensors",
    "lock.json", "failure.txt", "experiment.hmac", "events", "evaluations",
    "checkpoints/step-000000000060.safetensors", "checkpoints/replay-000000.segment",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_link_is_refused_before_anything_changes(name, copy, letter, capsys):
    (copy / name).unlink(missing_ok=True)
    (copy / name).symlink_to(letter)
    before = contents(copy)
    for words in (["resume", "--no-progress"], ["eval"], ["watch"]):
        assert main([words[0], str(copy), *words[1:]]) == 2
        message = capsys.readouterr().err
        assert message.count("\n") == 1
        assert f"{copy / name}, which is a link" in message
    with pytest.raises(LinkError):
        run(TINY, copy, overwrite=True, events=False)
    assert contents(copy) == before
    assert os.path.islink(copy / name)  # noqa: PTH114


def test_a_pipe_is_refused_and_not_waited_for(copy):
    (copy / "metrics.jsonl").unlink()
    os.mkfifo(copy / "metrics.jsonl")
    with pytest.raises(LinkError, match="neither a file nor a folder"):
        resume(copy, events=False)


def test_a_checkpoints_folder_elsewhere_loses_nothing(copy, tmp_path):
    elsewhere = shutil.move(copy / CHECKPOINTS, tmp_path / "models")
    (elsewhere / "foreign.safetensors").write_bytes(b"a model of somebody else's")
    (copy / CHECKPOINTS).symlink_to(elsewhere)
    before = contents(elsewhere)
    with pytest.raises(LinkError, match="checkpoints, which is a link"):
        resume(copy, events=False)
    with pytest.raises(LinkError):
        run(TINY, copy, overwrite=True, events=False)
    assert contents(elsewhere) == before


def test_a_run_removes_only_what_runs_write(copy, whole):
    others = [
        copy / CHECKPOINTS / "foreign.safetensors", copy / CHECKPOINTS / "step-7.safetensors",
        copy / CHECKPOINTS / "replay-١.segment", copy / CHECKPOINTS / "mine.segment",
        copy / ".thesis.partial", copy / CHECKPOINTS / ".notes.1.partial",
    ]  # fmt: skip
    for file in others:
        file.write_bytes(LETTER)
    assert resume(copy, events=False, keep_checkpoint=False).status == "finished"
    assert sorted((copy / CHECKPOINTS).iterdir()) == sorted(
        file for file in others if file.parent.name == CHECKPOINTS
    )
    (copy / "evaluations").mkdir()
    mine = copy / "evaluations" / "thesis.npz"
    mine.write_bytes(LETTER)
    assert run(TINY, copy, overwrite=True, events=False).status == "finished"
    for file in (*others, mine):
        assert file.read_bytes() == LETTER
    same_bytes(copy, whole)


def test_a_copy_of_hard_links_stays_as_it_was(stopped, whole, tmp_path):
    folder, backup = shutil.copytree(stopped, tmp_path / "run"), tmp_path / "backup"
    with (folder / "metrics.jsonl").open("a") as file:
        file.write("torn")
    shutil.copytree(folder, backup, copy_function=os.link)
    before = contents(backup)
    assert resume(folder, events=False).status == "finished"
    assert contents(backup) == before
    same_bytes(folder, whole)


class Wanders(Counts):
    """Changes the working directory with every step, as some simulators do."""

    def __init__(self, places=()):
        super().__init__()
        self.places = places

    def step(self, action):
        os.chdir(self.places[self.steps % len(self.places)])
        return super().step(action)


def test_a_relative_folder_survives_a_change_of_directory(tmp_path, monkeypatch, capsys):
    places = [tmp_path / name for name in ("a", "b")]
    for place in (start := tmp_path / "start", *places):
        place.mkdir()
    monkeypatch.chdir(start)
    wanders = TINY.changed(
        {"env": f"{__name__}:Wanders", "env_settings": {"places": [str(p) for p in places]},
         "evaluations": ("in",)}
    )  # fmt: skip
    outcome = run(wanders, "runs/one", checkpoint_every=20, stop=after(15))
    assert outcome.status == "interrupted"
    monkeypatch.chdir(start)
    assert main(["resume", "runs/one", "--no-progress"]) == 0
    monkeypatch.chdir(start)
    assert main(["eval", "runs/one", "--episodes", "2", "--device", "cpu"]) == 0
    assert capsys.readouterr().err == ""
    assert read_summary(start / "runs/one")["status"] == "finished"
    assert not any(any(place.iterdir()) for place in places)
    assert [path.name for path in start.iterdir()] == ["runs"]


def test_a_plan_of_a_sweep_names_folders_below_it(tmp_path, letter, capsys):
    (tmp_path / "root" / ".sweep").mkdir(parents=True)
    for folder in ("../copy", str(tmp_path), "a/../../b"):
        plan = {"0" * 12: {"folder": folder, "suites": ["s"], "evaluations": []}}
        (tmp_path / "root" / ".sweep" / "plan.json").write_text(json.dumps(plan))
        assert main(["status", str(tmp_path / "root")]) == 2
        assert "expected a place below the sweep's folder" in capsys.readouterr().err


def test_a_folder_that_is_a_link_itself_is_its_users_wish(copy, tmp_path):
    (tmp_path / "named").symlink_to(copy)
    assert resume(tmp_path / "named", events=False).status == "finished"


def test_marks_of_others_are_refused_by_the_folder_itself(copy, letter):
    marks = {"step": 60, "lengths": {str(letter): 0}, "summary": {}}
    folder = RunFolder(copy, TINY.to_data(), events=False, marks=marks)
    with pytest.raises(ValueError, match="lengths: got"):
        folder.__enter__()
