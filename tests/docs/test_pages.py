"""What the pages show is run as it stands there, with fewer steps; what they name exists."""

import dataclasses
import re
from pathlib import Path

import pytest

import kalmanac
from kalmanac.encoders import ENCODERS, KalmanEncoder, encoder_settings
from kalmanac.envs import ENVS
from kalmanac.experiment import Experiment
from kalmanac.sac import RecurrentSAC
from kalmanac.suites import PRESETS

ROOT = Path(__file__).parents[2]
SOURCE = Path(kalmanac.__file__).parent
FEWER = {"6_000": "60", "1_000": "20", "learn(800)": "learn(16)", "episodes=50": "episodes=2"}
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


def test_readme_trains_on_an_own_environment_in_fifteen_lines():
    first, _ = code("README.md", "py")
    assert len([line for line in first.splitlines() if line]) == 15


def test_readme_agent_example_runs(run_in):
    names = run_in(code("README.md", "py"))
    model = names["model"]
    assert isinstance(model, RecurrentSAC)
    assert (model.num_timesteps, model.num_updates) == (60, 40)
    assert names["action"].shape == (1,)
    assert names["belief"].mean.shape == (1, 1, 128)
    assert (names["belief"].variance > 0).all()
    assert isinstance(model.learner.actor.network.encoder, KalmanEncoder)


def test_the_page_on_own_environments_runs(run_in, tmp_path):
    names = run_in(code("docs/how-to-train-on-your-environment.md", "python"))
    assert [step for step, _ in names["watch"].evaluations] == [20, 40, 60]
    assert {"best.safetensors", "guess.safetensors"} <= {file.name for file in tmp_path.iterdir()}
    assert names["model"].num_timesteps == 60 + 16  # the loaded one has seen what was saved
    assert names["env"].left == 20  # the last block began a new episode
    assert names["belief"].variance.shape == (1, 1, 128)


def test_the_page_on_watching_runs(run_in, tmp_path):
    pytest.importorskip("matplotlib")
    names = run_in(code("docs/how-to-watch-an-agent.md", "python"))
    assert names["episode"].about.seed == 101
    assert len(list((tmp_path / "episodes").glob("*.png"))) == 2


@pytest.mark.parametrize(
    "page", sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md"))
)
def test_links_of_the_pages_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text())
    assert [link for link in links if not (ROOT / page).parent.joinpath(link).exists()] == []


def choices():
    """(what, value, setting, where) of every row."""
    text = (ROOT / "docs" / "choices.md").read_text().replace(r"\|", "/")
    rows = re.findall(r"^\| (.*?) \| (.*?) \| (.*?) \| (.*?) \|$", text, re.M)
    return [row for row in rows if row[0] != "what"]


def test_every_choice_names_settings_and_files_that_exist():
    known = {field.name for field in dataclasses.fields(Experiment)} | ARGUMENTS
    known |= {*(ENVS["best-arm"].settings or {})}
    known |= {setting for name in ENCODERS for setting in encoder_settings(name)}
    rows = choices()
    assert len(rows) > 40
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
    assert told["start of a learnt temperature"] == f"α = {experiment.initial_ent_coef:g}"
    assert told["heads' initial weights"].startswith(f"orthogonal, gain {experiment.head_gain:g}")
    paper = PRESETS["best-arm"].experiment("vssm+kf")
    assert told["parallel environments"].startswith(
        f"{paper.num_envs} in Best Arm, {experiment.num_envs} elsewhere"
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
