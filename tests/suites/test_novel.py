from kalmanac._suites.novel import AGENTS, STEPS
from kalmanac._suites.registry import SUITES, preset


def test_runs_cover_tasks_agents_and_three_seeds():
    cells = {(run.env, run.agent, run.seed) for run in SUITES["novel"].runs()}
    assert cells == {(f"novel/{t}", a, s) for t in STEPS for a in AGENTS for s in range(5)}


def test_a_task_by_its_name_has_its_own_steps():
    for task, steps in STEPS.items():
        run = preset(f"novel/{task}").experiment("gru")
        assert (run.env, run.agent, run.total_steps) == (f"novel/{task}", "gru", steps)
        assert steps // run.eval_every == run.eval_episodes == 50
        hill = task == "MountainCarContinuous"
        assert run.exploration_correlation == (0.9 if hill else 0.0)
