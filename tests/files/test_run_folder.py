import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kalmanac._files.heatmap_file import Heatmap, read_heatmap, write_heatmap
from kalmanac._files.lock import FolderInUseError
from kalmanac._files.run_folder import FolderTakenError, RunFolder, refuse_taken
from kalmanac._files.run_reader import (
    CHECKPOINTS,
    EVENTS,
    EXPERIMENT,
    HEATMAP,
    LOCK,
    METRICS,
    PROVENANCE,
    SIGNATURE,
    SUMMARY,
    TIMING,
    checkpoint_file,
    checkpoint_steps,
    is_run,
    read_experiment,
    read_last_timing,
    read_metrics,
    read_provenance,
    read_some_metrics,
    read_summary,
    read_timing,
    resumable,
    series,
)
from kalmanac._settings import EARLIER
from kalmanac._version import __version__

WHAT = {"env": "best-arm", "seed": 0, "hidden": (1, 2)}


@pytest.fixture
def folder(tmp_path):
    with RunFolder(tmp_path / "a" / "run", WHAT, events=False) as folder:
        yield folder


def test_a_new_folder_says_what_runs_in_it(folder):
    assert is_run(folder.path)
    assert read_experiment(folder.path) == {"env": "best-arm", "seed": 0, "hidden": [1, 2]}
    assert read_summary(folder.path) == {"status": "running", "step": 0}
    assert read_metrics(folder.path) == []


def test_rows_are_on_disk_at_once_and_apart(folder):
    folder.log(10, {"train/critic_loss": 0.5, "rollout/episodes": 3})
    folder.log_time(10, {"time/fps": 9.0})
    assert read_metrics(folder.path) == [
        {"step": 10, "train/critic_loss": 0.5, "rollout/episodes": 3}
    ]
    assert read_timing(folder.path) == [{"step": 10, "time/fps": 9.0}]


@given(st.lists(st.floats(), min_size=1, max_size=5))
def test_any_number_gives_valid_json_and_comes_back(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("run")
    with RunFolder(path, WHAT, events=False) as folder:
        for step, value in enumerate(values):
            folder.log(step, {"x": value})

    def refuse(constant):
        pytest.fail(f"{constant} is not JSON")

    for line in (path / METRICS).read_text().splitlines():
        json.loads(line, parse_constant=refuse)
    steps, numbers = series(read_metrics(path), "x")
    assert steps == list(range(len(values)))
    finite = [abs(value) < float("inf") for value in values]
    assert [a == b for a, b in zip(values, numbers, strict=True)] == finite
    assert [b != b for b in numbers] == [not ok for ok in finite]


def test_series_leaves_out_rows_without_the_key():
    rows = [{"step": 1, "a": 2.0}, {"step": 2, "b": 1}, {"step": 3, "a": None}]
    steps, values = series(rows, "a")
    assert steps == [1, 3]
    assert values[0] == 2.0


def test_what_is_not_a_number_is_refused(folder):
    with pytest.raises(TypeError, match="a/b: got str, expected a number"):
        folder.log(1, {"a/b": "high"})
    assert read_metrics(folder.path) == []


def test_the_summary_changes_in_part(folder):
    folder.summarize(step=5, best={"step": 5})
    assert read_summary(folder.path) == {"status": "running", "step": 5, "best": {"step": 5}}


def test_another_experiment_is_refused_even_with_overwrite(folder):
    folder.log(1, {"a": 1})
    for overwrite in (False, True):
        with pytest.raises(FolderTakenError, match="holds another experiment"):
            RunFolder(folder.path, WHAT | {"seed": 1}, overwrite=overwrite, events=False)
    assert read_experiment(folder.path)["seed"] == 0
    assert len(read_metrics(folder.path)) == 1


def test_a_folder_of_an_older_version_holds_the_experiment_that_it_ran(tmp_path):
    """What it could not say is what runs did then."""
    with RunFolder(tmp_path / "run", WHAT, events=False):
        pass
    assert "average_policy" not in read_experiment(tmp_path / "run")
    refuse_taken(tmp_path / "run", {**WHAT, **EARLIER}, overwrite=True)
    with pytest.raises(FolderTakenError, match="holds another experiment"):
        refuse_taken(tmp_path / "run", {**WHAT, **EARLIER, "average_policy": True}, overwrite=True)


def test_the_same_experiment_starts_over_only_when_told(folder):
    folder.log(1, {"a": 1})
    folder.summarize(status="interrupted", step=1200)
    (folder.path / "best.safetensors").touch()
    (folder.path / "notes.txt").touch()
    with pytest.raises(FolderTakenError, match=r"already \(interrupted, step 1,200\)"):
        RunFolder(folder.path, WHAT, events=False)
    with pytest.raises(FolderInUseError, match=r"in which process \d+ is writing"):
        RunFolder(folder.path, WHAT, overwrite=True, events=False)
    folder.close()
    with RunFolder(folder.path, WHAT, overwrite=True, events=False):
        pass
    names = {file.name for file in folder.path.iterdir()}
    assert names == {EXPERIMENT, SIGNATURE, METRICS, TIMING, SUMMARY, PROVENANCE, "notes.txt"}
    assert read_metrics(folder.path) == []


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name", ["best.safetensors", METRICS, SUMMARY, "events/mine.txt"])
def test_a_folder_that_is_no_run_keeps_its_files(tmp_path, name, overwrite):
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("mine")
    (tmp_path / "notes.txt").touch()
    words = f"which is no run but holds {name.split('/')[0]}, expected a new folder"
    with pytest.raises(FolderTakenError, match=words):
        RunFolder(tmp_path, WHAT, overwrite=overwrite, events=False)
    assert file.read_text() == "mine"
    assert not is_run(tmp_path)


def test_a_folder_with_other_files_may_become_a_run(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with RunFolder(tmp_path, WHAT, events=False):
        assert is_run(tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_an_experiment_that_is_no_json_is_named_and_kept(tmp_path):
    (tmp_path / EXPERIMENT).write_text("mine")
    with pytest.raises(ValueError, match=r"experiment\.json: got no JSON \(.*expected an exp"):
        RunFolder(tmp_path, WHAT, overwrite=True, events=False)
    assert (tmp_path / EXPERIMENT).read_text() == "mine"


def test_nothing_changes_before_the_block_begins(folder):
    folder.log(1, {"a": 1})
    folder.close()
    again = RunFolder(folder.path, WHAT, overwrite=True, events=False)
    new = RunFolder(folder.path / "new", WHAT, events=False)
    assert len(read_metrics(folder.path)) == 1
    assert not new.path.exists()
    with again:
        assert read_metrics(folder.path) == []


def test_a_folder_that_was_taken_in_the_meantime_is_refused(tmp_path):
    late = RunFolder(tmp_path, WHAT, events=False)
    with RunFolder(tmp_path, WHAT | {"seed": 1}, events=False) as first:
        first.log(1, {"a": 1})
    with pytest.raises(FolderTakenError, match="holds another experiment"):
        late.__enter__()
    assert len(read_metrics(tmp_path)) == 1


def test_a_file_in_the_way_is_refused(tmp_path):
    (tmp_path / "run").touch()
    with pytest.raises(FolderTakenError, match="which is a file"):
        RunFolder(tmp_path / "run", WHAT, events=False)


def test_a_line_that_a_killed_run_left_unfinished_is_not_read(folder):
    folder.log(1, {"a": 1})
    with (folder.path / METRICS).open("a") as file:
        file.write('{"step": 2, "a"')
    assert read_metrics(folder.path) == [{"step": 1, "a": 1}]


def test_a_broken_line_is_named(folder):
    (folder.path / METRICS).write_text('{"step": 1}\n{"step" 2}\n')
    with pytest.raises(ValueError, match=r"metrics.jsonl: got '\{\"step\" 2\}' in line 2"):
        read_metrics(folder.path)


def test_of_many_rows_some_are_read_and_every_evaluation(folder):
    for step in range(1, 11):
        folder.log(step, {"train/critic_loss": 1.0})
    folder.log(11, {"train/critic_loss": 1.0, "eval/in/mean_reward": 0.5})
    assert read_some_metrics(folder.path, 10) == (read_metrics(folder.path), False)
    rows, cut = read_some_metrics(folder.path, 4)
    assert ([row["step"] for row in rows], cut) == ([1, 5, 9, 11], False)
    with (folder.path / METRICS).open("a") as file:
        file.write('{"step": 12, "eval/in/mean_re')
    assert read_some_metrics(folder.path, 4) == (rows, True)
    (folder.path / METRICS).write_text('{"step": 1}\n{"step": 2, "eval/in/mean_re\n')
    with pytest.raises(ValueError, match=r"metrics.jsonl: got .* in line 2, expected a JSON"):
        read_some_metrics(folder.path, 4)


def test_the_last_row_of_the_clock_is_read_alone(folder):
    assert read_last_timing(folder.path) is None
    for step in range(5000):
        folder.log_time(step, {"time/elapsed": step / 2})
    with (folder.path / TIMING).open("a") as file:
        file.write('{"step": 5000, "time')
    assert read_last_timing(folder.path) == read_timing(folder.path)[-1]


def test_a_folder_says_which_version_wrote_it(folder):
    provenance = read_provenance(folder.path)
    assert provenance["kalmanac"] == __version__
    assert {"python", "numpy", "torch", "began"} <= provenance.keys()


def test_a_heat_map_comes_back_and_goes_when_the_run_starts_over(folder):
    assert read_heatmap(folder.path) is None
    heatmap = Heatmap([-0.5, 0.5], [1.0, 2.0, 3.0], [[1.0] * 3] * 2, [[9.0] * 3] * 2, 100)
    write_heatmap(folder.path, heatmap)
    assert read_heatmap(folder.path) == heatmap
    folder.close()
    with RunFolder(folder.path, WHAT, overwrite=True, events=False):
        assert read_heatmap(folder.path) is None


def test_a_heat_map_of_another_shape_is_refused(folder):
    with pytest.raises(ValueError, match=r"win_rate: got 1 rows of \[2\] values, expected 1 of 1"):
        Heatmap([0.0], [1.0], [[1.0, 1.0]], [[2.0]], 100)
    (folder.path / HEATMAP).parent.mkdir()
    (folder.path / HEATMAP).write_text("[1]")
    with pytest.raises(ValueError, match=r"heatmap.json: got no heat map"):
        read_heatmap(folder.path)


def test_what_is_no_run_is_said_so(tmp_path):
    assert not is_run(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"expected one with experiment\.json"):
        read_experiment(tmp_path)


def test_events_hold_the_same_numbers(tmp_path):
    pytest.importorskip("tensorboard")
    with RunFolder(tmp_path, WHAT) as folder:
        folder.log(3, {"eval/in/mean_reward": 1.5})
        folder.log(6, {"eval/in/mean_reward": 2.5})
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / EVENTS))
    events.Reload()
    points = [(event.step, event.value) for event in events.Scalars("eval/in/mean_reward")]
    assert points == [(3, 1.5), (6, 2.5)]


def test_events_can_be_off(folder):
    folder.log(1, {"a": 1})
    assert not (folder.path / EVENTS).exists()


def test_reading_needs_no_torch(folder):
    code = f"""
import sys
from kalmanac._files.run_reader import read_experiment, read_metrics
read_experiment({str(folder.path)!r}), read_metrics({str(folder.path)!r})
sys.exit("torch" in sys.modules)"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_run_goes_on_where_it_was_marked(folder):
    folder.log(1, {"a": 1})
    folder.log_time(1, {"b": 2})
    folder.summarize(best={"step": 1})
    marks = folder.marks(7)
    folder.log(2, {"a": 2})
    folder.summarize(best={"step": 2}, status="interrupted")
    folder.close()
    with RunFolder(folder.path, WHAT, events=False, marks=marks) as again:
        again.log(3, {"a": 3})
        again.note_resumed({"step": 7})
    assert [row["step"] for row in read_metrics(folder.path)] == [1, 3]
    assert [row["step"] for row in read_timing(folder.path)] == [1]
    assert read_summary(folder.path) == {
        "status": "running", "step": 0, "best": {"step": 1}, "resumed": [{"step": 7}]
    }  # fmt: skip
    (folder.path / METRICS).write_text("")
    with pytest.raises(ValueError, match=r"metrics.jsonl: got 0 bytes, expected at least"):
        RunFolder(folder.path, WHAT, events=False, marks=marks).__enter__()
    assert not (folder.path / LOCK).exists()


def test_a_run_can_be_resumed_from_its_newest_checkpoint_until_it_is_finished(folder):
    assert resumable(folder.path) is None
    for step in (40, 200, 1_000_000_000_000):
        checkpoint_file(folder.path, step).parent.mkdir(exist_ok=True)
        checkpoint_file(folder.path, step).touch()
    (folder.path / CHECKPOINTS / "step-x.safetensors").touch()
    assert checkpoint_steps(folder.path) == [40, 200, 1_000_000_000_000]
    assert resumable(folder.path) == 1_000_000_000_000
    folder.summarize(status="finished")
    assert resumable(folder.path) is None
    assert resumable(folder.path / "nothing") is None
