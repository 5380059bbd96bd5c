"""What the pages show is run as it stands there, with fewer steps; what they name exists."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

import kalmanac
from kalmanac._encoders.kalman_encoder import KalmanEncoder
from kalmanac._encoders.registry import ENCODERS, encoder_settings
from kalmanac._envs.checkpointable import environment_state, restore_environment
from kalmanac._envs.registry import ENVS
from kalmanac._lab.experiment import Experiment
from kalmanac._sac.recurrent_sac import RecurrentSAC
from kalmanac._suites.registry import PRESETS

ROOT = Path(__file__).parents[2]
README = "README.md"
SOURCE = Path(kalmanac.__file__).parent
FEWER = {
    "6_000": "60", "2_000": "60", "3_000": "60", "1_000": "20", "learn(800)": "learn(16)",
    "episodes=50": "episodes=2", "(), 20)": "(), 2)", "(), 100)": "(), 2)",
}  # fmt: skip
ARGUMENTS = {"observed", "deterministic", "thresholds", "context"}  # of calls, not of experiments


def code(page, language):
    text = (ROOT / page).read_text()
    blocks = re.findall(rf"```{language}\n(.*?)```", text, re.S)
    for many, few in FEWER.items():
        blocks = [block.replace(many, few) for block in blocks]
    return blocks


@pytest.fixture
def run_in(tmp_path, monkeypatch):
    def run(blocks):
        monkeypatch.chdir(tmp_path)
        names: dict = {}
        for block in blocks:
            exec(compile(block, "page", "exec"), names)
        return names

    return run


def test_examples_come_in_by_the_front_door():
    """Pages on adding to the package may show its inside."""
    pages = [README, *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
    for page in (page for page in pages if "how-to-add" not in page):
        shown = "\n".join(code(page, "py") + code(page, "python"))
        assert re.findall(r"^(?:from|import) kalmanac\.\w+", shown, re.M) == [], page


@pytest.mark.slow
def test_readme_examples_run(run_in):
    library, own, layer = code(README, "py")
    names = run_in([library])
    assert isinstance(names["model"], RecurrentSAC)
    assert isinstance(names["model"].learner.actor.network.encoder, KalmanEncoder)
    assert (names["model"].num_timesteps, names["model"].num_updates) == (60, 40)
    assert names["action"].shape == (1,)
    assert names["belief"].mean.shape == (1, 1, 128)
    assert (names["belief"].variance > 0).all()
    assert run_in([own])["model"].num_timesteps == 60
    assert run_in([layer])["z"].shape == (8, 100, 16)


def test_the_page_on_own_environments_runs(run_in, tmp_path):
    names = run_in(code("docs/how-to-train-on-your-environment.md", "python"))
    assert [step for step, _ in names["watch"].evaluations] == [20, 40, 60]
    assert (tmp_path / "best" / "best_model.safetensors").is_file()
    assert (tmp_path / "guess.safetensors").is_file()
    assert names["model"].num_timesteps == 60 + 16  # the loaded one has seen what was saved
    assert (names["again"].num_timesteps, names["again"].replay.steps) == (76 + 16, 76 + 16)
    assert names["again"].num_updates == names["model"].num_updates + 8, "at once, one for two"
    assert names["belief"].variance.shape == (1, 1, 128)
    assert names["info"]["observed"] in (True, False)
    assert names["info"]["privileged"].shape == (1,)
    assert np.array_equal(*names["same"])


def test_the_page_on_data_runs(run_in):
    names = run_in(code("docs/how-to-learn-from-data.md", "python"))
    assert names["added"][:2] == (20, 400)
    assert (names["model"].num_timesteps, names["model"].num_updates) == (40, 20 + 40)
    assert names["model"].replay.steps == 440


def test_the_page_on_watching_runs(run_in, tmp_path):
    pytest.importorskip("matplotlib")
    names = run_in(code("docs/how-to-watch-an-agent.md", "python"))
    assert names["episode"].about.seed == 101
    assert len(list((tmp_path / "episodes").glob("*.png"))) == 2


def test_the_page_on_deploying_runs(run_in):
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    names = run_in(code("docs/how-to-deploy.md", "python"))
    assert names["action"].shape == (1, 1)
    assert names["variance"].shape == (1, 1, 128)
    assert (names["variance"] > 0).all()
    assert names["outputs"]["actions"].shape == (1, 1)
    assert '"digest"' in names["told"]["metadata.json"]


def test_the_environment_of_the_page_on_checkpoints_goes_on_exactly(run_in):
    names = run_in(code("docs/runs-that-are-never-lost.md", "python"))
    env, other = (names["Guess"]() for _ in range(2))
    env.reset(seed=0)
    env.step([0.1])
    restore_environment(other, environment_state(env))
    for _ in range(19):
        (seen, reward, *_), (seen_too, reward_too, *_) = env.step([0.2]), other.step([0.2])
        assert (seen, reward) == (seen_too, reward_too)
    assert env.left == other.left == 0


@pytest.mark.parametrize(
    "page", sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md"))
)
def test_links_of_the_pages_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text())
    assert [link for link in links if not (ROOT / page).parent.joinpath(link).is_file()] == []


def named_files(text):
    """What a page names in the package: `_sac/loop.py`, `_envs/`, but nothing that is yet to be."""
    found = re.findall(r"`((?:\w+/)*(?:\w+\.py)?)`", text)
    return {x for x in found if x and "NAME" not in x and not x.startswith(("src/", "tests/"))}


@pytest.mark.parametrize("page", ["architecture", "where-do-i-change"])
def test_files_of_the_pages_on_the_inside_exist(page):
    names = named_files((ROOT / "docs" / f"{page}.md").read_text())
    assert names
    assert [name for name in sorted(names) if not (SOURCE / name).exists()] == []


def test_the_page_on_changes_counts_its_files():
    """They stand before the colon of each step; a step that names none is one file, too."""
    text = (ROOT / "docs" / "where-do-i-change.md").read_text()
    counted = {}
    for section in text.split("\n## ")[1:]:
        steps = re.findall(r"^\d\. (.*?)(?::|\.$)", section, re.M)
        counted[section.partition("\n")[0].lower()] = sum(
            max(1, step.count("`") // 2) for step in steps
        )
    told = re.findall(r"^\| \[(.*?)\]\(.*?\) \| .*?(\d+)[^\d|]* \|", text, re.M)
    assert {what.lower(): int(count) for what, count in told} == counted


def test_the_map_has_every_file_once():
    text = (ROOT / "docs" / "architecture.md").read_text()
    _, _, shown = text.partition("## Every file")
    names = re.findall(r"^\| `([\w/]+\.py)` \|", shown, re.M)
    files = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py")}
    assert len(names) == len(set(names))
    assert files - set(names) - {name for name in files if name.endswith("/__init__.py")} == set()
    assert set(names) <= files


def choices():
    """(what, value, setting, where) of every row."""
    text = (ROOT / "docs" / "choices.md").read_text().replace(r"\|", "/")
    rows = re.findall(r"^\| (.*?) \| (.*?) \| (.*?) \| (.*?) \|$", text, re.M)
    return [row for row in rows if row[0] != "what"]


def test_every_choice_names_settings_and_files_that_exist():
    known = {field.name for field in dataclasses.fields(Experiment)} | ARGUMENTS
    known |= {setting for spec in ENVS.values() for setting in spec.settings or {}}
    known |= {setting for name in ENCODERS for setting in encoder_settings(name)}
    rows = choices()
    assert rows
    for what, _, setting, where in rows:
        names = re.findall(r"`(\w+)`", setting)
        assert names or setting == "–", what
        assert set(names) <= known, what
        files = [name for name in re.findall(r"`([\w/.]+)`", where) if name != "context"]
        assert files, what
        assert [name for name in files if not (SOURCE / name).exists()] == [], what


def test_choices_give_the_values_that_hold():
    """Rows whose value is one number or word say what the defaults are."""
    experiment, told = Experiment(), {row[0]: row[1] for row in choices()}
    assert encoder_settings("vssm+kf")["r_min"] == 1e-3
    assert told["floor of the reading noise's variance"].endswith("1e-3")
    assert encoder_settings("vssm+kf")["q_min"] == 1e-4
    assert told["floor of the process noise's variance"].endswith("1e-4")
    assert told["how often"] == f"every {experiment.eval_every:,} steps"
    assert told["warm-up"].startswith(f"{experiment.learning_starts:,} ")
    assert told["how windows are drawn"].startswith(f"`{experiment.drawing}`")
    start = f"α = {experiment.initial_ent_coef:g};"
    assert told["start of a learned temperature"].startswith(start)
    assert told["heads' initial weights"].startswith(f"orthogonal, gain {experiment.head_gain:g}")
    assert told["parallel environments"].startswith(
        f"{experiment.num_envs}; the update-to-data ratio"
    )


def test_the_shortened_task_is_described_as_it_is():
    short = PRESETS["best-arm-demo"].experiment("vssm+kf")
    text = " ".join((ROOT / "docs" / "choices.md").read_text().split())
    _, _, told = text.partition("**The shortened Best Arm**")
    settings = short.env_settings
    assert f"{settings['horizon']} steps instead of 1000, cost {settings['cost']}," in told
    assert f"Polyak {short.tau} instead" in told
    assert f"batches of {short.batch_size} × {short.context_length} instead" in told
    assert f"{short.total_steps:,} steps instead of 500,000" in told
