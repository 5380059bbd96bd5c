"""The page: whole in one file, and at work in the system's own browser."""

import json
import re

import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("plotly")

from kalmanac._files.run_folder import RunFolder
from kalmanac._files.run_reader import EXPERIMENT, METRICS
from kalmanac._lab.experiment import Experiment
from kalmanac._report.build import make_report
from kalmanac._report.page import BEST_SO_FAR, page_data
from kalmanac._report.published import MAMBA
from kalmanac._report.scores import curve
from tests.report.browser import Browser, find_browser
from tests.report.synthetic import write_best_arm, write_popgym, write_run

needs_browser = pytest.mark.skipif(
    find_browser() is None, reason="no Chromium here (Debian, Ubuntu: apt install chromium)"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    write_popgym(folder, tasks=["RepeatFirstEasy"], agents=["vssm+kf", "gru"], seeds=range(2))
    changes = {"label": "shortened", "evaluations": ("in",)}
    (run,) = write_best_arm(folder, agents=["oracle"], costs=[0.02], seeds=[0], changes=changes)
    (run / METRICS).write_bytes((run / METRICS).read_bytes()[:-9])
    (folder / "<b>notes & more.txt").touch()
    make_report(folder, folder / "report")
    return folder


@pytest.fixture(scope="module")
def html(folder):
    return (folder / "report" / "index.html").read_text()


@pytest.fixture(scope="module")
def browser(folder, tmp_path_factory):
    with_window = Browser(find_browser(), tmp_path_factory.mktemp("profile"))
    with_window.open(folder / "report" / "index.html")
    yield with_window
    with_window.close()


def test_nothing_is_asked_of_the_network(html):
    ours = re.sub(r"<script>.*?</script>", "", html, flags=re.S)
    assert re.findall(r'(?:src|href)="(?!data:|#|figures/|tables/)([^"]*)"', ours) == []
    assert "@import" not in ours


def test_the_page_says_what_the_scores_do_not_support(html):
    assert MAMBA.replace("'", "&#x27;") in html


def test_what_is_amiss_and_what_is_missing_stand_on_the_page(html):
    assert "metrics.jsonl ends in the middle of a line" in html
    assert "&lt;b&gt;notes &amp; more.txt: not part of a run" in html
    assert "needs suite popgym-ablation" in html
    assert "needs suite dmc" not in html  # no runs of these tasks
    assert "shortened: such runs are not the paper" in html


def test_the_page_holds_every_figure(html, folder):
    pictures = list((folder / "report" / "figures").glob("*.png"))
    assert html.count('src="data:image/png;base64,') == len(pictures) > 3


def test_the_data_are_those_of_the_runs(all_groups):
    data = json.loads(json.dumps(page_data(all_groups), allow_nan=False))
    assert len(data["runs"]) == sum(len(group.runs) for group in all_groups)
    group = next(g for g in all_groups if g.agent == "gru")
    row = next(g for g in data["groups"] if (g["task"], g["agent"]) == (group.task_title, "GRU"))
    values = curve(group).values
    assert row["curves"]["evaluations"]["return"]["mean"] == pytest.approx(
        values.mean(0).tolist(), rel=1e-4
    )
    error = (values.std(0, ddof=1) / len(values) ** 0.5).tolist()
    assert row["curves"]["evaluations"]["return"]["error"] == pytest.approx(error, rel=2e-4)
    top = curve(group, best_so_far=True).values
    assert row["curves"]["evaluations"][BEST_SO_FAR]["seeds"][0] == pytest.approx(
        top[0].tolist(), rel=1e-4
    )
    assert data["runs"][row["runs"][0]]["experiment"] == group.runs[0].experiment
    assert data["agents"]["vSSM+KF (shortened)"] == data["agents"]["vSSM+KF"]


@pytest.fixture(scope="module")
def odd_folder(tmp_path_factory):
    """Runs whose words a page, a figure, a spreadsheet or a file's name might obey."""
    folder = tmp_path_factory.mktemp("odd")
    words = ["<!--<script>", "</script><b>", r"$\frac{$", "../../out", "=1+1", "a|b", "x" * 10**6]
    for i, word in enumerate(words):
        what = Experiment(env="CartPole-v1", label=word, eval_every=250_000)
        run = write_run(folder / str(i), what, height=0.5)
        data = json.loads((run / EXPERIMENT).read_text())
        inside = {"limit": float("inf"), "seed": 2**60, "parts": {"a": [1, {"b": "\ud800"}]}}
        (run / EXPERIMENT).write_text(json.dumps(data | {"env_settings": inside}))
    make_report(folder, folder / "report")
    return folder


def test_odd_words_stay_words(odd_folder):
    html = (odd_folder / "report" / "index.html").read_text()
    (data,) = re.findall(r'id="data">(.*?)</script>', html, re.S)
    assert "<" not in data
    assert len(json.loads(data, parse_constant=pytest.fail)["runs"]) == 7
    assert html.count('src="data:image/png;base64,') == 7
    assert len(html) < 6_500_000
    assert len(list((odd_folder / "report" / "figures").iterdir())) == 14
    assert {file.name for file in odd_folder.parent.glob("out*")} == set()


@needs_browser
def test_odd_words_do_not_stop_the_script(odd_folder, tmp_path):
    browser = Browser(find_browser(), tmp_path)
    try:
        browser.open(odd_folder / "report" / "index.html")
        assert browser.complaints() == []
        assert browser.value("document.querySelectorAll('.chart').length") == 7
        assert browser.value("document.querySelectorAll('#run-table tr.run').length") == 7
        assert browser.value("document.documentElement.scrollWidth <= innerWidth")
        titles = "[...document.querySelectorAll('.chart .gtitle')].map((t) => t.textContent)"
        assert any("(<!--<script>)" in title for title in browser.value(titles))
        browser.click("#run-table tr.run")
        settings = browser.value("document.querySelector('.settings').innerText")
        assert '{"limit":"inf","seed":"1152921504606846976"' in settings
    finally:
        browser.close()


@needs_browser
def test_it_loads_alone_and_without_complaints(browser):
    requested = [url for url in browser.requested() if not url.startswith("data:")]
    assert [url.rsplit("/", 1)[1] for url in requested] == ["index.html"]
    assert browser.complaints() == []
    assert browser.value("[...document.images].every((i) => i.naturalWidth > 100)")


@needs_browser
def test_tasks_and_numbers_are_chosen(browser):
    titles = "[...document.querySelectorAll('.chart')].map((c) => c.dataset.task)"
    browser.choose("#family", "best-arm")
    assert browser.value(titles) == ["best-arm, cost 0.02 (shortened)"]
    assert "Oracle (shortened)" in browser.value("document.getElementById('agents').innerText")
    browser.choose("#family", "(all)")
    assert browser.value(f"{titles}.length") == 2
    browser.choose("#task", "RepeatFirstEasy")
    assert browser.value(titles) == ["RepeatFirstEasy"]
    browser.choose("#metric", BEST_SO_FAR)
    axis = "document.querySelector('.chart')._fullLayout.yaxis.title.text"
    assert browser.value(axis) == BEST_SO_FAR


@needs_browser
def test_agents_are_hidden_shown_and_seen_alone(browser):
    names = "[...new Set(document.querySelector('.chart').data.map((d) => d.name).filter(Boolean))]"
    runs = "document.querySelectorAll('#run-table tr.run').length"
    browser.choose("#family", "popgym")
    assert browser.value(names) == ["vSSM+KF", "GRU"]
    assert browser.value(runs) == 4
    browser.click("#agents button[data-agent='GRU']")
    browser.wait(f"{names}.join() === 'vSSM+KF'")
    assert browser.value(runs) == 2
    counts = browser.value("document.getElementById('found').innerText")
    assert counts == "2 of 5 runs; 2 more of hidden agents"
    browser.click("#all-agents")
    browser.wait(f"{names}.length === 2")
    browser.click("#agents button[data-agent='GRU']", times=2)
    browser.wait(f"{names}.join() === 'GRU'")
    browser.click("#all-agents")


@needs_browser
def test_single_seeds_can_be_seen(browser):
    browser.choose("#family", "popgym")
    lines = "document.querySelector('.chart').data.length"
    before = browser.value(lines)
    browser.click("#seeds")
    browser.wait(f"{lines} === {before + 4}")
    browser.click("#seeds")


@needs_browser
def test_a_run_shows_its_configuration_and_provenance(browser):
    browser.choose("#family", "(all)")
    browser.type("#find", "best-arm shortened")
    browser.wait("document.querySelectorAll('#run-table tr.run').length === 1")
    assert browser.value("document.getElementById('found').innerText") == "1 of 5 runs"
    browser.click("#run-table tr.run")
    browser.wait("document.querySelector('.settings')")
    settings = browser.value("document.querySelector('.settings').innerText")
    for words in ("label: shortened", "tau: 0.02", "kalmanac: ", "torch: ", "began: "):
        assert words in settings
    browser.click("#run-table tr.run")
    browser.wait("!document.querySelector('.settings')")


@needs_browser
def test_a_chart_is_cut_to_what_comes_after_steps_that_would_flatten_it(browser):
    def frame(y):
        line = {"x": [10 * i for i in range(len(y))], "y": y}
        return browser.value(f"frame([{json.dumps(line)}]) ?? null")

    assert frame([-100.0, *([1.0, 2.0] * 10)]) == pytest.approx([0.94, 2.06])
    assert frame([0.0, *([1.0, 2.0] * 10)]) is None, "twice the later span is no reason"
    assert frame([-100.0, *([1.0] * 20)]) is None, "a level has no span to be shown by"


@needs_browser
def test_black_lines_are_white_on_a_dark_page(browser):
    asked = "Object.keys(data.agents).map(colorOf)"
    light = browser.value(asked)
    scheme = {"name": "prefers-color-scheme", "value": "dark"}
    browser.call("Emulation.setEmulatedMedia", features=[scheme])
    dark = browser.value(asked)
    browser.call("Emulation.setEmulatedMedia", features=[])
    assert "#000000" in light
    assert dark == ["#ffffff" if color == "#000000" else color for color in light]


@needs_browser
@pytest.mark.parametrize("trained", [True, False])
def test_returns_of_the_training_are_offered_where_there_are_any(
    browser, folder, tmp_path, trained
):
    what = Experiment(env="popgym/RepeatFirstEasy", encoder="gru", eval_every=500_000)
    with RunFolder(tmp_path / "run", what.to_data(), events=False) as run:
        more = {"rollout/ep_rew_mean": 0.5} if trained else {}
        run.log(500_000, {"eval/in/mean_reward": 1.0, **more})
    make_report(tmp_path, tmp_path / "report")
    browser.open(tmp_path / "report" / "index.html")
    offered = (
        "getComputedStyle(document.getElementById('training').parentElement).display !== 'none'"
    )
    said = "!document.getElementById('about-training').hidden"
    assert browser.value(f"[{offered}, {said}]") == [trained, trained]
    browser.open(folder / "report" / "index.html")
