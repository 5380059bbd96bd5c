"""Folders with every kind of odd run beside a sound one: each verb names them, and none stops."""

import json
import re
import shutil
import zlib

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from kalmanac._cli.program import main
from kalmanac._lab.run import run
from tests.hostile import KINDS, Drawn, Listed, make
from tests.lab.test_resuming import after
from tests.lab.tiny import TINY

GOOD = "a-sound-run"


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A stopped run with an evaluation, models and checkpoints; and a finished one of its own."""
    folder = tmp_path_factory.mktemp("sound")
    stopped = run(TINY, folder / "stopped", events=False, checkpoint_every=20, stop=after(17))
    assert stopped.status == "interrupted"
    assert run(TINY.changed({"seed": 7}), folder / GOOD, events=False).status == "finished"
    return folder


def fill(root, sound, names, odd_of):
    """A folder with the sound run and one odd run of each name, and the plan of a sweep."""
    shutil.copytree(sound / GOOD, root / GOOD)
    for i, name in enumerate(names):
        make(sound / "stopped", root / f"{i:03d}-{name}", name, odd_of(name), 1000 + i)
    folders = [folder.name for folder in sorted(root.iterdir())]
    entries = {
        f"hash{i}": {"folder": name, "suites": ["[red]odd"], "evaluations": []}
        for i, name in enumerate(folders)
    }
    entries |= {
        "outside": {"folder": "../../etc", "suites": [], "evaluations": []},
        "absolute": {"folder": "/etc", "suites": [], "evaluations": []},
        "null": None,
        "numbers": {"folder": 7, "suites": 7, "evaluations": 7},
    }
    (root / ".sweep" / "failed").mkdir(parents=True)
    (root / ".sweep" / "plan.json").write_text(json.dumps(entries))
    for i, text in enumerate(["[]", "{", '{"error": 5}', '{"error": "x", "details": 7}', "\udcff"]):
        file = root / ".sweep" / "failed" / f"hash{i}.json"
        file.write_bytes(text.encode("utf-8", "surrogateescape"))
    return folders


def data_of(page):
    html = page.read_text(encoding="utf-8")
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)
    assert "<" not in found
    return json.loads(found, parse_constant=pytest.fail)


def listed_and_drawn(root, folders, capsys):
    """`runs`, `status` and `report`: every run of the folder is named, the sound one drawn."""
    assert main(["runs", str(root)]) in (0, 1)
    told = capsys.readouterr()
    said = told.out + told.err
    assert [name for name in folders if name not in said] == []
    assert re.search(rf"^{GOOD} +finished", told.out, re.M)

    assert main(["status", str(root)]) == 0
    said = capsys.readouterr().out
    for name in ("outside", "absolute", "null", "numbers"):
        assert f"planned run {name}: left out: " in said
    assert "[red]odd" in said

    assert main(["report", str(root)]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    *lines, last = told.out.splitlines()
    assert all(line.startswith(("note: ", "not drawn: ")) for line in lines)
    assert all(line.isprintable() and len(line) < 6000 for line in lines)
    data = data_of(root / "report" / "index.html")
    drawn = {row["name"]: row for row in data["runs"]}
    assert [x for x in folders if not any(x in line for line in lines) and x not in drawn] == []
    assert f"{len(drawn):,} runs" in last
    (group,) = (g for g in data["groups"] if 7 in g["seed_numbers"])
    curve = group["curves"]["evaluations"]["return"]
    assert len(curve["mean"]) >= 1
    assert None not in curve["seeds"][group["seed_numbers"].index(7)]
    scores = (root / "report" / "tables" / "scores.csv").read_text()
    assert not re.search(r"^[=@\t]|,[=@\t]", scores, re.M)
    return lines


def test_every_kind_at_once(sound, tmp_path, capsys):
    folders = fill(tmp_path, sound, KINDS, lambda name: Listed(zlib.crc32(name.encode())))
    listed_and_drawn(tmp_path, folders, capsys)


def played_and_resumed(root, folders, capsys):
    """`eval` and `resume` of every odd run: a result, or a few lines that say why there is none."""
    for name in folders:
        for path in inner(root / name):
            for words in (["eval", "--episodes=2"], ["resume", "--no-tensorboard"]):
                status = main([*words, "--trust", "--device=cpu", str(path)])
                told = capsys.readouterr().err
                assert status in (0, 1, 2)
                assert "Traceback" not in told
                if status == 2:
                    assert told.count("\n") == 1, (name, words[0], told)
                    assert told.startswith(f"kalmanac {words[0]}: ")


def inner(folder):
    """The folder, or the only one in it, whose name is odd."""
    inside = list(folder.iterdir())
    return inside if folder.name.partition("-")[2].startswith("name-") else [folder]


@pytest.mark.slow
def test_every_kind_is_played_and_resumed(sound, tmp_path, capsys):
    folders = fill(tmp_path, sound, KINDS, lambda name: Listed(zlib.crc32(name.encode()) + 1))
    played_and_resumed(tmp_path, folders, capsys)


@pytest.mark.slow
@settings(
    max_examples=50, deadline=None, derandomize=True, database=None,
    suppress_health_check=list(HealthCheck), phases=[Phase.generate],
)  # fmt: skip
@given(st.data())
def test_five_hundred_folders_of_any_kind(sound, tmp_path_factory, capsys, data):
    root = tmp_path_factory.mktemp("odd")
    names = data.draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=10, max_size=10))
    folders = fill(root, sound, names, lambda name: Drawn(data.draw))
    listed_and_drawn(root, folders, capsys)
    played_and_resumed(root, folders, capsys)
    shutil.rmtree(root)
