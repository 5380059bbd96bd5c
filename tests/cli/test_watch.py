"""The verb `watch`: the agents that come with the package, runs, refusals."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from PIL import Image

from kalmanac._cli.evaluate import SEED
from kalmanac._cli.program import main
from kalmanac._files.episode_file import read_episode
from kalmanac._files.run_folder import sign_experiment
from kalmanac._files.run_reader import read_summary
from kalmanac._lab.evaluation import evaluate
from kalmanac._lab.factory import check_environment, evaluation_environment
from kalmanac._lab.play import PRETRAINED, SHIPPED, load_run
from tests.report.episodes import Swing, untrained

pytestmark = pytest.mark.usefixtures("compiled_only")


def call(words):
    return main(["watch", *words.split()])


@pytest.fixture
def run(tmp_path):
    """Leaves an untrained agent as a run folder."""

    def leave(*agent, **settings):
        model, experiment = untrained(*agent, **settings)
        folder = tmp_path / "some-run"
        folder.mkdir()
        model.save(folder / "best.safetensors")
        (folder / "experiment.json").write_text(experiment.to_json())
        sign_experiment(folder, experiment.to_json().encode())
        return folder

    return leave


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_newcomer_watches_before_any_training(tmp_path, capsys):
    assert call("--episodes 1 --mu 0.3 --sigma 0.5 --seed 2") == 0
    output = capsys.readouterr().out.splitlines()
    start = "vssm+kf in best-arm, hidden mean 0.3, noise 0.5, seed 2: after "
    assert output[0].startswith(start)
    stem = "watched/best-arm/best-arm-vssm+kf-seed2"
    assert output[1:] == [
        f"  data       {stem}.npz", f"  still      {stem}.png", f"  animation  {stem}.gif",
    ]  # fmt: skip
    episode = read_episode(tmp_path / f"{stem}.npz")
    assert (episode.about.mu, episode.about.sigma) == (0.3, 0.5)
    assert episode.belief_mean.shape == (1, episode.steps, 128)
    for suffix in (".png", ".gif"):
        with Image.open(tmp_path / (stem + suffix)) as image:
            assert image.width > 500


@pytest.mark.slow
def test_the_latent_space_comes_with_the_adversarial_episode(tmp_path, capsys):
    assert call("--latent --episodes 1 --no-animation --out new/place") == 0
    names = sorted(path.name for path in (tmp_path / "new" / "place").iterdir())
    assert names == [
        "best-arm-vssm+kf-adversarial-seed57.npz", "best-arm-vssm+kf-adversarial-seed57.png",
        "best-arm-vssm+kf-seed0-latent.png", "best-arm-vssm+kf-seed0.npz",
        "best-arm-vssm+kf-seed0.png",
    ]  # fmt: skip
    episode = read_episode(tmp_path / "new" / "place" / names[0])
    assert episode.about.mu < 0 < episode.observation[:2].min()
    assert capsys.readouterr().out.endswith(f"  still      new/place/{names[2]}\n")


@pytest.mark.slow
def test_a_run_in_any_environment_is_watched(run, capsys, tmp_path):
    folder = run("gru", f"{Swing.__module__}:Swing")
    assert call(f"{folder} --episodes 2 --seed 7 --stochastic") == 0
    output = capsys.readouterr().out
    files = re.findall(r"some-run/evaluations/\S+-seed[78]\.(\w+)", output)
    assert files == ["npz", "png", "gif"] * 2
    stem = f"some-run/evaluations/{Swing.__module__}-Swing-gru-seed"
    first, second = (read_episode(f"{stem}{seed}.npz") for seed in (7, 8))
    assert not first.about.deterministic
    assert not np.allclose(first.action, first.action_mean)
    assert first.observation[0, 0] != second.observation[0, 0]

    assert call(f"{folder} --episodes 1 --seed 7 --no-animation") == 0
    left = sorted(path.suffix for path in (tmp_path / "some-run" / "evaluations").glob("*seed7*"))
    assert left == [".npz", ".png"], "the animation was of another episode"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("no-such-run", "folder: got no-such-run, expected one with experiment.json"),
        ("--episodes 0", "episodes: got 0, expected at least 1"),
        ("--seed -1", "seed: got -1, expected at least 0"),
        ("--which last", "expected one with last.safetensors"),
        ("--sigma -1", "sigma: got (-1.0, -1.0), expected 0 ≤ low ≤ high"),
    ],
)
def test_a_call_that_cannot_be_understood_gets_one_line(words, message, capsys, tmp_path):
    assert call(words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("kalmanac watch: ")
    assert said.err.count("\n") == 1
    assert message in said.err
    assert not (tmp_path / "watched").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--latent", "kalmanac train best-arm-demo --encoder vssm+kf --encoder-settings d_state=2"),
        ("--mu 1", "mu: got an agent for tests.report.episodes:Swing, expected one for best-arm"),
        ("--adversarial --no-animation", "adversarial: got tests.report.episodes:Swing"),
    ],
)
def test_what_an_agent_cannot_show_is_said_in_one_line(words, message, run, capsys):
    assert call(f"{run('gru', f'{Swing.__module__}:Swing')} --episodes 1 {words}") == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert message in said


def test_a_folder_that_cannot_be_made_and_a_missing_library_get_one_line(
    tmp_path, capsys, monkeypatch
):
    (tmp_path / "file").write_text("")
    assert call("--episodes 1 --out file") == 1
    message = f"kalmanac watch: out: got {tmp_path / 'file'}: File exists\n"
    assert capsys.readouterr().err == message
    for name in [name for name in sys.modules if name.startswith("kalmanac._report")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert call("--episodes 1") == 2
    assert 'matplotlib is not installed: pip install "kalmanac[report]"' in capsys.readouterr().err


def test_drawing_needs_no_torch():
    code = (
        "import sys, kalmanac._report.episodes, kalmanac._report.episodes, kalmanac._cli.runs;"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("folder", SHIPPED.values(), ids=lambda path: path.name)
def test_what_is_said_of_a_shipped_agent_is_true(folder):
    said = read_summary(folder)["new"]["in"]
    model, experiment = load_run(folder, "best")
    assert (experiment.label == "shortened") is (folder.name == "best-arm-two-channels")
    assert sum(file.stat().st_size for file in folder.iterdir()) < 100_000
    env = evaluation_environment(experiment, "in", 200)
    scale = check_environment(experiment).normalizer
    metrics = evaluate(model, env, 200, seed=SEED, return_scale=scale)
    env.close()
    error = said["std_reward"] / scale / 200**0.5
    assert metrics["normalized"] == pytest.approx(said["normalized"], abs=4 * error)
    page = (PRETRAINED / "README.md").read_text()
    row = next(line for line in page.splitlines() if line.startswith(f"| `{folder.name}` "))
    assert f" {said['normalized']:.2f} " in row
    assert f" {said['win_rate']:.2f} " in row
    assert f"{json.loads((folder / 'summary.json').read_text())['best']['step']:,}" in row
