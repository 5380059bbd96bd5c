"""What a worker does with a run in every state it can be in."""

import dataclasses
import json
import threading

import pytest

from kalmanac._files.lock import FolderLock
from kalmanac._files.run_reader import LOCK, checkpoint_file, checkpoint_steps, read_summary
from kalmanac._lab.post_training import ExampleEpisodes
from kalmanac._lab.run import resume, resume_together, run
from kalmanac._sweep.work import ELSEWHERE, How, do
from tests.lab.tiny import TINY
from tests.sweep.small import FAILING, metrics, planned

ENDLESS = dataclasses.replace(TINY, total_steps=10**6, eval_every=10**6)
EXAMPLES = ExampleEpisodes(((0.5, 0.5),))


@pytest.fixture
def how(tmp_path):
    return How(tmp_path / "stop", device="cpu", events=False, checkpoint_every=32)


def stop_after(run_steps):
    """A stop that counts the steps it is asked after."""
    asked = iter(range(run_steps))
    return lambda: next(asked, None) is None


def statuses(ended):
    return [one.status for one in ended]


def test_a_run_is_trained_evaluated_and_then_left_alone(tmp_path, how):
    (one,) = plan = planned(tmp_path, TINY, post_training=[EXAMPLES])
    assert statuses(do(tuple(plan), how)) == ["finished"]
    assert one.done
    before = {file: file.stat().st_mtime_ns for file in one.folder.rglob("*")}
    assert statuses(do(tuple(plan), how)) == ["finished"]
    assert {file: file.stat().st_mtime_ns for file in one.folder.rglob("*")} == before


def test_a_run_that_was_trained_elsewhere_is_only_evaluated(tmp_path, how):
    (one,) = planned(tmp_path, TINY, post_training=[EXAMPLES])
    run(TINY, one.folder, events=False, device="cpu")
    trained = (one.folder / "last.safetensors").stat().st_mtime_ns
    assert not one.done
    assert statuses(do((one,), how)) == ["finished"]
    assert one.done
    assert (one.folder / "last.safetensors").stat().st_mtime_ns == trained


def test_a_stopped_run_goes_on_to_the_same_bytes(tmp_path, how):
    (whole,) = planned(tmp_path / "a", TINY)
    (parted,) = planned(tmp_path / "b", TINY)
    do((whole,), how)
    run(TINY, parted.folder, events=False, device="cpu", stop=stop_after(12))
    assert read_summary(parted.folder)["status"] == "interrupted"
    assert statuses(do((parted,), how)) == ["finished"]
    assert len(read_summary(parted.folder)["resumed"]) == 1
    assert metrics([whole]) == metrics([parted])


def test_the_stop_file_ends_a_run_with_a_checkpoint(tmp_path, how):
    (one,) = planned(tmp_path, ENDLESS)
    timer = threading.Timer(1.0, how.stop_file.touch)
    timer.start()
    assert statuses(do((one,), how)) == ["interrupted"]
    timer.join()
    assert read_summary(one.folder)["status"] == "interrupted"
    assert checkpoint_steps(one.folder)[-1] == read_summary(one.folder)["step"] > 0


def test_what_is_stopped_before_it_begins_leaves_nothing(tmp_path, how):
    fresh, old = planned(tmp_path, TINY, dataclasses.replace(TINY, seed=1))
    do((old,), how)
    how.stop_file.touch()
    assert statuses(do((fresh, old), how)) == ["interrupted", "finished"]
    assert not fresh.folder.exists()
    how.stop_file.unlink()
    assert statuses(do((fresh,), how)) == ["finished"]


def test_nobody_who_waits_stops_a_run_too(tmp_path, how):
    (one,) = planned(tmp_path, ENDLESS)
    gone = iter([False])
    assert statuses(do((one,), how, abandoned=lambda: next(gone, True))) == ["interrupted"]
    assert checkpoint_steps(one.folder)


@pytest.mark.parametrize("damaged", [1, 2])
def test_a_damaged_checkpoint_costs_time_and_nothing_else(tmp_path, how, damaged):
    (whole,) = planned(tmp_path / "a", TINY)
    (parted,) = planned(tmp_path / "b", TINY)
    do((whole,), how)
    run(TINY, parted.folder, events=False, device="cpu", stop=stop_after(15), checkpoint_every=24)
    for step in checkpoint_steps(parted.folder)[-damaged:]:
        checkpoint_file(parted.folder, step).write_bytes(b"nothing")
    assert statuses(do((parted,), how)) == ["finished"]
    assert metrics([whole]) == metrics([parted])


def test_a_failing_environment_is_told_and_leaves_its_seed_mates_alone(tmp_path, how):
    sound = dataclasses.replace(FAILING, env_settings={"at": 10_000})
    plan = planned(tmp_path, FAILING, sound)
    failed, finished = do(tuple(plan), how)
    assert (failed.status, finished.status) == ("failed", "finished")
    assert "ZeroDivisionError: the motor burnt out" in failed.error
    assert "\n" not in failed.error
    assert "Traceback" in failed.details


def test_an_evaluation_that_fails_is_told(tmp_path, how):
    (one,) = planned(tmp_path, dataclasses.replace(FAILING, env_settings={"at": 10_000}),
                     post_training=[EXAMPLES])  # fmt: skip
    (ended,) = do((one,), how)
    assert ended.status == "failed"
    assert ended.error
    assert read_summary(one.folder)["status"] == "finished"


def test_a_folder_that_another_process_writes_in_is_left_to_it(tmp_path, how):
    (one,) = planned(tmp_path, TINY)
    one.folder.mkdir(parents=True)
    with FolderLock(one.folder / LOCK):
        (ended,) = do((one,), how)
    assert ended.status == ELSEWHERE
    assert "is writing" in ended.error
    assert list(one.folder.iterdir()) == []


def test_a_run_that_somebody_else_has_finished_meanwhile_is_left_as_it_is(
    tmp_path, how, monkeypatch
):
    plan = planned(tmp_path, *(dataclasses.replace(TINY, seed=seed) for seed in range(2)))
    for one in plan:
        run(one.experiment, one.folder, events=False, device="cpu", stop=stop_after(12))
    finished = []

    def late(folders, **execution):
        assert resume(folders[0], events=False).status == "finished"
        finished.append((folders[0] / "summary.json").stat().st_mtime_ns)
        return resume_together(folders, **execution)

    monkeypatch.setattr("kalmanac._sweep.work.resume_together", late)
    assert statuses(do(tuple(plan), how)) == [ELSEWHERE, "finished"]
    assert [(plan[0].folder / "summary.json").stat().st_mtime_ns] == finished


def test_the_lock_of_a_lost_machine_is_taken_over(tmp_path, how):
    (one,) = planned(tmp_path, TINY)
    run(TINY, one.folder, events=False, device="cpu", stop=stop_after(12))
    owner = {"pid": 1, "started": 1, "host": "a machine that is gone"}
    (one.folder / LOCK).write_text(json.dumps(owner))
    assert statuses(do((one,), how)) == [ELSEWHERE]
    assert statuses(do((one,), how, lost=True)) == ["finished"]


def test_several_go_on_together_even_if_one_cannot(tmp_path, how):
    plan = planned(tmp_path, *(dataclasses.replace(TINY, seed=seed) for seed in range(2)))
    for one in plan:
        run(one.experiment, one.folder, events=False, device="cpu", stop=stop_after(12))
    for step in checkpoint_steps(plan[0].folder):
        checkpoint_file(plan[0].folder, step).write_bytes(b"nothing")
    with pytest.raises(ValueError, match="checkpoint"):
        resume(plan[0].folder)
    assert statuses(do(tuple(plan), how)) == ["finished", "finished"]


@pytest.mark.parametrize("text", ["", "[]", '{"status": 7}', '{"step": -1}', "[" * 10**5])
def test_a_summary_that_cannot_be_read_is_one_run_s_failure(tmp_path, how, text):
    sound, odd = plan = planned(tmp_path, TINY, dataclasses.replace(TINY, seed=1))
    run(TINY, sound.folder, events=False, device="cpu")
    run(odd.experiment, odd.folder, events=False, device="cpu", stop=stop_after(12))
    (odd.folder / "summary.json").write_text(text)
    assert [one.done for one in plan] == [True, False]
    good, bad = do(tuple(plan), how)
    assert good.status == "finished"
    assert bad.status == "failed"
    assert "summary.json: " in bad.error
