"""The newcomer's first minute: set-up, pins, import contracts, and what the documents promise."""

import importlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement
from packaging.version import Version

import kalmanac
from kalmanac._ops.scan.backends import BACKENDS

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REQUIREMENTS = {
    need.name: need
    for group in [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    for need in map(Requirement, group)
    if need.name != "kalmanac"
}
OUTSIDE = {  # the environment as a newcomer's shell has it, also where `make test` started us
    name: value
    for name, value in os.environ.items()
    if name not in ("MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "MFLAGS", "PYTHON")
}
CONSTRAINTS = {
    pin.name: pin
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if (text := line.partition("#")[0].strip())
    for pin in [Requirement(text)]
}


def test_the_sdist_has_every_page():
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text())
    included = whole["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    pages = {f"/{page.name}" for page in ROOT.glob("*.md")} - {"/README.md"}  # that comes by itself
    assert len(pages) >= 2
    assert pages <= set(included)


SCANS = (ROOT / "docs" / "scans-and-layers.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", SCANS, re.S)


def test_layer_example_runs():
    names: dict = {}
    exec(EXAMPLES[1], names)
    assert names["z"].shape == (8, 100, 16)
    assert names["seen"].gain.shape == (8, 100, 128)


def test_scan_example_runs_and_filters():
    example, _ = EXAMPLES
    names: dict = {}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        exec(example, names)
    truth, w, posterior = names["truth"], names["w"], names["posterior"]
    mean_square = lambda x: float((x - truth)[1, :60].square().mean())  # noqa: E731
    assert mean_square(posterior.mean) < mean_square(w) / 2
    assert torch.equal(posterior.mean[1, 59:], posterior.mean[1, 59].expand(41, 1))
    assert torch.equal(names["final"].variance, posterior.variance[:, -1])


def test_the_page_on_scans_lists_the_backends():
    _, _, section = SCANS.partition("## Backends")
    assert re.findall(r"^\| `(\w+)` \|", section.partition("\n## ")[0], re.M) == list(BACKENDS)


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md"])
def test_links_lead_somewhere(document):
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / document).read_text())
    assert links
    assert [link for link in links if not (ROOT / link).is_file()] == []


def test_every_name_of_the_notation_stands_in_its_file():
    text = (ROOT / "docs" / "notation.md").read_text()
    rows = re.findall(r"^\|[^|]*\| `(\w+)` \|.*?`(src/[\w/.]+)`", text, re.M)
    assert len(rows) == len(re.findall(r"`src/[\w/.]+` \|", text)) > 20
    lost = [(n, f) for n, f in rows if not re.search(rf"\b{n}\b", (ROOT / f).read_text())]
    assert lost == []


@pytest.mark.parametrize("target", ["demo", "test", "test-all", "lint", "bench", "docs"])
def test_make_sets_up_before_every_target(target):
    plan = subprocess.run(
        ["make", "-n", target], cwd=ROOT, env=OUTSIDE, capture_output=True, text=True
    )
    assert plan.returncode == 0
    assert "scripts/setup.sh" in plan.stdout.splitlines()[0]


def test_every_requirement_is_pinned_inside_its_range():
    assert REQUIREMENTS.keys() <= CONSTRAINTS.keys()
    for name, need in REQUIREMENTS.items():
        (pin,) = CONSTRAINTS[name].specifier
        assert pin.operator == "=="
        assert need.specifier.contains(pin.version), f"{name}: {pin} is outside {need.specifier}"


@pytest.mark.parametrize(
    ("name", "broken"),
    [("torch", "2.16.0"), ("mujoco", "4.0.0"), ("pandas", "3.0.0"), ("gymnasium", "2.0.0")],
)
def test_versions_known_to_break_are_kept_out(name, broken):
    assert not REQUIREMENTS[name].specifier.contains(broken)
    assert not CONSTRAINTS[name].specifier.contains(broken)


def test_constraints_name_no_registry():
    assert not re.search(r"://|index-url|find-links", (ROOT / "constraints.txt").read_text())


def test_version_is_said_the_same_everywhere():
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.M)
    assert cited
    assert Version(cited[1]) == Version(kalmanac.__version__)


def test_entry_point_exists():
    module, _, function = PROJECT["scripts"]["kalmanac"].partition(":")
    assert callable(getattr(importlib.import_module(module), function))


def test_types_are_shipped():
    assert (Path(kalmanac.__file__).parent / "py.typed").is_file()


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_report_libraries_work_together():
    pytest.importorskip("rliable")
    from rliable import library, metrics

    scores = {"agent": torch.rand(5, 3).numpy()}
    points, intervals = library.get_interval_estimates(scores, metrics.aggregate_iqm, reps=20)
    low, high = intervals["agent"].flatten()
    assert low <= points["agent"] <= high


@pytest.fixture
def contracts(tmp_path):
    """Runs the import contracts on a copy of the package with one more file in it."""
    pytest.importorskip("importlinter")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    package = shutil.copytree(
        Path(kalmanac.__file__).parent,
        tmp_path / "src" / "kalmanac",
        ignore=shutil.ignore_patterns("__pycache__"),
    )

    def check(path: str | None = None, text: str = "") -> subprocess.CompletedProcess[str]:
        if path is not None:
            with (package / path).open("a") as file:
                file.write(text)
        return subprocess.run(
            [Path(sys.executable).parent / "lint-imports", "--no-cache"],
            cwd=tmp_path,
            env={**OUTSIDE, "PYTHONPATH": str(tmp_path / "src")},
            capture_output=True,
            text=True,
        )

    return check


def test_import_contracts_are_kept(contracts):
    result = contracts()
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("path", "text", "broken"),
    [
        ("utils.py", "", "Imports point one way"),
        (
            "_files/run_folder.py",
            "from kalmanac import Track\n",
            "Nothing inside comes in by the front door",
        ),
        ("_ops/helpers.py", "", "Inside ops"),
        ("_ops/dispatch.py", "import kalmanac._cli\n", "Imports point one way"),
        ("_ops/scan/reference.py", "import kalmanac._ops.scan.parallel\n", "Inside ops.scan"),
        ("_ops/scan/parallel.py", "import numba\n", "Only ops.scan.cpu names numba"),
        ("_ops/scan/kalman.py", "def late():\n    import triton\n", "Only kernels name triton"),
        ("_cli/doctor.py", "import matplotlib.pyplot\n", "Only demo and report draw"),
    ],
)
def test_import_contracts_refuse(contracts, path, text, broken):
    result = contracts(path, text)
    assert result.returncode == 1
    assert re.search(rf"{re.escape(broken)}.* BROKEN", result.stdout)


@pytest.fixture
def clone(tmp_path):
    """What `make ready` needs, in an empty folder; runs it with the given environment."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))

    def make(python: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["make", "ready", f"PYTHON={python}"],
            cwd=tmp_path,
            env={**OUTSIDE, **environment},
            capture_output=True,
            text=True,
        )

    return make


def fake(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def one_line(result: subprocess.CompletedProcess[str]) -> str:
    """The one line that we say about a failure; the other one is make's own."""
    assert result.returncode != 0
    ours, makes = result.stderr.splitlines()
    assert makes.startswith("make: *** ")
    return ours


def test_old_python_is_refused_in_one_line(clone, tmp_path):
    pretend = "import sys; sys.version_info = (3, 9, 18); exec(sys.argv[2])"
    old = f"""exec {sys.executable} -c '{pretend}' "$@" """
    said = one_line(clone(fake(tmp_path / "old", old)))
    assert "is Python 3.9.18, needed is 3.11 or newer" in said
    assert not (tmp_path / ".venv").exists()


def test_missing_python_is_said_in_one_line(clone):
    assert "found no 'no-such-python'" in one_line(clone("no-such-python"))


def test_python_that_does_not_run_is_said_in_one_line(clone, tmp_path):
    said = one_line(clone(fake(tmp_path / "broken", "echo Traceback >&2; exit 1")))
    assert "does not run" in said


def test_python_without_venv_is_said_in_one_line(clone, tmp_path):
    bare = f'case "$*" in *ensurepip*) exit 1;; esac; exec {sys.executable} "$@"'
    assert "lacks the modules venv and ensurepip" in one_line(clone(fake(tmp_path / "bare", bare)))


@pytest.mark.slow
def test_failed_download_is_said_in_one_line_and_names_the_log(clone, tmp_path):
    offline = {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        "PIP_EXTRA_INDEX_URL": "",
        "PIP_FIND_LINKS": "",
    }
    said = one_line(clone(sys.executable, **offline))
    assert "could not install the dependencies (No matching distribution" in said
    assert said.endswith("details: .venv/install.log")
    assert "ERROR" in (tmp_path / ".venv" / "install.log").read_text()
    assert not (tmp_path / ".venv" / "ready").exists()


@pytest.mark.slow
def test_setup_is_skipped_when_done_and_starts_anew_when_killed(clone, tmp_path):
    project, venv = tmp_path / "pyproject.toml", tmp_path / ".venv"
    project.write_text("no project: every real install fails\n")
    (tmp_path / "constraints.txt").write_text("")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    checksum = subprocess.run(["cksum"], input=project.read_bytes(), capture_output=True).stdout
    (venv / "ready").write_text(f"{checksum.decode().strip()} {tmp_path}\n")
    before = venv / "left from before"
    before.touch()

    done = clone("")
    assert (done.returncode, done.stdout) == (0, "")
    with project.open("a") as file:
        file.write("[tool.ruff]\n")
    done = clone("")
    assert (done.returncode, done.stdout) == (0, "")

    (tmp_path / "constraints.txt").write_text("# changed\n")
    one_line(clone(""))  # fails in good order: what was there stays
    assert before.exists()
    assert not (venv / "ready").exists()

    (venv / "unfinished").touch()  # as a killed install leaves it
    one_line(clone(""))
    assert not before.exists()
