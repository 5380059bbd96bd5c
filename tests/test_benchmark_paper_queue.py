"""The reproduction's queue: what comes next, and what is taken in, as small run folders."""

import importlib
import json
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from kalmanac._cli.train import VERB, experiment_from
from kalmanac._cli.verb import read_call
from kalmanac._files.run_reader import CHECKPOINTS, SUMMARY
from kalmanac._report.groups import make_groups
from kalmanac._report.runs import read_runs
from tests.report.synthetic import leave_heatmap, write_run

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
SCRIPTS = (
    "paper_queue", "paper_cells", "paper_page", "paper_runs", "small_runs", "learning", "report",
)  # fmt: skip


@pytest.fixture(scope="module")
def scripts():
    """Imported once: the queue is long."""
    sys.path.insert(0, str(BENCHMARKS))
    yield {name: importlib.import_module(name) for name in SCRIPTS}
    sys.path.remove(str(BENCHMARKS))
    for name in SCRIPTS:
        sys.modules.pop(name)


@pytest.fixture
def cells(scripts):
    return list(scripts["paper_cells"].cells().values())


@pytest.fixture
def results(tmp_path):
    folder = tmp_path / "results"
    folder.mkdir()
    speeds = {"discrete": 6500, "best-arm": 4100, "continuous": 2320}
    told = {"updates_per_second": speeds, "runs_that_fill_it": 6}
    (folder / "speeds.json").write_text(json.dumps(told))
    return folder


@pytest.fixture
def queue(scripts, results, capsys):
    """Calls the script; the exit status, what it printed, and what it complained about."""

    def call(*words):
        status = scripts["paper_queue"].main([*map(str, words), "--results", str(results)])
        return (status, *capsys.readouterr())

    return call


def train(folder, cell, **how):
    """As if the cell had been run."""
    return write_run(folder / cell.name, cell.experiment, rows_between=1, **how)


def test_the_blocks_have_the_runs_that_were_promised(cells):
    runs = Counter(cell.block for cell in cells)
    assert [runs[name] for name in ("a", "b", "c")] == [50, 72, 18]
    assert sum(cell.updates for cell in cells if cell.block == "b") == 72 * 495_000
    assert len({cell.name for cell in cells}) == len(cells)
    order = [cell.block for cell in cells]
    assert order == sorted(order, key=list(dict.fromkeys(order)).index)


def test_every_setting_has_its_seeds_in_order(cells):
    seeds = defaultdict(list)
    for cell in cells:
        seeds[cell.suite, cell.what].append(cell.experiment.seed)
    assert all(found == list(range(len(found))) for found in seeds.values())
    assert {len(found) for found in seeds.values()} == {3, 5}


def test_calls_make_the_very_runs(cells, scripts):
    one_each = {(cell.block, str(cell.experiment.encoder_settings)): cell for cell in cells}
    for cell in one_each.values():
        words = scripts["paper_cells"].call(cell.experiment).split()
        assert experiment_from(read_call("train", VERB, words)) == cell.experiment, cell.name


def test_next_are_the_first_that_are_not_done_and_fit(queue, cells, tmp_path):
    _, printed, _ = queue("next", "--seconds", 200)
    lines = printed.splitlines()
    assert [line.split()[0] for line in lines[:-1]] == [cell.name for cell in cells[:6]]
    assert lines[-1] == "# 6 runs, about 181 s of 200 s"  # 30.2 s each
    queue("take", train(tmp_path, cells[0]))
    _, printed, _ = queue("next", "--seconds", 200, "--rate", "best-arm=8200", "--at-once", 4)
    names = [line.split()[0] for line in printed.splitlines()[:-1]]
    assert names == [cell.name for cell in cells[1:5]]
    status, _, complaint = queue("next", "--seconds", 200, "--rate", "other=1")
    assert status == 2
    assert "--rate: got other=1, expected KIND=NUMBER" in complaint


def test_seeds_of_a_cell_can_be_one_line(queue, cells, scripts, tmp_path):
    def lines(most):
        _, printed, _ = queue("next", "--seconds", 1e6, "--at-once", 2000, "--together", most)
        return [line for line in printed.splitlines() if not line.startswith("#")]

    words = {line.split()[0]: line.split()[1:] for line in lines(3)}
    assert len(words) < len(cells) / 2
    alone = [name for name, rest in words.items() if "--seeds" not in rest]
    assert all(name.startswith(("best-arm.", "latent-rollouts.")) for name in alone)
    seeds = Counter(rest[-1] for rest in words.values() if "--seeds" in rest)
    assert set(seeds) == {"2", "3"}  # seeds 3 and 4 are another block's
    first = next(cell for cell in cells if cell.suite == "popgym")
    name = f"{first.name}-to-2"
    expected = scripts["paper_cells"].call(first.experiment)
    assert " ".join(words[name]) == f"{expected} --seeds 3"
    queue("take", train(tmp_path, first))
    rest = {line.split()[0]: line for line in lines(5)}
    later = first.name.replace("seed0", "seed1")
    assert rest[f"{later}-to-2"].endswith("--seed 1 --seeds 2")
    assert name not in rest


def test_a_line_of_seeds_has_as_many_as_fit_and_goes_on_seed_by_seed(
    queue, cells, tmp_path, monkeypatch, scripts
):
    first, second, _ = [c for c in cells if c.what == "AutoencodeEasy-vssm-kf"][:3]
    monkeypatch.setattr(scripts["paper_queue"].Results, "finished", lambda _, c: c.block == "a")

    def lines(*words):
        _, printed, _ = queue("next", "--together", 3, "--at-once", 1, *words)
        return [line for line in printed.splitlines() if not line.startswith("#")]

    # one takes 76 s of a GPU, of which a line has a sixth
    assert lines("--seconds", 1400)[0].split()[0] == f"{first.name}-to-2"
    for how in ([], ["--whole"]):
        assert lines("--seconds", 1000, *how)[0].split()[0] == f"{first.name}-to-1"
        assert lines("--seconds", 500, *how)[0].split()[0] == first.name
    group = tmp_path / "kept" / f"{first.name}-to-1"
    for cell in (first, second):
        folder = train(tmp_path / "made", cell, until=0.6)
        folder = folder.rename(tmp_path / f"seed{cell.experiment.seed}")
        (folder / CHECKPOINTS).mkdir()
        (folder / CHECKPOINTS / f"step-{300_000:012d}.safetensors").touch()
        group.mkdir(parents=True, exist_ok=True)
        folder.rename(group / folder.name)
    words = ("--seconds", 1400, "--checkpoints", group.parent)
    assert lines(*words)[0] == f"{first.name} resume {group / 'seed0'}"
    (group / "seed0").rename(tmp_path / "away")
    assert lines(*words)[0].split()[0] == first.name, "the second one goes on by itself"


def test_what_does_not_fit_is_marked_and_goes_on_from_its_checkpoint(queue, cells, tmp_path):
    first = cells[0]
    _, printed, _ = queue("next", "--seconds", 90, "--at-once", 1)
    mark, line, _ = printed.splitlines()
    assert mark == f"# {first.name}: about 50% of what is left; keep its folder"
    assert line.startswith(f"{first.name} best-arm --encoder vssm+kf")
    _, printed, _ = queue("next", "--seconds", 90, "--whole")
    assert printed == "# 0 runs, about 0 s of 90 s\n"
    kept = train(tmp_path / "kept", first, until=0.6)
    queue("take", kept)
    _, printed, _ = queue("next", "--seconds", 90, "--at-once", 1)
    assert printed.startswith(f"# {first.name}: begins anew; step 300,000 was reached before\n")
    (kept / CHECKPOINTS).mkdir()
    (kept / CHECKPOINTS / f"step-{300_000:012d}.safetensors").touch()
    _, printed, _ = queue("next", "--seconds", 90, "--at-once", 1, "--checkpoints", kept.parent)
    assert printed.splitlines() == [f"{first.name} resume {kept}", "# 1 runs, about 12 s of 90 s"]


def test_runs_and_their_files_become_small_folders_that_reports_read(
    queue, cells, results, scripts, tmp_path
):
    folder = train(tmp_path / "runs", cells[0])
    leave_heatmap(folder)
    (folder / "evaluations" / "example-0.5-1.npz").write_bytes(b"an episode")
    other = train(tmp_path / "elsewhere", cells[1])
    scripts["learning"].main([str(other), "--out", str(tmp_path / "runs")])
    assert queue("take", tmp_path / "runs", "--seconds", 540)[0] == 0
    small = [results / "best-arm" / f"cost0-{agent}-seed0" for agent in ("vssm-kf", "vssm")]
    for place in small:
        assert sum(file.stat().st_size for file in place.iterdir() if file.is_file()) < 40_000
    found, notices = read_runs(results)
    assert sorted(run.folder for run in found) == sorted(small)
    whole = next(run for run in read_runs(folder.parent).runs if run.folder == folder)
    mine = next(run for run in found if run.folder == small[0])
    assert mine.experiment == whole.experiment
    assert mine.values["in/mean_reward"] == pytest.approx(whole.values["in/mean_reward"], rel=1e-4)
    assert (mine.version, mine.status) == (whole.version, "finished")
    left = {"heatmap.json", "example-0.5-1.npz"}
    assert {file.name for file in (small[0] / "evaluations").iterdir()} == left
    assert len(notices) == 1, notices  # names speeds.json, calls.jsonl and queue.md
    assert len(make_groups(found, notices)) == 2
    page = (results / "queue.md").read_text()
    assert "| a | Best Arm, 500K, costs 0 and 0.1, five agents | 50 | 2 | 0 |" in page
    assert "| best-arm | cost0-vssm-kf | 500,000 | 0 | 0 |" in page
    assert "GPU minutes so far: 9, in 1 calls" in page
    assert queue("take", tmp_path / "runs")[1] == "0 runs taken in, 0 refused\n"


def test_an_empty_queue_says_so(queue, results):
    queue("page")
    assert "No run has been taken in yet." in (results / "queue.md").read_text()


def test_what_is_no_run_of_the_queue_is_refused(queue, cells, tmp_path):
    changed = cells[0]._replace(experiment=cells[0].experiment.changed({"tau": 0.5}))
    status, printed, complaint = queue("take", train(tmp_path, changed))
    assert (status, printed) == (1, "0 runs taken in, 1 refused\n")
    assert "no cell of the queue has its settings; of the nearest one: tau: got 0.5" in complaint
    (tmp_path / "strange.jsonl").write_text("{}\n")
    assert "got what is no run" in queue("take", tmp_path / "strange.jsonl")[2]


def test_seeds_come_in_order(queue, cells, tmp_path):
    first = cells[0]
    mine = [cell for cell in cells if (cell.suite, cell.what) == (first.suite, first.what)]
    second = train(tmp_path, mine[1])
    status, _, complaint = queue("take", second)
    assert status == 1
    assert "got seed 1, expected seed 0 first" in complaint
    assert queue("take", second, train(tmp_path, mine[0]))[0] == 0


def test_a_finished_run_is_not_replaced(queue, cells, results, tmp_path):
    cell = cells[0]
    assert queue("take", train(tmp_path / "half", cell, until=0.5))[0] == 0
    assert "interrupted, step 250,000 of 500,000" in (results / "queue.md").read_text()
    assert queue("take", train(tmp_path / "less", cell, until=0.2))[1].startswith("0 runs")
    assert queue("take", train(tmp_path / "whole", cell))[0] == 0
    status, _, complaint = queue("take", tmp_path / "half")
    assert status == 1
    assert "got interrupted, step 250,000, expected none" in complaint
    better = train(tmp_path / "again", cell, height=0.99)
    assert "got another one, expected none" in queue("take", better)[2]
    short = train(tmp_path / "short", cells[1], until=0.5)
    (short / SUMMARY).write_text(json.dumps({"status": "finished", "step": 250_000}))
    assert "got 250,000 steps, expected a whole run" in queue("take", short)[2]


def test_finished_runs_are_played(queue, cells, scripts, tmp_path, monkeypatch):
    played = {}
    monkeypatch.setattr(
        scripts["paper_queue"], "run_post_training", lambda at, due: played.update({at: due})
    )
    whole, half = train(tmp_path, cells[0]), train(tmp_path, cells[1], until=0.5)
    assert queue("play", tmp_path)[0] == 0
    assert half not in played
    assert [type(one).__name__ for one in played[whole]] == ["ExampleEpisodes", "GridOfBandits"]


def test_of_shares_of_actions_time_outs_are_kept(scripts):
    row = {"step": 1, "eval/in/mean_reward": 0.1234567, "train/other": 1.0, "train/q_mean": 2.0}
    shares = {f"eval/in/{name}_{i}": 0.5 for name in ("action", "last_action") for i in range(3)}
    found = scripts["small_runs"].kept({**row, **shares})
    assert found == {
        "step": 1, "eval/in/mean_reward": 0.12346, "train/q_mean": 2.0,
        "eval/in/last_action_0": 0.5,
    }  # fmt: skip
