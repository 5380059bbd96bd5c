import math

from kalmanac._lab.factory import make_model, training_environment
from kalmanac._sac.config import AgentSettings
from kalmanac._suites.popgym import AGENTS, ALL_TASKS, EVERYWHERE, TASKS, paper, size_ablation_runs
from kalmanac._suites.registry import SUITES


def test_the_paper_s_settings_are_those_of_table_1():
    experiment = paper()
    assert vars(experiment) | {
        "env": "popgym/RepeatPreviousEasy", "env_settings": {}, "total_steps": 1_000_000,
        "batch_size": 32, "context_length": 64, "update_to_data": 1.0, "eval_episodes": 16,
        "actor_hidden": (256, 256), "critic_hidden": (256, 256), "ent_coef": "auto",
        "target_entropy": "auto", "target_entropy_scale": 0.7, "buffer_size": None,
        "learning_rate": 3e-4, "gamma": 0.99, "embedding": 16, "encoder": "vssm+kf",
        "encoder_settings": {}, "noise": 0.0,
    } == vars(experiment)  # fmt: skip


def test_target_entropies_are_the_paper_s():
    def aim(task):
        experiment = paper("memoryless", task=task)
        env = training_environment(experiment)
        sizes = make_model(experiment, env, "cpu").learner.sizes
        settings = experiment.part(AgentSettings)
        return settings.entropy_goal(sizes.action, sizes.discrete)

    assert math.isclose(aim("CountRecallEasy"), 0.7 * math.log(26), rel_tol=1e-6)
    assert math.isclose(aim("MineSweeperEasy"), 0.35 * math.log(16), rel_tol=1e-6)
    assert math.isclose(aim("NoisyPositionOnlyPendulumHard"), -1.0)


def test_the_transformer_alone_has_settings_of_its_own():
    own = {agent: paper(agent).encoder_settings for agent in AGENTS}
    assert {agent for agent, settings in own.items() if settings} == {"transformer"}
    assert own["transformer"] == {"dropout": 0.1}


def test_runs_cover_tasks_agents_and_five_seeds():
    cells = {(run.env, run.agent, run.seed) for run in SUITES["popgym"].runs()}
    assert cells == {(f"popgym/{t}", a, s) for t in TASKS for a in AGENTS for s in range(5)}
    assert len(TASKS) == 12


def test_all_of_popgym_has_every_task_of_a_plain_install():
    cells = {(run.env, run.agent, run.seed) for run in SUITES["popgym-all"].runs()}
    expected = {(f"popgym/{t}", a, s) for t in ALL_TASKS for a in EVERYWHERE for s in range(3)}
    assert cells == expected
    assert len(ALL_TASKS) == 42


def test_the_ablation_covers_sizes_and_layers_with_a_norm():
    experiments = list(size_ablation_runs())
    assert len(experiments) == 4 * 4 * 3 * 5
    assert all(run.encoder_settings["norm"] for run in experiments)
    pairs = {
        (run.encoder_settings["d_state"], run.encoder_settings["layers"]) for run in experiments
    }
    assert pairs == {(n, layers) for n in (32, 64, 128, 256) for layers in (1, 2, 3)}
