"""The shoot-out's jobs are the suite's runs, and its figure is drawn from files."""

import json

from kalmanac._cli import train
from kalmanac._cli.verb import read_call
from kalmanac._suites.dropout import motor_runs, runs, settings


def test_every_job_is_a_run_of_the_suite(bench, capsys):
    dropout = bench("dropout")
    assert dropout.main(["jobs", "--motor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    every = {run.hash: run for run in [*runs(), *motor_runs()]}
    assert len({line.split()[0] for line in lines}) == len(lines) == len(every) == 198
    for line in lines[::9]:
        name, *words = line.split()
        experiment = train.experiment_from(read_call("train", train.VERB, words))
        assert dropout.name_of(every[experiment.hash]) == name
    assert dropout.main(["jobs", "--only", "dropout-track"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 60


def test_what_is_done_is_left_out_and_seeds_go_together(bench, capsys, tmp_path):
    dropout = bench("dropout")
    for seed in range(2):
        (tmp_path / f"track.gru.0.5-blind-seed{seed}.jsonl").touch()
    call = ["jobs", "--only", "dropout-track", "--done", str(tmp_path)]
    assert dropout.main(call) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert len(names) == 58
    assert "track.gru.0.5-blind-seed2" in names
    assert "track.gru.0.5-blind-seed1" not in names
    assert dropout.main([*call, "--together"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 20
    line = next(line for line in lines if line.startswith("track.gru.0.5-blind "))
    assert line.split()[2:6] == ["--encoder", "gru", "--seeds", "3"]
    words = [word for word in line.split()[1:] if word not in {"--seeds", "3", "--overlap"}]
    experiment = train.experiment_from(read_call("train", train.VERB, words))
    assert experiment == settings("gru", task="track", dropout=0.5, told=False)


def write(folder, run, scores):
    rows = [{"step": i, "eval/in/mean_reward": x} for i, x in enumerate(scores)]
    lines = [{"experiment": run.to_data()}, *rows]
    name = f"{run.env}-{run.agent}-{run.dropout}-{run.dropout_told}-{run.seed}".replace("/", "-")
    (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))


def test_what_is_lost_is_a_share_of_what_is_gained(bench, tmp_path, capsys, monkeypatch):
    dropout = bench("dropout")
    monkeypatch.setattr(dropout, "idle_return", {"motor": -110.0}.get)
    for agent, told, blind in (("vssm+kf", -20.0, -60.0), ("transformer", -50.0, -110.0)):
        for seed in range(2):
            for rate, knows, last in ((0.0, True, -10.0), (0.5, True, told), (0.5, False, blind)):
                run = settings(agent, task="motor", dropout=rate, told=knows, seed=seed)
                write(tmp_path, run, [-200.0] + 5 * [last + seed - 0.5])
    write(tmp_path, settings("oracle"), [-5.0] * 3)
    found = dropout.read(tmp_path)
    assert {cell.agent for cell in found} == {"vssm+kf", "transformer"}
    cell = dropout.Cell("motor", "vssm+kf", 0.5, True)
    assert round(dropout.loss(found, cell), 6) == 0.1
    assert round(dropout.loss(found, cell._replace(told=False)), 6) == 0.5
    assert dropout.loss(found, cell._replace(dropout=0.2)) is None
    picture = tmp_path / "x" / "figure.png"
    assert dropout.main(["figure", str(tmp_path), "--picture", str(picture)]) == 0
    rows = {line.split("  ")[1].strip(): line for line in capsys.readouterr().out.splitlines()[1:]}
    assert rows["motor, transformer"].split()[-1] == "100.0%"
    assert picture.stat().st_size > 5_000
    assert dropout.main(["figure", str(tmp_path / "x")]) == 1


def test_who_does_nothing_learns_nothing(bench):
    """In `track` the estimate is zero, and a random walk goes away from it."""
    dropout = bench("dropout")
    assert -75 < dropout.idle_return("track") < -50
    assert dropout.idle_return("motor", episodes=20) < -300


def test_the_exact_filter_loses_where_readings_are_missing(bench):
    dropout = bench("dropout")
    none, half = (dropout.exact_return(rate, episodes=60) for rate in (0.0, 0.5))
    assert -5 < none < -2.5
    assert half < 2 * none
