from kalmanac._suites.registry import SUITES, preset
from kalmanac._suites.walkers import AGENTS


def test_runs_cover_mujoco_s_tasks_agents_and_three_seeds():
    cells = {(run.env, run.agent, run.seed) for run in SUITES["walkers"].runs()}
    tasks = [f"mujoco/{n}-{x}" for n in ("Hopper", "Walker2d", "HalfCheetah", "Ant") for x in "PV"]
    assert cells == {(t, a, s) for t in tasks for a in AGENTS for s in range(3)}


def test_the_memory_reads_the_previous_action_and_reward():
    for run in SUITES["walkers"].runs():
        assert run.previous_action
        assert run.previous_reward
    assert preset("bullet/Ant-V").experiment("gru").previous_reward


def test_bullet_has_the_published_steps():
    ours, theirs = (
        preset(f"{engine}/Hopper-V").experiment("gru") for engine in ("mujoco", "bullet")
    )
    assert (ours.total_steps, theirs.total_steps) == (300_000, 1_500_000)
    assert (ours.env, theirs.env) == ("mujoco/Hopper-V", "bullet/Hopper-V")
