import pytest

from kalmanac._lab.experiment import AGENTS, Experiment
from kalmanac._lab.factory import check_environment
from kalmanac._suites.registry import PRESETS, SUITES


@pytest.mark.parametrize("suite", SUITES)
def test_the_runs_of_a_suite_are_valid_and_all_different(suite):
    runs = list(SUITES[suite].runs())
    assert len({run.hash for run in runs}) == len(runs) > 0
    for run in runs[:: len(runs) // 8 or 1]:
        check_environment(run)
        assert Experiment.from_json(run.to_json()) == run


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_takes_every_agent(preset, agent):
    experiment = PRESETS[preset].experiment(agent)
    assert experiment.agent == agent
    check_environment(experiment)


def test_every_preset_belongs_to_one_suite():
    assert len(PRESETS) == sum(len(suite.presets) for suite in SUITES.values())
    assert all(preset.summary for preset in PRESETS.values())
