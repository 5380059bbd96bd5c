from kalmanac._suites.dropout import AGENTS, CONTROL
from kalmanac._suites.registry import SUITES, preset


def cells(suite):
    return {
        (run.env, run.agent, run.dropout, run.dropout_told, run.seed)
        for run in SUITES[suite].runs()
    }


def test_the_shoot_out_has_three_tasks_three_rates_told_and_not():
    conditions = [(0.0, True), (0.2, True), (0.2, False), (0.5, True), (0.5, False)]
    assert cells("dropout") == {
        (task, agent, *condition, seed)
        for task in ("track", "motor", CONTROL)
        for agent in AGENTS
        for condition in conditions
        for seed in range(3)
    }


def test_whoever_is_told_has_the_flag_whatever_its_memory():
    for run in SUITES["dropout"].runs():
        assert run.dropout_flag == (run.dropout_told and run.dropout > 0)
        assert run.dropout_burst == (8.0 if run.dropout else None)
        assert run.total_steps == 100_000


def test_the_motor_shares_its_runs_with_the_shoot_out():
    ours = {run.hash for run in SUITES["motor"].runs() if run.agent in ("vssm+kf", "gru")}
    assert ours <= {run.hash for run in SUITES["dropout"].runs()}
    agents = {run.agent for run in SUITES["motor"].runs()}
    assert agents == {"vssm+kf", "gru", "transformer", "memoryless", "oracle"}
    one = preset("motor").experiment("vssm+kf")
    assert (one.noise, one.delay, one.dropout, one.dropout_told) == (0.05, 1, 0.5, True)
