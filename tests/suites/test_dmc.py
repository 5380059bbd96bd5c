import pytest

from kalmanac._sac.config import AgentSettings
from kalmanac._suites.dmc import AGENTS, TASKS, paper
from kalmanac._suites.registry import SUITES


def test_the_paper_s_settings_are_those_of_table_1():
    experiment = paper()
    assert vars(experiment) | {
        "env": "dmc/cheetah-run", "env_settings": {}, "total_steps": 1_000_000,
        "batch_size": 32, "context_length": 64, "update_to_data": 1.0, "eval_episodes": 16,
        "actor_hidden": (256, 256), "critic_hidden": (256, 256), "ent_coef": "auto",
        "target_entropy": "auto", "buffer_size": None, "learning_rate": 3e-4, "gamma": 0.99,
        "embedding": 16, "encoder": "vssm+kf", "encoder_settings": {"norm": True},
        "noise": 0.3, "action_noise": 0.0, "dropout": 0.0, "delay": 0, "frame_repeat": 1,
    } == vars(experiment)  # fmt: skip
    assert experiment.part(AgentSettings).target_entropy == "auto"


@pytest.mark.parametrize("agent", AGENTS)
def test_the_state_space_models_end_in_a_norm(agent):
    normed = agent in ("vssm", "vssm+kf", "vssm+kf-u")
    own = {"transformer": {"dropout": 0.1}}.get(agent, {})
    assert paper(agent).encoder_settings == ({"norm": True} if normed else own)
    assert paper(agent).agent == agent


def test_the_noise_is_a_third_of_it_where_the_paper_says_so():
    levels = {task: paper(task=task).noise for task in TASKS}
    weak = {"pendulum-swingup", "point_mass-easy"}
    assert {task for task, noise in levels.items() if noise == 0.1} == weak
    assert {task for task, noise in levels.items() if noise == 0.3} == set(TASKS) - weak
    assert len(TASKS) == 9


def test_runs_cover_tasks_agents_and_five_seeds():
    found = {(run.env, run.agent, run.seed) for run in SUITES["dmc"].runs()}
    assert found == {(f"dmc/{t}", a, s) for t in TASKS for a in AGENTS for s in range(5)}
