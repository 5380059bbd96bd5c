"""The verbs `train` and `eval`, from words to exit status."""

import json
import re
import shutil
from functools import partial

import gymnasium
import pytest

from kalmanac._cli import train as verb
from kalmanac._cli.program import main
from kalmanac._cli.verb import read_call
from kalmanac._files.run_reader import read_experiment, read_metrics, read_summary
from kalmanac._lab.experiment import Experiment
from kalmanac._lab.resources import estimate
from kalmanac._lab.run import run
from kalmanac._messages import expect_known
from kalmanac._sac.recurrent_sac import RecurrentSAC
from kalmanac._suites.registry import default_folder

BAD_DEVICES = {
    "gpu": "device: got 'gpu', expected auto, cpu or cuda",
    "meta": "device: got 'meta', expected auto, cpu or cuda",
    "cuda:99": "device: got 'cuda:99', expected one that is there",
}
SHORT = (
    "--encoder memoryless --steps 64 --num-envs 4 --eval-every 32 --eval-episodes 4 "
    "--learning-starts 32 --log-every 16 --batch-size 4 --context-length 4 "
    "--env-settings horizon=5 --device cpu"
)


def needy():
    raise gymnasium.error.DependencyNotInstalled("pip install\nwhat is missing")


def broken():
    raise RuntimeError("no motor\nand no sensor")


def call(words):
    return main(words.split())


def experiment_from(*words):
    return verb.experiment_from(read_call("train", verb.VERB, words))


@pytest.fixture(autouse=True)
def brief_estimates(monkeypatch):
    monkeypatch.setattr(verb, "estimate", partial(estimate, seconds=0.01))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "x"
    assert call(f"train best-arm {SHORT} --no-progress --no-tensorboard --folder {folder}") == 0
    return folder


def test_the_file_of_an_older_run_asks_for_what_it_did(trained, tmp_path):
    settings = read_experiment(trained)
    del settings["average_policy"], settings["actor_objective"]
    for name in ("run/experiment.json", "settings.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(json.dumps(settings))
    older = experiment_from("--config", str(tmp_path / "run" / "experiment.json"))
    assert (older.average_policy, older.actor_objective) == (False, "value")
    mine = experiment_from("--config", str(tmp_path / "settings.json"))
    assert (mine.average_policy, mine.actor_objective) == (True, "auto")


def test_a_transformer_of_an_older_run_has_no_dropout_again(trained, tmp_path):
    settings = read_experiment(trained) | {"encoder": "transformer", "encoder_settings": {}}
    (tmp_path / "experiment.json").write_text(json.dumps(settings))
    (tmp_path / "metrics.jsonl").touch()
    older = experiment_from("--config", str(tmp_path / "experiment.json"))
    assert older.encoder_settings["dropout"] == 0.0
    assert (
        experiment_from("best-arm", "--encoder", "transformer").encoder_settings["dropout"] == 0.1
    )


def test_training_leaves_a_run_that_can_be_read(trained):
    experiment = Experiment.from_data(read_experiment(trained))
    assert (experiment.agent, experiment.total_steps) == ("memoryless", 64)
    assert experiment.env_settings == {"cost": 0.0, "horizon": 5}
    assert experiment.actor_hidden == (128,)  # the preset's
    assert [row["step"] for row in read_metrics(trained)] == [16, 32, 48, 64]


def test_several_seeds_lie_side_by_side(trained, tmp_path, capsys):
    words = f"train best-arm {SHORT} --no-progress --no-tensorboard"
    assert call(f"{words} --seeds 2 --folder {tmp_path / 'both'}") == 0
    out = capsys.readouterr().out
    assert out.startswith("best-arm with memoryless, seed 0 to 1: 64 steps")
    assert out.count("finished: ") == 2
    for seed in (0, 1):
        assert read_experiment(tmp_path / "both" / f"seed{seed}")["seed"] == seed
    kept = (tmp_path / "both" / "seed0" / "metrics.jsonl").read_bytes()
    assert kept == (trained / "metrics.jsonl").read_bytes()
    assert call(f"{words} --seeds 0") == 2
    assert "seeds: got 0, expected at least 1" in capsys.readouterr().err


def test_training_says_what_it_will_take_and_how_it_ended(tmp_path, capsys):
    words = f"train best-arm-demo {SHORT} --folder {tmp_path / 'a'}"
    assert call(words) == 0
    first, takes, *lines, best, last, end = capsys.readouterr().out.splitlines()
    assert first == "best-arm with memoryless, seed 0, shortened: 64 steps"
    assert re.fullmatch(r"about \d+ s, \d\.\d GB", takes)
    assert [line.split(":")[0] for line in lines] == ["step 32", "step 64"]
    assert best.startswith("best, step ")
    assert last.startswith("last, step 64: in ")
    assert end == f"finished (shortened): {tmp_path / 'a'}"
    assert list((tmp_path / "a" / "events").glob("events.out.tfevents.*"))

    assert call(words) == 2
    assert "expected a new folder, or --overwrite to start over" in capsys.readouterr().err
    assert call(f"{words} --overwrite --no-progress") == 0
    assert call(f"{words} --seed 1 --overwrite") == 2
    assert "holds another experiment" in capsys.readouterr().err


def test_a_dry_run_only_talks(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert call(f"train best-arm {SHORT} --dry-run") == 0
    what, takes, where = capsys.readouterr().out.splitlines()
    assert what == "best-arm with memoryless, seed 0: 64 steps"
    assert re.fullmatch(r"about \d+ s, \d+\.\d GB", takes)
    assert where.startswith("a dry run: nothing is trained; it would go to ")
    assert "runs/best-arm/memoryless-seed0-" in where
    assert not list(tmp_path.iterdir())


def test_a_call_without_a_task_is_told_how_to_find_one(capsys):
    assert call("train") == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("kalmanac train: task: got none, expected kalmanac train TASK")
    assert "`kalmanac envs` lists tasks" in said.err
    assert said.err.count("\n") == 1


def test_ctrl_c_ends_in_a_clear_line(tmp_path, capsys, monkeypatch):
    def interrupt(self, model):
        raise KeyboardInterrupt

    monkeypatch.setattr(verb.Progress, "on_step", interrupt)
    folder = tmp_path / "a"
    assert call(f"train best-arm {SHORT} --no-tensorboard --folder {folder}") == 130
    *_, said, advice = capsys.readouterr().out.splitlines()
    assert said == f"interrupted at step 4; the last model is kept: {folder}"
    assert advice.endswith(f"step 0; `kalmanac resume {folder}` goes on from it")
    assert RecurrentSAC.load(folder / "last.safetensors").num_timesteps == 4


def test_flags_go_before_the_file_and_the_file_before_the_preset(tmp_path):
    file = tmp_path / "a.toml"
    file.write_text('seed = 3\ntau = 0.5\nagent = "gru"\n[env_settings]\ncost = 0.2\n')
    experiment = experiment_from(
        "best-arm-demo", *f"--config {file} --seed 4 --env-settings horizon=7".split()
    )
    assert (experiment.seed, experiment.tau, experiment.agent) == (4, 0.5, "gru")
    assert experiment.env_settings == {"cost": 0.2, "horizon": 7}
    assert experiment.context_length == 64  # the preset's own
    experiment = experiment_from("best-arm", *f"--config {file} --encoder oracle".split())
    assert experiment.agent == "oracle"


def test_an_agent_brings_its_own_settings_of_the_preset():
    experiment = experiment_from(
        "best-arm", "--encoder", "transformer", "--encoder-settings", "heads=2"
    )
    assert experiment.encoder_settings == {"feedforward": 128, "dropout": 0.1, "heads": 2}


@pytest.mark.parametrize(
    "words",
    [
        ["popgym/MineSweeperEasy"],
        ["--env", "popgym/MineSweeperEasy"],
        ["--preset", "popgym", "--env", "popgym/MineSweeperEasy"],
        ["popgym", "--env", "popgym/MineSweeperEasy"],
        ["popgym/MineSweeperEasy", "--preset", "popgym"],
    ],
)
def test_a_task_of_the_paper_brings_its_own_settings(words):
    experiment = experiment_from(*words)
    assert (experiment.env, experiment.target_entropy_scale) == ("popgym/MineSweeperEasy", 0.35)
    assert experiment.total_steps == 1_000_000


def test_a_preset_serves_other_environments_too():
    experiment = experiment_from("--preset", "dmc", "--env", "Pendulum-v1", "--noise", "0.05")
    assert (experiment.env, experiment.noise) == ("Pendulum-v1", 0.05)
    assert experiment.encoder_settings == {"norm": True}
    experiment = experiment_from("dmc/pendulum-swingup", "--encoder", "oracle")
    assert (experiment.noise, experiment.agent) == (0.1, "oracle")


def test_corruption_comes_from_flags():
    words = (
        "--noise 0.2 --action-noise 0.1 --dropout 0.3 --dropout-burst 4 --no-dropout-told "
        "--delay 2 --frame-repeat 2"
    )
    experiment = experiment_from("dmc/cheetah-run", *words.split())
    assert (
        experiment.noise,
        experiment.action_noise,
        experiment.dropout,
        experiment.dropout_burst,
    ) == (
        0.2,
        0.1,
        0.3,
        4,
    )
    assert (experiment.dropout_told, experiment.delay, experiment.frame_repeat) == (False, 2, 2)


@pytest.mark.filterwarnings("ignore::UserWarning")  # as Gymnasium reports a process
def test_a_worker_that_dies_ends_the_run_in_one_line(tmp_path, capsys):
    folder = tmp_path / "a"
    words = SHORT.replace("horizon=5", "fault=dies").replace("--num-envs 4", "--num-envs 2")
    options = f"--no-progress --no-tensorboard --workers 2 --folder {folder}"
    assert call(f"train tests.envs.faulty:Faulty {words} {options}") == 1
    output = capsys.readouterr().err.splitlines()[-1]
    assert output.startswith("kalmanac train: ")
    assert re.search(
        r": environment [01] \(seed \d+\): its process ended with exit code \[-9\]", output
    )
    assert "WorkerError" not in output
    assert read_summary(folder)["status"] == "failed"


def test_a_resumed_run_waits_for_its_workers_as_long_as_asked(tmp_path, capsys):
    folder, hang = tmp_path / "a", tmp_path / "hang"
    experiment = Experiment(
        env="tests.envs.faulty:Faulty", env_settings={"fault": str(hang)}, encoder="memoryless",
        num_envs=2, total_steps=1000, learning_starts=1000, eval_episodes=1,
    )  # fmt: skip
    steps = iter(range(5))
    run(experiment, folder, events=False, device="cpu", stop=lambda: next(steps, None) is None)
    hang.touch()
    options = "--no-progress --no-tensorboard --device cpu --workers 2 --worker-timeout 1.5"
    assert call(f"resume {folder} {options}") == 1
    output = capsys.readouterr().err.splitlines()[-1]
    assert "environment 0, 1: did not answer within 1.5 s while it was made" in output


def test_any_gymnasium_environment_can_be_trained_in(tmp_path):
    words = SHORT.replace("--env-settings horizon=5", "")
    options = f"--no-progress --no-tensorboard --folder {tmp_path / 'a'}"
    assert call(f"train Pendulum-v1 {words} {options} --eval-episodes 1") == 0
    assert "eval/in/mean_reward" in read_metrics(tmp_path / "a")[-1]


def test_folders_of_different_experiments_differ():
    a, b = Experiment(), Experiment(tau=0.5)
    assert default_folder("best-arm", a) != default_folder("best-arm", b)
    assert default_folder("a/b:c", a).parent.name == "a-b-c"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("best-rm", "task: got 'best-rm'; did you mean 'best-arm'?"),
        ("CartPol-v1", "did you mean 'CartPole-v1'?"),
        ("--seed 1", "task: got none, expected kalmanac train TASK, such as best-arm"),
        ("best-arm --encoder orcle", "encoder: got 'orcle'; did you mean 'oracle'?"),
        ("best-arm --sed 1", "flag: got '--sed'; did you mean '--seed'?"),
        ("best-arm --seed x", "--seed: got x, expected int"),
        ("best-arm --env-settings cst=1", "env_settings: got 'cst'; did you mean 'cost'?"),
        ("track --env-settings horizon=a", "horizon: got 'a', expected an integer of at least 1"),
        ("CartPole-v1 --env-settings foo=1", "env_settings: got {'foo': 1}, with which 'CartPole"),
        (f"best-arm --seed {2**64}", f"seed: got {2**64}, expected an integer in [0, {2**64})"),
        ("best-arm --tau 2", "tau: got 2.0"),
        ("best-arm --config no.toml", "config: got no.toml: No such file or directory"),
        *((f"best-arm --device {name}", message) for name, message in BAD_DEVICES.items()),
        (f"{__name__}:needy --no-progress", "pip install what is missing"),
        ("Pendulum-v1 --encoder oracle", "privileged_space"),
        ("cheetah-run", "did you mean 'dmc/cheetah-run'?"),
        ("--preset popgim --env popgym/RepeatFirstEasy", "preset: got 'popgim'; did you mean"),
        ("best-arm --workers 2", "workers: got 2, expected 0: 'best-arm' steps many by itself"),
        ("popgym --workers 9", "workers: got 9, expected auto or 0 to 8"),
        ("popgym --dropout 1", "dropout: got 1.0, expected a number in [0, 1)"),
        ("popgym --action-noise 0.1", "action space: got Discrete(4), expected a Box of floats"),
    ],
)
def test_a_call_that_cannot_be_understood_gets_one_line(
    words, message, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert call(f"train {words} --dry-run") == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("kalmanac train: ")
    assert said.err.count("\n") == 1
    assert message in said.err
    assert not list(tmp_path.iterdir())


def test_an_evaluation_that_cannot_be_built_is_refused(tmp_path, capsys, monkeypatch):
    def fail(experiment, name):
        expect_known("evaluation", name, ["another"])

    monkeypatch.setattr(verb, "evaluation_environment", fail)
    assert call(f"train best-arm {SHORT} --folder {tmp_path / 'a'}") == 2
    assert capsys.readouterr().err.endswith("evaluation: got 'in'; expected one of another\n")
    assert not (tmp_path / "a").exists()


def test_help_shows_the_preset_s_own_defaults(capsys):
    with pytest.raises(SystemExit) as stop:
        call("train best-arm-demo --help")
    assert stop.value.code == 0
    output = capsys.readouterr().out
    assert "--total-steps INT" in output
    assert "24000" in output
    assert "best-arm-demo" in output


def test_eval_prints_a_table(trained, capsys):
    assert call(f"eval {trained} --episodes 5 --device cpu") == 0
    title, head, *rows = capsys.readouterr().out.splitlines()
    assert title.startswith("best-arm with memoryless, seed 0: best model, step ")
    assert title.endswith("(finished), 5 episodes each")
    assert re.split(r"\s{2,}", head.strip())[:3] == ["mean reward", "std reward", "normalized"]
    assert [row.split()[0] for row in rows] == ["in", "out"]
    mean, _, normalized = map(float, rows[0].split()[1:4])
    assert mean == pytest.approx(10 * normalized, abs=0.006)


def test_eval_takes_one_place_and_the_last_model(trained, capsys):
    assert call(f"eval {trained} --env out --which last --episodes 2 --device cpu") == 0
    title, _, row = capsys.readouterr().out.splitlines()
    assert "last model, step 64" in title
    assert row.split()[0] == "out"


def test_eval_gives_the_same_numbers_for_the_same_seed(trained, capsys):
    tables = []
    for seed in (1, 1, 2):
        call(f"eval {trained} --episodes 50 --seed {seed} --device cpu")
        tables.append(capsys.readouterr().out)
    assert tables[0] == tables[1] != tables[2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("{run} --env oot", "evaluation: got 'oot'; did you mean 'out'?"),
        ("{run} --episodes 0", "episodes: got 0, expected at least 1"),
        ("{run} --seed -1", "seed: got -1, expected at least 0"),
        ("{run}/events", "expected one with experiment.json"),
        *((f"{{run}} --device {name}", message) for name, message in BAD_DEVICES.items()),
    ],
)
def test_eval_refuses_in_one_line(trained, words, message, capsys):
    assert call(f"eval {words.format(run=trained)}") == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert message in said.err


def test_eval_says_what_is_not_installed(trained, tmp_path, capsys):
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    changes = {"env": f"{__name__}:needy", "env_settings": {}, "evaluations": ["in"]}
    (tmp_path / "experiment.json").write_text(json.dumps(read_experiment(trained) | changes))
    assert call(f"eval {tmp_path} --device cpu --trust") == 2
    assert capsys.readouterr().err == "kalmanac eval: pip install what is missing\n"


def test_eval_without_a_model_says_so(trained, tmp_path, capsys):
    (tmp_path / "experiment.json").write_text((trained / "experiment.json").read_text())
    assert call(f"eval {tmp_path}") == 2
    assert "expected one with best.safetensors" in capsys.readouterr().err


def test_an_environment_that_cannot_be_built_is_one_line(capsys):
    assert call("train tests.cli.test_train:broken --dry-run") == 1
    message = "the environment could not be built: RuntimeError: no motor and no sensor"
    said = capsys.readouterr().err
    assert said.startswith(f"kalmanac train: {message} (")
    assert said.endswith(f"test_train.py, line {broken.__code__.co_firstlineno + 1})\n")
