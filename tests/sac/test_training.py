"""The training loop: its account of steps and updates, warm-up, callbacks, changes of env."""

from functools import partial

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

from kalmanac._envs.registry import make_vector
from kalmanac._sac.callbacks import Callback
from kalmanac._sac.config import AgentSettings
from kalmanac._sac.eval_callback import EvalCallback
from kalmanac._sac.evaluation import evaluate_policy
from kalmanac._sac.loop import TrainingLoop
from kalmanac._sac.networks import read_history
from kalmanac._sac.recurrent_sac import RecurrentSAC
from tests.sac.counting import Counting, counting_vector
from tests.sac.small import Listener, Wandering, small, wandering

NEXT = AutoresetMode.NEXT_STEP


@pytest.mark.parametrize("ratio", [0.25, 1, 3])
@pytest.mark.parametrize("envs", [1, 8])
def test_updates_keep_the_ratio_at_every_step(ratio, envs):
    model = small("memoryless", wandering(envs), update_to_data=ratio, learning_starts=20)
    listener = Listener()
    model.learn(60, listener)
    assert listener.steps == list(range(envs, 60 + envs, envs))
    expected = [max(0, int(ratio * (step - 20))) for step in listener.steps]
    assert listener.updates == expected
    assert len(listener.metrics) == expected[-1] == model.num_updates
    assert model.replay.steps == model.num_timesteps


@pytest.mark.parametrize("ratio", [0.25, 3])
@pytest.mark.parametrize("envs", [1, 8])
def test_with_overlap_the_ratio_holds_one_vector_step_later(ratio, envs):
    model = small(
        "memoryless", wandering(envs), update_to_data=ratio, learning_starts=20, overlap=True
    )
    listener = Listener()
    model.learn(60, listener)
    last = listener.steps[-1]
    assert listener.steps == list(range(envs, 60 + envs, envs))
    due = [max(0, int(ratio * (step - 20))) for step in listener.steps]
    assert listener.updates == [0, *due[:-2], due[-1]], "the last step leaves nothing due"
    model.learn(envs, listener)
    assert model.num_updates == max(0, int(ratio * (last + envs - 20)))


@pytest.mark.parametrize("overlap", [False, True])
def test_overlap_chooses_actions_before_the_updates_that_are_due(overlap):
    """By hand: act, learn, step with overlap; act, step, learn without it."""
    settings = {"overlap": overlap, "learning_starts": 6, "update_to_data": 0.5, "seed": 5}
    learned, own = (small("vssm+kf", wandering(3), **settings) for _ in range(2))
    learned.learn(60)
    training = own._training
    for step in range(20):
        training.ask()
        before = training.updates_due() if overlap else 0
        for _ in range(before):
            training.update()
            training.updates += 1
        training.collect()
        for _ in range(0 if overlap and step < 19 else training.updates_due()):
            training.update()
            training.updates += 1
    assert training.updates == learned.num_updates == 27
    for name, x in learned.learner.state_dict().items():
        assert torch.equal(x, own.learner.state_dict()[name]), name
    assert torch.equal(
        learned.replay.state_dict()["storage"]["action"],
        own.replay.state_dict()["storage"]["action"],
    )


def test_overlap_learns_something_else():
    losses = []
    for overlap in (False, True):
        listener = Listener()
        small("vssm+kf", wandering(3), overlap=overlap).learn(60, listener)
        losses.append([metrics["train/critic_loss"] for metrics in listener.metrics])
    assert len(losses[0]) == len(losses[1])
    assert losses[0] != losses[1]


def test_actions_that_are_chosen_and_not_taken_are_no_checkpoint():
    model = small("gru", wandering(2), overlap=True)
    model.learn(30)
    model.checkpoint_state()
    model._training.ask()
    with pytest.raises(ValueError, match="between the choice of actions and their step"):
        model.checkpoint_state()
    asked = model._training.pending
    model._training.ask()
    assert model._training.pending is asked, "asking twice asks once"


def test_ratios_that_are_no_binary_fractions_are_exact():
    settings = AgentSettings(update_to_data=0.29, learning_starts=0)
    assert settings.updates_after(100) == 29
    assert settings.updates_after(99) == 28
    assert AgentSettings(update_to_data=0.1, learning_starts=7).updates_after(37) == 3


def test_reset_steps_are_not_counted():
    model = small("memoryless", counting_vector((1,), (3,), mode=NEXT), learning_starts=0)
    listener = Listener()
    model.learn(30, listener)
    assert model.num_timesteps == model.replay.steps == model.num_updates
    assert set(np.diff(listener.steps)) == {0, 1, 2}, "none, one or both were resetting"
    assert sum(e.length for e in listener.episodes) <= model.num_timesteps


def test_learning_goes_on_where_it_stopped():
    whole, halves = (small("gru", wandering(3)) for _ in range(2))
    both, first, second = Listener(), Listener(), Listener()
    whole.learn(60, both)
    halves.learn(30, first).learn(30, second)
    assert first.metrics + second.metrics == both.metrics
    assert halves.num_timesteps == whole.num_timesteps == 60


def test_warm_up_is_uniform_and_then_the_policy_acts():
    model = small("memoryless", counting_vector((50,), (60,), mode=NEXT), learning_starts=400)
    with torch.no_grad():  # a policy that always takes the first action
        model.learner.actor.head.layers[-1].bias.copy_(torch.tensor([50.0, 0.0, 0.0]))
    model.settings = model._training.settings = AgentSettings(
        learning_starts=400, update_to_data=0.0
    )
    model.learn(600)
    stored = model.replay.state_dict()["storage"]["action"]
    warm = stored[:, :200].flatten().bincount(minlength=3) / 400
    assert (warm - 1 / 3).abs().max() < 0.08
    assert (stored[:, 215:295] == 0).all()


def test_policy_listens_during_the_warm_up():
    """At the switch its state is that of the episode so far, with the random actions in it."""
    model = small("gru", wandering(2, longest=100), learning_starts=10, update_to_data=0.0)
    model.learn(10)
    state = model._training._state
    batch = model.replay.sample(40, 8, generator=torch.Generator().manual_seed(0), rule="episodes")
    whole = batch.lengths == batch.lengths.max()
    network = model.learner.actor.network
    history = read_history(batch)
    tokens = network.embed(history.observation.vector, history.previous_action)
    row = int(whole.nonzero()[0])
    n = int(batch.lengths[row]) - 1  # the last observation has not been acted on
    _, after = network.encoder(tokens[row : row + 1, :n])
    near = [torch.allclose(after[0], state.encoder[0][i : i + 1], atol=1e-5) for i in range(2)]
    assert any(near)


@pytest.mark.parametrize("envs", [1, 4])
def test_same_seed_same_metrics(envs):
    def run(seed):
        listener = Listener()
        small("vssm+kf", wandering(envs), seed=seed).learn(48, listener)
        return listener.metrics, [(e.total_reward, e.length) for e in listener.episodes]

    first, again, other = run(5), run(5), run(6)
    assert len(first[0]) == 28
    assert first == again
    assert first != other


def test_evaluation_and_diagnostics_do_not_change_the_training():
    class Looking(Callback):
        def on_step(self, model):
            if model.replay.steps:
                model.diagnostics()

    def run(*others):
        listener = Listener()
        small("vssm+kf", wandering(2)).learn(60, [listener, *others])
        return listener.metrics

    evaluation = EvalCallback(wandering(3), eval_freq=20, n_eval_episodes=4)
    assert run() == run(evaluation, Looking())
    assert [step for step, _ in evaluation.evaluations] == [20, 40, 60]
    assert all(len(actual.returns) == 4 for _, actual in evaluation.evaluations)


def test_evaluations_of_episodes_that_do_not_end_are_cut_with_a_warning():
    seen = []
    evaluation = EvalCallback(
        wandering(2),
        n_eval_episodes=2,
        eval_freq=20,
        max_steps=1,
        each_step=lambda *now: seen.append(now),
    )
    with pytest.warns(UserWarning, match="2 of 2 evaluation episodes were cut after 1 steps"):
        small("memoryless", wandering(2)).learn(20, evaluation)
    ((_, actual),) = evaluation.evaluations
    assert (actual.cut, actual.lengths.tolist()) == (2, [1, 1])
    assert seen == [(0, 0, 2)]
    with pytest.raises(ValueError, match="max_steps: got 0, expected at least 1"):
        EvalCallback(wandering(2), max_steps=0)


def test_unseeded_agents_differ_and_say_their_seed():
    models = [small("memoryless", wandering(1), seed=None) for _ in range(2)]
    assert models[0].seed != models[1].seed
    again = small("memoryless", wandering(1), seed=models[0].seed)
    wanted = models[0].learner.state_dict()["actor.head.layers.0.weight"]
    assert torch.equal(again.learner.state_dict()["actor.head.layers.0.weight"], wanted)


def test_callback_stops():
    listener, other = Listener(until=30), Listener()
    model = small("memoryless", wandering(2)).learn(1000, [listener, other])
    assert model.num_timesteps == 30
    assert other.steps == listener.steps, "all are asked before the end"
    assert (listener.starts, listener.ends) == (1, 1)


def test_callbacks_end_when_an_error_or_the_caller_ends_the_training():
    class Failing(Callback):
        def on_step(self, model):
            raise RuntimeError("no more")

    listener = Listener()
    with pytest.raises(RuntimeError, match="no more"):
        small("memoryless", wandering(2)).learn(1000, [listener, Failing()])
    assert listener.ends == 1

    listener = Listener()
    loop = small("memoryless", wandering(2)).advance(1000, listener)
    next(loop)
    loop.close()
    assert listener.ends == 1


def test_callbacks_that_have_begun_end_where_another_one_fails_to_begin():
    class Failing(Callback):
        def on_start(self, model):
            raise RuntimeError("no start")

    listener = Listener()
    with pytest.raises(RuntimeError, match="no start"):
        small("memoryless", wandering(2)).learn(1000, [listener, Failing()])
    assert (listener.starts, listener.steps, listener.ends) == (1, [], 1)


def test_learning_runs_the_loop_that_several_seeds_run(monkeypatch):
    moves = []
    real = TrainingLoop._step
    monkeypatch.setattr(TrainingLoop, "_step", lambda loop: (moves.append(loop), real(loop))[1])
    small("memoryless", wandering(2)).learn(6)
    assert [len(loop.members) for loop in moves] == [1, 1, 1]


def test_advance_yields_after_each_vector_step():
    model = small("memoryless", wandering(4))
    steps = [(m.num_timesteps, m.num_updates) for m in model.advance(40)]
    assert steps == [(n, max(0, n - 20)) for n in range(4, 44, 4)]


@pytest.mark.parametrize("envs", [2, 3, 5])
def test_another_number_of_environments(envs):
    model = small("vssm+kf", wandering(3))
    model.learn(33)
    steps, episodes = model.replay.steps, model.replay.episodes
    batch = model.replay.sample(8, 8, generator=torch.Generator().manual_seed(1))
    model.set_env(wandering(envs))
    assert (model.replay.steps, model.replay.episodes) == (steps, episodes)
    again = model.replay.sample(8, 8, generator=torch.Generator().manual_seed(1))
    assert torch.equal(batch.observation.vector, again.observation.vector)
    model.learn(10 * envs)
    assert model.num_timesteps == 33 + 10 * envs == model.replay.steps
    assert model.num_updates == model.num_timesteps - 20
    assert model.env.num_envs == envs


def test_episodes_under_way_end_as_truncated():
    model = small("memoryless", counting_vector((50,), (60,), mode=NEXT), update_to_data=0.0)
    model.learn(20)
    model.set_env(counting_vector((50,), (60,), mode=NEXT))
    model.learn(20)
    assert model.replay.episodes == 4
    batch = model.replay.sample(30, 40, generator=torch.Generator().manual_seed(0))
    assert batch.valid.sum(1).eq(10).all(), "the new episodes do not continue the old ones"
    assert not batch.terminated.any()


def test_more_environments_than_a_bounded_replay_has_room_for_change_nothing():
    def counting(envs):
        return counting_vector(*[(30,)] * envs, mode=AutoresetMode.SAME_STEP)

    model = small("memoryless", counting(1), buffer_size=80).learn(45)
    with pytest.raises(ValueError, match=r"env: got 4 environments, expected at most 2: .* of 30"):
        model.set_env(counting(4))
    assert model.learn(20).replay.steps == 65
    model.set_env(counting(2))
    assert model.learn(10).num_timesteps == 75


def test_a_bounded_replay_is_shared_out_among_more_environments():
    model = small("memoryless", wandering(2), buffer_size=100)
    model.learn(80)
    before = model.replay.steps
    model.set_env(wandering(3))
    assert 0 < model.replay.steps <= before
    model.learn(60)
    assert model.replay.steps <= 100


def test_privileged_critic_sees_the_true_state():
    model = small("vssm+kf", wandering(2), privileged_critic=True).learn(40)
    assert model.learner.sizes.privileged == 1
    batch = model.replay.sample(8, 8, generator=torch.Generator().manual_seed(0))
    left = batch.observation.privileged[..., 0]
    steps = batch.valid
    assert (left[:, :-1] - left[:, 1:])[steps].eq(1).all()


def test_oracle_and_best_arm_run():
    for privileged in (False, True):
        env = make_vector("best-arm", 4, privileged=privileged, horizon=20)
        model = small("memoryless", env).learn(60)
        assert model.num_updates == 40


@pytest.mark.parametrize("env", [Counting((1,)), counting_vector((1,), (1,), mode=NEXT)])
def test_length_one_episodes(env):
    model = small("vssm+kf", env, learning_starts=4).learn(30)
    assert model.replay.episodes == model.replay.steps == model.num_timesteps


def test_wrong_environments_are_refused():
    model = small("memoryless", wandering(1))
    with pytest.raises(ValueError, match=r"env\.observation_space: got Box.*expected Box.*train"):
        model.set_env(Counting((1,)))
    with pytest.raises(TypeError, match="env: got int"):
        small("memoryless", 3)
    with pytest.raises(ValueError, match="env: got None, expected one to train in"):
        small("memoryless").learn(1)
    with pytest.raises(ValueError, match="env: got None, expected one"):
        small("memoryless").predict(np.zeros(3))
    pole = gymnasium.make("CartPole-v1")
    with pytest.raises(ValueError, match=r"privileged_critic: got True.*no privileged_space"):
        small("memoryless", pole, privileged_critic=True)
    env = Wandering()
    env.action_space = gymnasium.spaces.Text(3)
    with pytest.raises(TypeError, match="action space: got Text"):
        small("memoryless", env)


def test_predictions_that_draw_do_not_change_the_training():
    ends = []
    for looked_at in (False, True):
        model = small("memoryless", wandering(2))
        model.learn(20)
        if looked_at:
            model.predict(model.observation_space.sample())
        model.learn(20)
        ends.append(model.learner.state_dict())
    assert all(torch.equal(x, ends[1][name]) for name, x in ends[0].items())


def test_seeds_and_sizes_are_checked_by_name(tmp_path):
    for seed in (-1, 0.5, True, 2**64):
        with pytest.raises(ValueError, match="seed: got"):
            small("memoryless", wandering(2), seed=seed)
    with pytest.raises(ValueError, match="seed: got 1000000000000000000000, expected an integer"):
        small("memoryless", wandering(2)).set_random_seed(10**21)
    with pytest.raises(ValueError, match="buffer_size: got 1, expected at least one"):
        small("memoryless", wandering(2), buffer_size=1)
    model = small("memoryless", wandering(2), seed=np.int64(3), gamma=np.float32(0.5))
    model.save(tmp_path / "model")
    assert type(model).load(tmp_path / "model").seed == 3


@pytest.mark.parametrize("wrong", ["gpu", "meta", "", None, True, torch.device("meta")])
def test_devices_are_refused_as_on_the_command_line(wrong, tmp_path):
    small("memoryless", wandering(1)).save(tmp_path / "model")
    for call in (RecurrentSAC, partial(RecurrentSAC.load, tmp_path / "model")):
        with pytest.raises(ValueError, match=r"^device: got .*, expected auto, cpu or cuda$"):
            call(device=wrong)
        with pytest.raises(ValueError, match=r"^device: got 'cuda:99', expected one that is there"):
            call(device="cuda:99")


@pytest.mark.parametrize("wrong", ["10", float("nan"), -5, True, 1.5, None])
def test_steps_of_a_training_are_a_number_of_at_least_none(wrong, tmp_path):
    model, heard = small("memoryless", wandering(1), tensorboard_log=tmp_path), Listener()
    logger, message = model.logger, f"^total_timesteps: got {wrong!r}, expected an integer of at"
    with pytest.raises(ValueError, match=message):
        model.learn(wrong, heard)
    with pytest.raises(ValueError, match=message):
        next(model.advance(wrong, heard))
    assert model.logger is logger
    assert (model.num_timesteps, heard.starts) == (0, 0)
    assert model.learn(0).learn(np.int64(1)).learn(2e0).num_timesteps == 3


def test_evaluating_in_the_training_environment_is_refused():
    env = wandering(2)
    with pytest.raises(ValueError, match="env: got the environment of the training"):
        small("memoryless", env).learn(10, EvalCallback(env))
    single = Wandering()
    model = small("memoryless", single)
    with pytest.raises(ValueError, match="env: got the environment of the training"):
        model.learn(10, EvalCallback(single))
    with pytest.raises(ValueError, match="env: got the environment of the training"):
        evaluate_policy(model, single)
    with pytest.raises(TypeError, match="expected a function of one argument, the model"):
        small("memoryless", env).learn(10, [lambda: None])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch_size", 0), ("context_length", 0), ("learning_starts", -1), ("burn_in", -1),
        ("buffer_size", 0), ("update_to_data", -0.1), ("drawing", "all"), ("batch_size", 2.0),
        ("update_to_data", float("nan")), ("bootstrap_truncated", "never"),
    ],
)  # fmt: skip
def test_settings_are_checked(name, value):
    with pytest.raises((ValueError, TypeError), match=f"{name}: got {value}|{name}: got '{value}'"):
        RecurrentSAC("gru", **{name: value})


@pytest.mark.parametrize(
    ("stated", "setting", "cut"),
    [(None, "auto", False), (False, "auto", True), (True, False, True), (False, True, False)],
)
def test_environments_and_settings_say_whether_truncation_ends_the_task(stated, setting, cut):
    env = counting_vector((3, 2), mode=AutoresetMode.SAME_STEP)  # every second one is truncated
    env.metadata = dict(env.metadata) | ({} if stated is None else {"bootstrap_truncated": stated})
    model = small("memoryless", env, learning_starts=50, bootstrap_truncated=setting).learn(40)
    windows = model.replay.sample(400, 4, generator=torch.Generator().manual_seed(0))
    ends = windows.lengths - 2  # the last transition of an episode; all of them are short
    final = windows.terminated[torch.arange(400), ends]
    truncated = windows.observation.vector[torch.arange(400), 0, 0] % 2 == 1
    whole = windows.lengths == torch.where(truncated, 3, 4)  # but for the one under way
    assert final[whole & ~truncated].all()
    assert (final[whole & truncated] == cut).all()
    assert (whole & truncated).any()


def test_an_environment_that_says_nonsense_of_truncation_is_refused():
    env = counting_vector((3,), mode=AutoresetMode.SAME_STEP)
    env.metadata = dict(env.metadata) | {"bootstrap_truncated": "no"}
    message = "bootstrap_truncated.*: got 'no', expected True or False"
    with pytest.raises(TypeError, match=message):
        small("memoryless", env)


def test_windows_from_inside_an_episode_know_the_action_before_them():
    model = small("gru", wandering(1, longest=20), learning_starts=90, context_length=3)
    model.learn(80)
    batch = model._attached().batch_aside()
    first = batch.previous_action[batch.reset] if batch.reset is not None else None
    assert first is not None
    assert (first != 0).any(), "windows from the middle do not look like beginnings"
    plain = small(
        "gru", wandering(1, longest=20), learning_starts=90, context_length=3,
        true_previous_action=False,
    ).learn(80)  # fmt: skip
    batch = plain._attached().batch_aside()
    assert (batch.previous_action[batch.reset] == 0).all()


def test_transformer_window_is_the_context():
    model = small("transformer", wandering(1), context_length=5, burn_in=2)
    assert model.learner.actor.network.encoder.window == 7
