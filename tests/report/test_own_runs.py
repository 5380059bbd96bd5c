"""A report of one's own runs: nothing of the paper, everything of the runs."""

import json

import numpy as np
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("plotly")

from PIL import Image
from scipy import stats

from kalmanac._cli import report as verb
from kalmanac._cli.program import main
from kalmanac._files.run_folder import RunFolder
from kalmanac._lab.experiment import Experiment
from kalmanac._report.build import make_report
from kalmanac._report.groups import make_groups
from kalmanac._report.page import page_data
from kalmanac._report.runs import MOST_ROWS, read_runs
from kalmanac._report.scores import POINTS, training_curve
from kalmanac._report.statistics import mean_interval
from kalmanac._report.tables import settings_table
from tests.report.browser import Browser
from tests.report.test_page import find_browser, needs_browser

TOTAL = 1000


def leave_run(folder, *, rows=5, evaluated=True, status="finished", height=0.0, **settings):
    """A run with rows of its training and, at its end, one evaluation."""
    what = Experiment(env="CartPole-v1", total_steps=TOTAL, eval_every=TOTAL).changed(settings)
    step = TOTAL
    with RunFolder(folder, what.to_data(), events=False) as run:
        for row in range(1, rows + 1):
            step = row * TOTAL // rows
            row = {"rollout/ep_rew_mean": height + step / 10, "rollout/episodes": 3}
            loss = {"train/critic_loss": 1 / step, "train/updates": step}
            run.log(step, row | loss)
        if evaluated:
            run.log(
                TOTAL, {"eval/in/mean_reward": height + 200.0, "eval/in/normalized": height + 200.0}
            )
        run.summarize(status=status, step=step)
    return folder


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    for seed in range(3):
        run = leave_run(folder / f"a{seed}", seed=seed, height=float(seed))
    leave_run(folder / "b", encoder="gru", learning_rate=0.01, height=-20.0)
    leave_run(folder / "c", encoder="lstm", evaluated=False, rows=2, status="running")
    (run / "evaluations").mkdir()
    Image.new("RGB", (300, 200), "red").save(run / "evaluations" / "episode.png")
    Image.new("RGB", (300, 200), "red").save(run / "evaluations" / "episode.gif")
    (run / "evaluations" / "broken.png").write_text("mine")
    return folder


@pytest.fixture(scope="module")
def groups(own):
    return make_groups(read_runs(own).runs, [])


def test_nothing_of_the_paper_stands_there(own, tmp_path, capsys):
    assert main(["report", str(own), "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert "not drawn" not in said
    assert "c: no evaluation yet (running, step 1,000 of 1,000); its training is shown" in said
    assert "a2: broken is no picture" in said.replace(".png", "")
    html = (tmp_path / "out" / "index.html").read_text()
    for words in ("The paper's figures", "POPGym", "Not drawn", "Best Arm: "):
        assert words not in html
    assert sorted(file.name for file in (tmp_path / "out" / "tables").glob("*.csv")) == [
        "scores.csv", "settings.csv",
    ]  # fmt: skip
    assert html.count("data:image/gif;base64,") == 1
    assert "<summary>a2</summary>" in html


def test_training_losses_and_a_run_without_an_evaluation_are_on_the_page(groups):
    data = json.loads(json.dumps(page_data(groups), allow_nan=False))
    assert list(data["metrics"]["training"]) == ["training return"]
    assert list(data["metrics"]["losses and diagnostics"]) == ["train/critic_loss"]
    rows = {row["agent"]: row for row in data["groups"]}
    explored = rows["vSSM+KF"]["curves"]["training"]["training return"]
    assert explored["x"] == [200, 400, 600, 800, 1000]
    assert explored["mean"] == [21, 41, 61, 81, 101]
    assert len(rows["vSSM+KF"]["curves"]["evaluations"]["return"]["mean"]) == 1
    assert rows["lstm"]["last"] is None
    assert rows["lstm"]["curves"]["training"]["training return"]["mean"] == [50, 100]


def test_agents_are_compared_with_students_interval(groups):
    (group,) = (g for g in groups if g.agent == "vssm+kf")
    row = page_data([group])["groups"][0]["last"]
    low, high = stats.t.interval(0.95, 2, 201, stats.sem([200, 201, 202]))
    assert (row["mean"], row["low"], row["high"]) == pytest.approx((201, low, high), rel=1e-4)
    assert np.isnan(mean_interval([1.0])[1:]).all()


def test_settings_that_differ_stand_in_one_table(groups):
    table = settings_table(groups)
    assert table.head == ("task", "agent", "seeds", "learning_rate", "last return")
    assert [row[1:4] for row in table.rows] == [
        ("vSSM+KF", "0, 1, 2", "0.0003"), ("GRU", "0", "0.01"), ("lstm", "0", "0.0003"),
    ]  # fmt: skip
    assert settings_table(groups[:1]) is None


def test_long_trainings_are_thinned_out(tmp_path):
    leave_run(tmp_path, rows=TOTAL)
    (run,) = read_runs(tmp_path).runs
    assert MOST_ROWS / 2 <= len(run.training_steps) <= MOST_ROWS + 1
    (group,) = make_groups([run], [])
    curve = training_curve(group, "rollout/ep_rew_mean")
    assert len(curve.steps) <= POINTS + 1
    np.testing.assert_allclose(curve.values[0], curve.steps / 10, atol=TOTAL / POINTS / 10)


def test_following_ends_with_the_last_run(tmp_path, monkeypatch, capsys):
    with RunFolder(tmp_path / "a", Experiment(env="CartPole-v1").to_data(), events=False) as run:
        run.log(100, {"rollout/ep_rew_mean": 1.0})
        run.log_time(100, {"time/fps": 1.0})
        run.summarize(status="running", step=100)
        pauses = []

        def pause(seconds):
            pauses.append((tmp_path / "report" / "index.html").read_text())
            run.log(200, {"rollout/ep_rew_mean": 7.25})
            run.summarize(status="finished", step=200)

        monkeypatch.setattr(verb.time, "sleep", pause)
        assert main(["report", str(tmp_path), "--follow"]) == 0
    (before,) = pauses
    assert "7.25" not in before.rpartition('id="data"')[2]
    assert "7.25" in (tmp_path / "report" / "index.html").read_text().rpartition('id="data"')[2]
    assert capsys.readouterr().out.count("index.html") == 1


@pytest.mark.slow
@needs_browser
def test_what_was_chosen_is_chosen_after_a_reload_in_the_dark_too(own, tmp_path):
    make_report(own, tmp_path / "out")
    browser = Browser(find_browser(), tmp_path / "profile")
    ink = "document.querySelector('.chart')._fullLayout.font.color"
    try:
        browser.open(tmp_path / "out" / "index.html")
        assert browser.value("document.querySelectorAll('.comparison').length") == 1
        light = browser.value(ink)
        browser.choose("#metric", "train/critic_loss")
        dark = [{"name": "prefers-color-scheme", "value": "dark"}]
        browser.call("Emulation.setEmulatedMedia", features=dark)
        browser.open(tmp_path / "out" / "index.html")
        assert browser.value("document.getElementById('metric').value") == "train/critic_loss"
        assert browser.value(ink) != light
        browser.call("Emulation.setDeviceMetricsOverride", width=400, height=800,
                     deviceScaleFactor=1, mobile=True)  # fmt: skip
        browser.open(tmp_path / "out" / "index.html")
        assert browser.value("document.documentElement.scrollWidth <= 400")
        assert browser.complaints() == []
    finally:
        browser.close()
