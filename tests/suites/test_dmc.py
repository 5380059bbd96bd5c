import pytest

from kalmanac._sac.config import AgentSettings
from kalmanac._suites.dmc import (
    AGENTS,
    TASKS,
    action_noise_runs,
    design_ablation_runs,
    noise_ablation_runs,
    paper,
    runs,
)
from kalmanac._suites.registry import SUITES

SIX = {
    "finger-spin", "cheetah-run", "pendulum-swingup", "walker-run", "reacher-easy",
    "point_mass-easy",
}  # fmt: skip


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
    cells = {(run.env, run.agent, run.seed) for run in SUITES["dmc"].runs()}
    assert cells == {(f"dmc/{t}", a, s) for t in TASKS for a in AGENTS for s in range(5)}


def test_the_noise_ablation_has_four_strengths_and_more_seeds_for_the_pendulum():
    experiments = list(noise_ablation_runs())
    assert {run.env for run in experiments} == {f"dmc/{task}" for task in SIX}
    of = {
        env: {
            (run.noise, run.seed) for run in experiments if run.env == env and run.agent == "vssm"
        }
        for env in ("dmc/pendulum-swingup", "dmc/walker-run")
    }
    assert of["dmc/pendulum-swingup"] == {(x, s) for x in (0, 0.05, 0.1, 0.2) for s in range(10)}
    assert of["dmc/walker-run"] == {(x, s) for x in (0, 0.15, 0.3, 0.6) for s in range(5)}


def test_oracle_and_the_plain_strength_are_runs_of_the_benchmark():
    benchmark = {run.hash for run in runs()}
    ablation = list(noise_ablation_runs())
    assert sum(run.hash in benchmark for run in ablation) == 6 * 5 * 4  # tasks, seeds, agents
    others = [run for run in ablation if run.hash not in benchmark and run.agent == "oracle"]
    assert {run.seed for run in others} == {5, 6, 7, 8, 9}


def test_the_design_ablation_has_four_arms_and_the_scale_to_divide_by():
    experiments = list(design_ablation_runs())
    arms = {tuple(run.encoder_settings) for run in experiments if run.agent == "vssm+kf"}
    assert arms == {
        ("norm",), ("norm", "input_process_noise"), ("norm", "variance_feature"),
        ("norm", "input_process_noise", "variance_feature"),
    }  # fmt: skip
    assert {run.label for run in experiments} == {""}  # figures keep labels apart
    benchmark = {run.hash for run in runs()}
    shared = [run for run in experiments if run.hash in benchmark]
    arms_of = {(run.agent, len(run.encoder_settings)) for run in shared}
    assert arms_of == {("vssm+kf", 1), ("oracle", 0)}


def test_the_comparison_has_noise_on_actions_too():
    experiments = list(action_noise_runs())
    assert {(run.noise, run.action_noise) for run in experiments} == {(0.3, 0.3)}
    assert len({run.env for run in experiments}) == 4
    assert "dmc/quadruped-walk" in {run.env for run in experiments}
