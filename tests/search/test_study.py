"""Searches of real, tiny runs: values are the runs' own, and a stopped search goes on."""

import pytest

pytest.importorskip("optuna", reason='needs optuna: pip install "kalmanac[search]"')

from kalmanac._cli.program import main
from kalmanac._files.run_reader import read_summary
from kalmanac._search.study import Study, read_space
from kalmanac._sweep.work import Done, How, do
from tests.lab.tiny import TINY

WORDS = ["learning_rate=1e-4:1e-2:log", "batch_size=2:8"]


def begin(root, seeds=2):
    space = read_space(WORDS, TINY)
    return Study(root, TINY, space, seeds=seeds, which="last", seed=0)


def trained(work, root):
    return Done(work, do(work, How(root / "stop", events=False)))


def test_trials_are_runs_whose_mean_counts(tmp_path):
    study = begin(tmp_path)
    for work in study.works(3):
        assert [one.experiment.seed for one in work] == [0, 1]
        study.learn(trained(work, tmp_path))
    assert study.done == 3
    value, values, folders = study.best()
    scores = [read_summary(folder)["last"]["eval/in/normalized"] for folder in folders]
    assert value == pytest.approx(sum(scores) / 2)
    assert set(values) == {"learning_rate", "batch_size"}
    assert list(study.works(3)) == []


def test_a_search_that_was_stopped_proposes_the_same_again(tmp_path):
    study = begin(tmp_path, seeds=1)
    works = study.works(4)
    study.learn(trained(next(works), tmp_path))
    stopped, killed = next(works), next(works)
    (tmp_path / "stop").touch()
    study.learn(trained(stopped, tmp_path))  # ends as interrupted, before it begins
    (tmp_path / "stop").unlink()
    again = begin(tmp_path, seeds=1)  # `killed` was never told
    assert again.done == 1
    works = again.works(4)
    proposed = [next(works), next(works)]
    assert {work[0].folder for work in proposed} == {stopped[0].folder, killed[0].folder}
    for work in (*proposed, *works):
        again.learn(trained(work, tmp_path))
    assert again.done == 4
    for work in (stopped, killed):
        assert read_summary(work[0].folder)["status"] == "finished"


def test_another_search_does_not_go_into_the_same_folder(tmp_path):
    begin(tmp_path)
    with pytest.raises(ValueError, match="in which another search is, expected a folder"):
        begin(tmp_path, seeds=3)


@pytest.mark.slow
def test_the_verb_searches_and_goes_on(tmp_path, capsys):
    words = ["search", "best-arm-demo", "--vary", *WORDS, "--steps=96", "--num-envs=4",
             "--learning-starts=32", "--context-length=8", "--eval-every=96", "--eval-episodes=4",
             "--encoder=memoryless", "--no-tensorboard", "--jobs=2", "--device=cpu",
             "--folder", str(tmp_path)]  # fmt: skip
    assert main([*words, "--trials=3"]) == 0
    assert "best of 3: " in capsys.readouterr().out
    assert main([*words, "--trials=4"]) == 0
    output = capsys.readouterr().out
    assert "4 trials, 3 done already" in output
    assert output.count(" finished after ") == 1
    assert main(["status", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["search", "4", "4"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["best-arm-demo"], "vary: got nothing, expected NAME=LOW:HIGH"),
        ([], "task: got none, expected one as `kalmanac train` takes it"),
        (["best-arm-demo", "--trials=0"], "trials: got 0, expected at least 1"),
        (["best-arm-dem", "--vary=gamma=0:1"], "task: got 'best-arm-dem'"),
    ],
)
def test_a_wrong_call_is_one_line(words, message, capsys):
    assert main(["search", *words]) == 2
    complaint = capsys.readouterr().err
    assert complaint.startswith(f"kalmanac search: {message}")
    assert complaint.count("\n") == 1
