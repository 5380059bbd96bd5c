from kalmanac._lab.factory import make_model, training_environment
from kalmanac._lab.post_training import ExampleEpisodes, GridOfBandits
from kalmanac._suites.best_arm import AGENTS, COSTS, paper, rollout_runs, runs, shortened
from kalmanac._suites.registry import SUITES


def test_the_paper_s_settings_are_those_of_table_1():
    experiment = paper()
    assert vars(experiment) | {
        "env": "best-arm", "env_settings": {"cost": 0.0}, "total_steps": 500_000,
        "batch_size": 64, "context_length": 256, "update_to_data": 0.25, "eval_episodes": 100,
        "actor_hidden": (128,), "critic_hidden": (256,), "ent_coef": 0.1, "buffer_size": None,
        "learning_rate": 3e-4, "gamma": 0.99, "embedding": 16, "tau": 0.02, "label": "",
        "learning_starts": 5000, "num_envs": 8, "eval_every": 10_000, "evaluations": ("in", "out"),
        "encoder": "vssm+kf", "encoder_settings": {}, "drawing": "episodes",
    } == vars(experiment)  # fmt: skip


def test_the_transformer_has_its_own_width_and_the_context_as_window():
    experiment = paper("transformer")
    assert experiment.encoder_settings == {"feedforward": 128, "dropout": 0.1}
    model = make_model(experiment, training_environment(experiment), "cpu")
    assert model.settings.for_encoder()["window"] == 256


def test_oracle_alone_reads_in_units_of_the_spread():
    assert [agent for agent in AGENTS if paper(agent).normalize_observations] == ["oracle"]


def test_runs_cover_costs_agents_and_five_seeds():
    cells = {(run.env_settings["cost"], run.agent, run.seed) for run in runs()}
    assert cells == {(c, a, s) for c in COSTS for a in AGENTS for s in range(5)}


def test_the_short_form_says_so():
    experiment = shortened(seed=3)
    assert experiment.label == "shortened"
    assert experiment.env_settings == {"cost": 0.02, "horizon": 100}
    assert (experiment.tau, experiment.batch_size, experiment.context_length) == (0.03, 64, 64)
    assert experiment.seed == 3
    assert not paper().label


def test_the_heat_maps_add_no_training():
    theirs = {run.hash for run in SUITES["best-arm"].runs()}
    mine = list(SUITES["best-arm-heatmap"].runs())
    assert {run.hash for run in mine} <= theirs
    assert {run.env_settings["cost"] for run in mine} == {0.0}
    assert len({run.agent for run in mine}) == 8
    assert SUITES["best-arm-heatmap"].post_training(mine[0]) == (GridOfBandits(25, 100),)


def test_examples_are_played_where_asking_is_free():
    suite = SUITES["best-arm"]
    costs = {run.env_settings["cost"] for run in suite.runs() if suite.post_training(run)}
    assert costs == {0.0}
    assert suite.post_training(next(suite.runs())) == (ExampleEpisodes(((0.5, 0.5), (0.5, 1.0))),)


def test_two_agents_with_two_channels():
    experiments = list(rollout_runs())
    assert {run.agent for run in experiments} == {"vssm", "vssm+kf"}
    assert {run.encoder_settings["d_state"] for run in experiments} == {2}
