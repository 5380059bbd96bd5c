from kalmanac._suites.dmc_actions import runs


def test_the_comparison_has_noise_on_actions_too():
    found = list(runs())
    assert {(run.noise, run.action_noise) for run in found} == {(0.3, 0.3)}
    assert len({run.env for run in found}) == 4
    assert "dmc/quadruped-walk" in {run.env for run in found}
