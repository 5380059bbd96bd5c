"""The examples of the pages on adding an environment and an experiment, executed.

Their rows are held to what is tested for every row of the tables.
"""

import re
from pathlib import Path

import pytest

from kalmanac._cli.program import main
from kalmanac._envs.registry import ENVS
from kalmanac._suites.registry import SUITES
from tests.envs import test_rows
from tests.suites import test_registry
from tests.sweep.small import FLAGS

DOCS = Path(__file__).parents[2] / "docs"


def run_page(page, table):
    """Run the page's blocks in order; its row leaves the table afterwards."""
    kept = dict(table)
    names = {"__name__": "__main__"}
    try:
        for block in re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.S):
            exec(compile(block, page, "exec"), names)
        yield names
    finally:
        table.clear()
        table.update(kept)


@pytest.fixture
def tank():
    yield from run_page("how-to-add-an-environment.md", ENVS)


@pytest.fixture
def missing():
    yield from run_page("how-to-add-an-experiment.md", SUITES)


LAWS = (
    test_rows.test_gymnasium_accepts_it,
    test_rows.test_the_seed_decides_all,
    test_rows.test_left_in_mid_episode_and_entered_again_it_goes_on_bit_by_bit,
)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_the_environment_obeys(law, tank):
    law("tank")


@pytest.mark.parametrize("agent", ["vssm+kf", "oracle"])
def test_agents_train_in_the_environment(agent, tank):
    test_rows.test_agents_train_in_it("tank", agent)


def test_the_environment_refuses_bad_settings(tank):
    with pytest.raises(ValueError, match=r"noise: got -1, expected a number of at least 0"):
        tank["Tank"](noise=-1)
    assert set(ENVS["tank"].settings) == {"noise", "horizon"}


def test_the_suite_is_valid_and_planned(capsys, request):
    request.getfixturevalue("missing")  # only now, so that what it prints is seen
    test_registry.test_the_runs_of_a_suite_are_valid_and_all_different("track-missing")
    told = capsys.readouterr().out  # the page's own call: two seeds of eight settings
    assert "track-missing (quick): 16 runs of 1,600 steps, 0 done already" in told
    assert len([line for line in told.splitlines() if line.startswith("track/")]) == 16


@pytest.mark.slow
def test_the_suite_runs_and_is_reported(missing, tmp_path, capsys):
    pytest.importorskip("rliable")
    words = ["track-missing", *FLAGS, "--jobs=1", "--threads=1", "--folder", str(tmp_path)]
    assert main(["sweep", *words]) == 0
    assert main(["report", str(tmp_path)]) == 0
    assert (tmp_path / "report" / "figures" / "curves-other-quick.png").is_file()
