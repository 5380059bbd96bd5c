import json
import struct

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from kalmanac._encoders.registry import ENCODERS
from kalmanac._sac.model_file import read_model, space_from_json, space_to_json, write_model
from kalmanac._sac.recurrent_sac import RecurrentSAC
from tests.sac.small import Listener, small, wandering


def actions(model):
    """Of two episodes under way, deterministic ones and then drawn ones."""
    rng = np.random.default_rng(0)
    state, actual = None, []
    for t in range(10):
        seen = rng.standard_normal((2, 3)).astype(np.float32)
        action, state = model.predict(seen, state, deterministic=t < 6)
        actual.append(action)
    return np.array(actual)


@pytest.mark.parametrize(
    ("encoder", "normalized"), [("vssm+kf", False), *((name, True) for name in ENCODERS)]
)
def test_loaded_predicts_the_same_without_an_environment(encoder, normalized, tmp_path):
    model = small(encoder, wandering(2), normalize_observations=normalized)
    model.learn(30).save(tmp_path / "model")
    loaded = RecurrentSAC.load(tmp_path / "model", device="cpu")
    assert loaded.env is None
    assert loaded.observation_space == model.observation_space
    assert loaded.action_space == model.action_space
    assert (loaded.num_timesteps, loaded.num_updates) == (30, 10)
    np.testing.assert_array_equal(actions(model), actions(loaded))


def test_loaded_goes_on_learning(tmp_path):
    model = small("vssm+kf", wandering(2), ent_coef="auto").learn(40)
    model.save(tmp_path / "m.safetensors")
    runs = []
    for _ in range(2):
        loaded = RecurrentSAC.load(tmp_path / "m.safetensors", wandering(3), device="cpu")
        listener = Listener()
        loaded.learn(60, listener)
        runs.append(listener.metrics)
    assert runs[0] == runs[1]
    assert loaded.num_timesteps == 100
    assert len(runs[0]) == 60 - 4, "as soon as a batch can be drawn"
    assert loaded.num_updates == 20 + 56
    temperature = model.learner.log_alpha.exp().item()
    assert runs[0][0]["train/ent_coef"] == pytest.approx(temperature), "not where a new one starts"


def test_loaded_acts_itself_while_it_fills_its_replay(tmp_path):
    model = small("memoryless", wandering(2)).learn(24)
    with torch.no_grad():
        for layer in (model.learner.actor.head.layers[-1],):
            layer.weight.zero_()
            layer.bias.copy_(torch.tensor([4.0, -4.0, -20.0, -20.0]))
    model.save(tmp_path / "m")
    loaded = RecurrentSAC.load(tmp_path / "m", wandering(2), device="cpu").learn(10)
    taken = loaded.replay.state_dict()["storage"]["action"]
    assert (taken[:, :4, 0] >= 0).all()
    assert (taken[:, 0, 0] > 0.99).all()


def test_settings_survive(tmp_path):
    settings = {
        "gamma": 0.9, "tau": 0.1, "ent_coef": 0.2, "drawing": "starts", "burn_in": 3,
        "buffer_size": 500, "update_to_data": 0.25, "max_grad_norm": 1.5, "learning_rate": 1e-2,
        "privileged_critic": True, "log_std_range": (-5.0, 1.0),
    }  # fmt: skip
    model = small("transformer", wandering(1), **settings)
    model.save(tmp_path / "m")
    loaded = RecurrentSAC.load(tmp_path / "m", wandering(2), device="cpu")
    assert loaded.settings == model.settings
    assert loaded.seed == model.seed
    loaded.learn(40)


def test_file_is_plain(tmp_path):
    path = tmp_path / "m.safetensors"
    small("gru", wandering(1)).save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["m.safetensors"]
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])["__metadata__"]
    assert header["format"] == "kalmanac-model"
    assert header["version"] == "2"
    json.loads(header["document"])
    assert any(name.endswith("actor.head.layers.0.weight") for name in load_file(path))


def test_failed_write_leaves_the_old_file(tmp_path):
    write_model(tmp_path / "m", {"x": 1})
    with pytest.raises(TypeError, match="/y: got object, expected arrays, tensors and plain"):
        write_model(tmp_path / "m", {"y": object()})
    assert read_model(tmp_path / "m") == {"x": 1}
    assert len(list(tmp_path.iterdir())) == 1


def test_other_files_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"path: got .*nothing"):
        RecurrentSAC.load(tmp_path / "nothing")
    (tmp_path / "text.safetensors").write_text("hello")
    with pytest.raises(ValueError, match=r"expected a whole \.safetensors file"):
        RecurrentSAC.load(tmp_path / "text.safetensors")
    save_file({"x": torch.zeros(1)}, tmp_path / "foreign.safetensors")
    with pytest.raises(ValueError, match="expected a file written by `save`"):
        RecurrentSAC.load(tmp_path / "foreign.safetensors")
    header = {"format": "kalmanac-model", "version": "99", "document": "{}"}
    save_file({"x": torch.zeros(1)}, tmp_path / "new.safetensors", metadata=header)
    with pytest.raises(ValueError, match="format version 99, expected 2"):
        RecurrentSAC.load(tmp_path / "new.safetensors")


def test_loading_with_another_environment_is_refused(tmp_path):
    small("gru", wandering(1)).save(tmp_path / "m")
    with pytest.raises(ValueError, match=r"env\.observation_space: got"):
        RecurrentSAC.load(tmp_path / "m", gymnasium.make("CartPole-v1"))


numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
plain = st.none() | st.booleans() | st.text() | numbers
trees = st.recursive(
    plain,
    lambda t: st.lists(t) | st.dictionaries(st.text() | st.integers(), t) | st.tuples(t, t),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), trees))
def test_plain_documents_survive(tmp_path_factory, document):
    path = tmp_path_factory.getbasetemp() / "plain.safetensors"
    write_model(path, document)
    assert read_model(path) == document


def test_tensors_survive_in_their_places(tmp_path):
    x = torch.arange(6.0).reshape(2, 3)
    document = {"a": {0: x, "t": (x.t(), x.long())}, "b": [x[0], torch.tensor(True)]}
    write_model(tmp_path / "m", document)
    actual = read_model(tmp_path / "m")
    assert torch.equal(actual["a"][0], x)
    assert torch.equal(actual["a"]["t"][0], x.t())
    assert actual["a"]["t"][1].dtype == torch.int64
    assert torch.equal(actual["b"][0], x[0])
    assert actual["b"][1].item() is True


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-1, 1, (2, 3), np.float32),
        spaces.Box(np.array([-np.inf, 0.1]), np.array([1e-7, np.inf]), dtype=np.float64),
        spaces.Box(0, 255, (4, 4, 3), np.uint8),
        spaces.Box(-np.inf, np.inf, (1,), np.float32),
        spaces.Discrete(5),
        spaces.Discrete(3, start=-1),
        spaces.MultiDiscrete([2, 3], start=[1, -1]),
        spaces.MultiDiscrete([[2, 3], [4, 5]], dtype=np.int32),
        spaces.MultiBinary(4),
        spaces.MultiBinary([2, 3]),
        spaces.MultiBinary([4]),
        spaces.Tuple((spaces.Discrete(2), spaces.Box(-1, 1, (2,)))),
        spaces.Dict({"b": spaces.Dict({"x": spaces.MultiBinary(2)}), "a": spaces.Discrete(2)}),
    ],
    ids=str,
)
def test_spaces_survive_as_json(space):
    text = json.dumps(space_to_json(space), allow_nan=False)
    actual = space_from_json(json.loads(text))
    assert actual == space
    assert actual.dtype == space.dtype


def test_unknown_spaces_are_refused():
    with pytest.raises(TypeError, match="space: got Text, expected Box, Discrete, Multi"):
        space_to_json(spaces.Dict({"a": spaces.Text(2)}))
    with pytest.raises(ValueError, match="space: got type 'Graph'"):
        space_from_json({"type": "Graph"})


@pytest.mark.gpu
@pytest.mark.parametrize("encoder", ENCODERS)
def test_trained_on_cuda_predicts_the_same_on_the_cpu(encoder, tmp_path):
    model = small(encoder, wandering(2), normalize_observations=True, device="cuda").learn(40)
    assert model.replay.device.type == "cuda"
    model.save(tmp_path / "m")
    loaded = RecurrentSAC.load(tmp_path / "m", wandering(2), device="cpu")
    seen = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    there, here = (m.predict(seen, deterministic=True)[0] for m in (model, loaded))
    np.testing.assert_allclose(there, here, atol=1e-4)
    loaded.learn(30)


def test_a_policy_alone_acts_the_same_in_a_small_file_and_does_not_learn_on(tmp_path):
    model = small("vssm+kf", wandering(2), normalize_observations=True).learn(40)
    for name, alone in (("whole", False), ("alone", True)):
        model.save(tmp_path / name, policy_alone=alone)
    loaded = RecurrentSAC.load(tmp_path / "alone", device="cpu")
    np.testing.assert_array_equal(actions(model), actions(loaded))
    assert loaded.num_timesteps == 40
    whole, alone = (
        (tmp_path / f"{name}.safetensors").stat().st_size for name in ("whole", "alone")
    )
    assert alone < whole / 3
    assert not any("critic" in name for name in load_file(tmp_path / "alone.safetensors"))
    message = "env: got one to train in, expected None: the model's file holds its policy alone"
    with pytest.raises(ValueError, match=message):
        loaded.set_env(wandering(2))
    with pytest.raises(ValueError, match=message):
        RecurrentSAC.load(tmp_path / "alone", wandering(2), device="cpu")
