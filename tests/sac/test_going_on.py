"""Going on with a saved agent: it learns at once, from its old replay, with other settings."""

import copy

import gymnasium
import pytest
import torch

from kalmanac._replay import replay_file
from kalmanac._sac.config import AgentSettings
from kalmanac._sac.recurrent_sac import RecurrentSAC
from tests.replay.model import assert_same
from tests.sac.small import Listener, small, wandering


@pytest.fixture
def saved(tmp_path):
    """A model that has learned for 40 steps, its file, and that of its replay."""
    model = small("vssm+kf", wandering(2)).learn(40)
    model.save(tmp_path / "m")
    model.save_replay_buffer(tmp_path / "m")
    return model, tmp_path / "m.safetensors", tmp_path / "m.replay"


def load(path, env=None, **changes):
    return RecurrentSAC.load(path, env, device="cpu", **changes)


def test_a_warm_up_is_what_the_agent_has_not_seen_and_at_least_a_batch():
    settings = AgentSettings(learning_starts=100, batch_size=8)
    assert settings.warm_up() == 100
    assert settings.warm_up(steps_before=5000) == 8
    assert settings.warm_up(steps_before=60) == 40, "it was saved before its first update"
    assert settings.warm_up(steps_before=5000, stored=5) == 3
    assert settings.warm_up(steps_before=5000, stored=5000) == 0
    assert AgentSettings(learning_starts=4, batch_size=8).warm_up() == 4
    assert AgentSettings(learning_starts=0, batch_size=8).warm_up(steps_before=50) == 0


@pytest.mark.parametrize("ratio", [0.25, 1, 3])
@pytest.mark.parametrize("envs", [1, 3])
def test_a_loaded_agent_learns_at_once_and_keeps_the_ratio(ratio, envs, saved):
    loaded, listener = load(saved[1], wandering(envs), update_to_data=ratio), Listener()
    loaded.learn(30, listener)
    new = [step - 40 for step in listener.steps]
    assert listener.updates == [20 + max(0, int(ratio * (n - 4))) for n in new]


def test_an_agent_that_was_saved_in_its_warm_up_ends_it(tmp_path):
    small("memoryless", wandering(2), update_to_data=1.0).learn(10).save(tmp_path / "m")
    loaded = load(tmp_path / "m", wandering(2)).learn(20)
    assert (loaded.num_timesteps, loaded.num_updates) == (30, 10)


@pytest.mark.parametrize("bound", [None, 30])
def test_a_replay_goes_on_where_it_was_saved(bound, tmp_path, monkeypatch):
    monkeypatch.setattr(replay_file, "PIECE", 200)  # several pieces
    model = small("gru", wandering(3), buffer_size=bound, privileged_critic=True).learn(60)
    model.save(tmp_path / "m")
    model.save_replay_buffer(tmp_path / "kept")
    loaded = load(tmp_path / "m", wandering(3))
    loaded.load_replay_buffer(tmp_path / "kept")
    assert loaded.replay.steps == model.replay.steps
    assert loaded.replay.episodes == model.replay.episodes
    drawn = [
        m.replay.sample(16, 8, generator=torch.Generator().manual_seed(0)) for m in (model, loaded)
    ]
    assert_same(*drawn)
    listener = Listener()
    loaded.learn(30, listener)
    assert listener.updates == [40 + n for n in range(3, 33, 3)], "from the first step on"
    assert loaded.replay.steps == (model.replay.steps + 30 if bound is None else 30)


def test_saving_a_replay_changes_nothing(tmp_path):
    runs = []
    for saves in (False, True):
        model = small("memoryless", wandering(2)).learn(30)
        if saves:
            model.save_replay_buffer(tmp_path / "kept")
        listener = Listener()
        model.learn(20, listener)
        runs.append(listener.metrics)
    assert runs[0] == runs[1]
    assert [file.name for file in tmp_path.iterdir()] == ["kept.replay"]


def test_a_new_agent_learns_from_the_replay_of_another(saved):
    new, listener = small("gru", wandering(4)), Listener()
    new.load_replay_buffer(saved[2])
    new.learn(8, listener)
    assert listener.updates == [4, 8]
    assert new.replay.steps == 48
    assert new.replay.streams == 4


def test_loading_a_replay_ends_the_episodes_under_way(saved):
    model = small("gru", wandering(2, longest=50)).learn(30)
    model.load_replay_buffer(saved[2])
    assert not model.replay.state_dict()["episodes"]["open"].any()
    model.learn(10)
    assert model.replay.steps == 50
    assert model.num_timesteps == 40


def test_a_run_of_checkpoints_counts_what_was_loaded(saved):
    model = load(saved[1], wandering(2))
    model.load_replay_buffer(saved[2])
    model.learn(10)
    state, other = model.checkpoint_state(), load(saved[1], wandering(2))
    other.load_replay_buffer(saved[2])
    other.load_checkpoint_state(state)
    assert other._training.updates_due() == 0


def damaged(file, place, *, cut=False):
    content = bytearray(file.read_bytes())
    content = content[:place] if cut else content
    if not cut:
        content[place] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("place", [30, 1000, -200, -3])
@pytest.mark.parametrize("cut", [False, True])
def test_a_damaged_replay_is_refused_and_nothing_changes(place, cut, saved):
    model, _, file = saved
    damaged(file, place, cut=cut)
    before = model.replay
    with pytest.raises(ValueError, match=rf"path: got {file}, which is (damaged|malformed)|whole"):
        model.load_replay_buffer(file)
    assert model.replay is before


def test_foreign_files_are_refused_by_name(saved, tmp_path):
    model, own, _ = saved
    with pytest.raises(FileNotFoundError, match=r"path: got .*nothing.* an existing replay"):
        model.load_replay_buffer(tmp_path / "nothing")
    for content in (own.read_bytes(), b"hello", b""):
        (tmp_path / "foreign").write_bytes(content)
        with pytest.raises(ValueError, match="expected a file written by `save_replay_buffer`"):
            model.load_replay_buffer(tmp_path / "foreign")


def test_a_replay_of_another_environment_is_refused_by_name(saved):
    file = saved[2]
    other = small("memoryless", gymnasium.make("CartPole-v1"))
    with pytest.raises(ValueError, match=r"observation_space: got Box.* in .*expected Box.*model"):
        other.load_replay_buffer(file)
    privileged = small("memoryless", wandering(2), privileged_critic=True)
    with pytest.raises(ValueError, match="privileged_space: got None in "):
        privileged.load_replay_buffer(file)
    bounded = small("memoryless", wandering(2), buffer_size=50)
    with pytest.raises(ValueError, match=r"buffer_size: got None in .*, expected 50 as in the"):
        bounded.load_replay_buffer(file)
    with pytest.raises(ValueError, match="env: got None, expected one to train in"):
        load(saved[1]).load_replay_buffer(file)


def test_a_bounded_replay_is_shared_out_anew_for_more_environments(tmp_path):
    small("memoryless", wandering(2), buffer_size=50).learn(20).save_replay_buffer(tmp_path / "r")
    wider = small("memoryless", wandering(3), buffer_size=50)
    wider.load_replay_buffer(tmp_path / "r")
    assert (wider.replay.streams, wider.replay.capacity, wider.replay.steps) == (3, 50, 20)
    assert wider.learn(60).replay.steps <= 50


def test_settings_of_a_loaded_agent_can_be_changed(saved):
    changes = {
        "learning_rate": 1e-4, "tau": 0.1, "average_span": 0.3, "gamma": 0.5, "batch_size": 3,
        "update_to_data": 0.5, "drawing": "starts", "context_length": 5, "burn_in": 2, "seed": 9,
        "max_grad_norm": 1.0, "target_entropy": -3.0, "buffer_size": 100,
    }  # fmt: skip
    loaded = load(saved[1], wandering(2), **changes)
    config = {**vars(loaded.settings), "seed": loaded.seed}
    assert {name: config[name] for name in changes} == changes
    assert loaded.learner.optimizer.learning_rate == 1e-4
    assert loaded.learner.optimizer.trailing.rates == {"actor": 0.1, "critic": 0.1}
    assert loaded.learner.optimizer.trailing.fades == 1 / 0.3
    assert loaded.learner.entropy_goal == -3.0
    for name, x in saved[0].learner.state_dict().items():
        assert torch.equal(x, loaded.learner.state_dict()[name]), name
    loaded.learn(20)
    assert loaded.num_updates == 20 + (20 - 3) // 2


@pytest.mark.parametrize("before", [0.0, 0.2, "auto"])
@pytest.mark.parametrize("after", [0.5, "auto"])
def test_the_temperature_can_be_changed(before, after, tmp_path):
    model = small("memoryless", wandering(2), ent_coef=before, learning_rate=1e-2).learn(40)
    model.save(tmp_path / "m")
    loaded = load(tmp_path / "m", wandering(2), ent_coef=after)
    was, now = (m.learner.log_alpha.exp().item() for m in (model, loaded))
    goes_on = 1.0 if before == 0.0 else was
    assert now == pytest.approx(0.5 if after == 0.5 else goes_on)
    then, here = (m.learner.optimizer for m in (model, loaded))
    learned = then.spans["critic"].stop
    assert torch.equal(
        then.state_dict()["average"][:learned], here.state_dict()["average"][:learned]
    )
    loaded.learn(20)
    moved = loaded.learner.log_alpha.exp().item() != pytest.approx(now, rel=1e-6)
    assert moved is (after == "auto")


def test_a_learned_temperature_can_be_left_out(saved):
    loaded = load(saved[1], wandering(2), ent_coef=0.0)
    assert loaded.learn(20).learner.log_alpha.exp().item() == 0


def test_a_learned_temperature_can_begin_anew(saved):
    loaded = load(saved[1], wandering(2), initial_ent_coef=0.01)
    assert loaded.learner.log_alpha.exp().item() == pytest.approx(0.01)
    assert load(saved[1]).learner.log_alpha.item() == saved[0].learner.log_alpha.item()


@pytest.mark.parametrize(
    ("name", "value"),
    [("encoder", "gru"), ("actor_hidden", (8,)), ("embedding", 3), ("encoder_settings", {}),
     ("normalize_observations", True), ("privileged_critic", True), ("learnin_rate", 1.0)],
)  # fmt: skip
def test_what_decides_the_networks_is_refused_by_name(name, value, saved):
    with pytest.raises(ValueError, match=f"^{name}: got .* for a model that is loaded, expected"):
        load(saved[1], **{name: value})


def test_a_value_that_no_agent_may_have_is_refused_as_ever(saved):
    with pytest.raises(ValueError, match=r"tau: got 2\.0"):
        load(saved[1], tau=2.0)


def test_a_transformer_keeps_its_window(tmp_path):
    small("transformer", wandering(2)).save(tmp_path / "m")
    with pytest.raises(ValueError, match=r"^context_length: got 20 for a model that is loaded"):
        load(tmp_path / "m", context_length=20)


def test_a_policy_alone_takes_changes_and_acts(saved, tmp_path):
    saved[0].save(tmp_path / "alone", policy_alone=True)
    assert load(tmp_path / "alone", ent_coef=0.1).num_timesteps == 40


@pytest.mark.parametrize("steps", [0, 60])
def test_a_copied_agent_goes_on_as_the_first(steps):
    settings = {"normalize_observations": True, "normalize_rewards": True}
    one = small("gru", wandering(2), **settings)
    one.learn(steps)
    other = copy.deepcopy(one)
    before = other.get_parameters()
    one.learn(60)
    assert all(torch.equal(x, before[name]) for name, x in other.get_parameters().items())
    other.learn(60)
    found = other.get_parameters()
    assert all(torch.equal(x, found[name]) for name, x in one.get_parameters().items())


@pytest.mark.gpu
def test_a_replay_goes_from_a_gpu_to_the_cpu_and_back(tmp_path):
    model = small("gru", wandering(2), device="cuda").learn(40)
    model.save(tmp_path / "m")
    model.save_replay_buffer(tmp_path / "m")
    for device in ("cpu", "cuda"):
        loaded = RecurrentSAC.load(tmp_path / "m", wandering(2), device=device, learning_rate=1e-4)
        loaded.load_replay_buffer(tmp_path / "m")
        assert loaded.learn(20).num_updates == 40
    assert isinstance(loaded.env.single_action_space, gymnasium.spaces.Box)
