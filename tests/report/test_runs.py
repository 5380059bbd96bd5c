"""What is amiss in a folder is named in one line, and the reading goes on."""

import json
import re

import numpy as np
import pytest

from kalmanac._files.run_folder import RunFolder
from kalmanac._files.run_reader import EXPERIMENT, METRICS, PROVENANCE
from kalmanac._files.run_status import read_status
from kalmanac._lab.experiment import Experiment
from kalmanac._report.runs import read_runs
from kalmanac._settings import EARLIER
from kalmanac._suites import best_arm
from tests.report.synthetic import write_best_arm, write_run


@pytest.fixture
def runs(tmp_path):
    return write_best_arm(tmp_path, agents=["vssm+kf", "oracle"], costs=[0.0], seeds=[0])


def test_a_sound_folder_has_no_notices(tmp_path, runs):
    kept, notices = read_runs(tmp_path)
    assert notices == []
    assert sorted(run.folder for run in kept) == sorted(runs)
    run = kept[0]
    assert run.finished
    assert run.seed == 0
    assert run.steps.tolist() == list(range(50_000, 500_001, 50_000))
    assert run.values["in/mean_reward"].shape == run.values["out/length"].shape == (10,)


def test_a_run_itself_is_a_folder_of_one_run(runs):
    (run,), _ = read_runs(runs[0])
    assert run.name == "."


def test_a_truncated_metrics_file_is_named_and_read(tmp_path, runs):
    file = runs[0] / METRICS
    file.write_bytes(file.read_bytes()[:-40])
    kept, notices = read_runs(tmp_path)
    assert len(kept) == 2
    assert _one(notices, f"{re.escape(runs[0].name)}: metrics.jsonl ends in the middle of a line")
    assert {run.steps.size for run in kept} == {9, 10}


def test_a_broken_line_leaves_the_run_out(tmp_path, runs):
    file = runs[0] / METRICS
    file.write_text(file.read_text().replace('"eval/in/length": ', '"eval/in/length" ', 1))
    kept, notices = read_runs(tmp_path)
    assert len(kept) == 1
    assert _one(notices, r"left out: metrics.jsonl: got .* in line 1, expected a JSON object")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("mine", "got no JSON"),
        ("[1]", "got a list, expected an experiment"),
        ('{"name": "another program"}', "got env None, expected a str: not an experiment"),
    ],
)
def test_a_foreign_experiment_is_named(tmp_path, runs, text, reason):
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / EXPERIMENT).write_text(text)
    kept, notices = read_runs(tmp_path)
    assert len(kept) == 2
    assert _one(notices, f"foreign: left out: {EXPERIMENT}: {re.escape(reason)}")


def test_foreign_files_are_named_in_one_line(tmp_path, runs):
    for i in range(7):
        (tmp_path / f"notes{i}.txt").touch()
    assert _one(read_runs(tmp_path)[1], "notes0.txt, .*notes4.txt and 2 more: not part of a run")


def test_a_run_without_evaluations_is_named_and_left_out(tmp_path, runs):
    what = best_arm.paper("gru").to_data()
    with RunFolder(tmp_path / "new", what, events=False) as folder:
        folder.log(1000, {"train/updates": 1})
    kept, notices = read_runs(tmp_path)
    assert len(kept) == 2
    assert _one(notices, r"new: no evaluation yet \(running, step 0 of 500,000\), left out")


def test_an_unfinished_run_is_named_and_kept(tmp_path):
    write_best_arm(tmp_path, agents=["gru"], costs=[0.0], seeds=[0], until=0.5)
    kept, notices = read_runs(tmp_path)
    assert len(kept) == 1
    assert _one(notices, r"not finished \(interrupted, step 250,000 of 500,000\)")


def test_two_versions_are_named(tmp_path, runs):
    file = runs[0] / PROVENANCE
    file.write_text(json.dumps(json.loads(file.read_text()) | {"kalmanac": "0.0.7"}))
    kept, notices = read_runs(tmp_path)
    assert {run.version for run in kept} > {"0.0.7"}
    assert _one(notices, r"runs of 2 versions of kalmanac .* 0\.0\.7 \(1 runs\)")


def forget(run, name):
    """As if a version had written it that did not know the setting."""
    data = json.loads((run / EXPERIMENT).read_text())
    data.pop(name, None)  # some are not said while nothing is changed
    (run / EXPERIMENT).write_text(json.dumps(data))


def test_what_older_runs_did_is_known_where_the_setting_came_later(tmp_path, runs):
    for name in EARLIER:
        forget(runs[0], name)
    kept, notices = read_runs(tmp_path)
    objectives = [run.experiment["actor_objective"] for run in kept]
    assert sorted(objectives) == ["auto", "value"]  # of a run from now, and of the one from before
    assert {run.experiment["noise"] for run in kept} == {0.0}
    assert notices == []


@pytest.mark.parametrize("name", [METRICS, "summary.json", EXPERIMENT])
def test_a_link_out_of_a_run_s_folder_is_not_followed(tmp_path, runs, name):
    elsewhere = tmp_path.parent / f"{tmp_path.name}-elsewhere"
    (runs[0] / name).rename(elsewhere)
    (runs[0] / name).symlink_to(elsewhere)
    kept, notices = read_runs(tmp_path)
    assert [run.folder for run in kept] == [runs[1]]
    assert _one(notices, rf"{re.escape(runs[0].name)}.*{name}, which is a link")
    with pytest.raises(ValueError, match="which is a link"):
        read_status(runs[0], now=0.0)


def test_a_setting_that_stays_unsaid_is_named(tmp_path, runs):
    forget(runs[0], "tau")
    assert _one(read_runs(tmp_path)[1], r"best-arm: 1 of 2 runs do not say tau .* kept apart")


def test_settings_that_came_later_default_to_what_was_done_before_or_to_what_is_better():
    better = {"actor_objective": "auto", "average_policy": True, "bootstrap_truncated": "auto"}
    for name, value in EARLIER.items():
        found = json.loads(json.dumps(getattr(Experiment(), name)))
        assert found == better.get(name, value)


def test_of_two_copies_the_one_that_came_further_counts(tmp_path):
    what = best_arm.paper("gru").changed({"eval_every": 50_000})
    write_run(tmp_path / "short", what, until=0.5)
    write_run(tmp_path / "whole", what)
    (run,), notices = read_runs(tmp_path)
    assert run.name == "whole"
    assert _one(notices[1:], "short: the same experiment and seed as whole, left out")


def test_numbers_that_are_missing_or_not_finite_are_nan(tmp_path):
    with RunFolder(tmp_path / "run", best_arm.paper("gru").to_data(), events=False) as folder:
        folder.log(10_000, {"eval/in/mean_reward": float("inf")})
        folder.log(20_000, {"eval/in/mean_reward": 2.0, "eval/in/length": 3.0})
    (run,), _ = read_runs(tmp_path)
    np.testing.assert_equal(run.values["in/mean_reward"], [np.nan, 2.0])
    np.testing.assert_equal(run.values["in/length"], [np.nan, 3.0])


def test_the_reports_own_folder_is_not_looked_into(tmp_path, runs):
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "index.html").touch()
    assert read_runs(tmp_path, leave_out=tmp_path / "report").notices == []


def test_no_folder_is_said_so(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"folder: got .*nowhere, expected a folder"):
        read_runs(tmp_path / "nowhere")


def _one(notices, pattern):
    """Whether there is exactly one notice, and that says it."""
    return len(notices) == 1 and re.search(pattern, notices[0]) is not None
