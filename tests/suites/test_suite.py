import pytest

from kalmanac._suites.registry import SUITES
from kalmanac._suites.suite import QUICK, quick, quick_evaluation


@pytest.mark.parametrize("suite", SUITES)
def test_quick_runs_stay_different_and_say_what_they_are(suite):
    full = list(SUITES[suite].runs())
    short = [quick(run) for run in full]
    assert {run.label for run in short} == {QUICK}
    assert len({run.hash for run in short}) == len(full)
    assert not {run.hash for run in short} & {run.hash for run in full}
    assert max(run.total_steps for run in short) <= 2_000


def test_a_quick_run_is_the_same_task_and_agent():
    for suite in SUITES.values():
        for run in list(suite.runs())[::40]:
            same = ("env", "encoder", "encoder_settings", "noise", "action_noise", "seed")
            assert [getattr(quick(run), n) for n in same] == [getattr(run, n) for n in same]
            assert quick(run).env_settings.get("cost") == run.env_settings.get("cost")


def test_quick_heat_maps_have_fewer_bandits():
    suite = SUITES["best-arm-heatmap"]
    (whole,) = suite.post_training(next(suite.runs()))
    short = quick_evaluation(whole)
    assert (short.points, short.episodes) == (9, 8)
    assert (short.mu, short.sigma) == (whole.mu, whole.sigma)
