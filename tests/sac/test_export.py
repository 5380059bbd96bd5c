"""An exported step does what `session.act` does, wherever it runs."""

import json

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import kalmanac
from kalmanac._encoders.registry import ENCODERS
from kalmanac._envs.extras import MissingExtraError
from kalmanac._sac import export
from kalmanac._sac.exported_step import ExportedStep
from kalmanac._sac.model_file import space_from_json
from kalmanac._sac.recurrent_sac import RecurrentSAC
from tests.envs.kinds import Everything, Forbidden, ImageIdentity
from tests.sac.small import Wandering, small

TOLERANCE = 1e-5


def needs_onnx():
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    return pytest.importorskip("onnx")


class Playing:
    """One episode after the other through a file, with inputs picked by its metadata."""

    def __init__(self, player):
        told = player.metadata
        read = json.loads if isinstance(told["inputs"], str) else lambda x: x
        self.player, self.paths = player, read(told["paths"])
        self.inputs = {x["name"]: x for x in read(told["inputs"])}
        self.start = True

    def act(self, observation, info):
        seen = {}
        for name, path in self.paths.items():
            seen[name] = observation
            for key in path:
                seen[name] = seen[name][key]
        seen |= {name: info[name] for name in ("observed", "action_mask") if name in self.inputs}
        arrays = {name: np.array([x], self.inputs[name]["dtype"]) for name, x in seen.items()}
        outputs = self.player.step(arrays, np.array([self.start]))
        self.start = False
        return {name: x[0] for name, x in outputs.items()}


def compare(model, env, player, steps):
    """Play `steps` of real episodes; returns the last outputs."""
    playing, session = Playing(player), model.session()
    observation, info = env.reset(seed=5)
    for _ in range(steps):
        said = {"action_masks": info.get("action_mask"), "observed": info.get("observed")}
        said = {key: x for key, x in said.items() if x is not None}
        if said.get("observed") is not None:
            said["observed"] = np.array([said["observed"]])
        action, found = session.act(observation, **said), playing.act(observation, info)
        assert found["actions"].shape == np.shape(action)
        if np.issubdtype(found["actions"].dtype, np.integer):
            assert np.array_equal(found["actions"], action)
        else:
            assert np.abs(found["actions"] - action).max() <= TOLERANCE
        for name in ("mean", "variance") if "belief_mean" in found else ():
            own = getattr(session.state.encoder, name)[0].numpy()
            assert np.abs(found[f"belief_{name}"] - own).max() <= TOLERANCE
        observation, _, terminated, truncated, info = env.step(action)
        if terminated or truncated:
            observation, info = env.reset()
            session.reset()
            playing.start = True
    return found


@pytest.fixture(scope="module")
def nest(tmp_path_factory):
    """An agent for images, codes, masks and missing readings, and its ONNX file."""
    onnx = needs_onnx()
    env = Everything(missing=True, masked=True)
    model = small("vssm+kf", env, normalize_observations=True).learn(40)
    file = tmp_path_factory.mktemp("nest") / "agent.onnx"
    assert model.export(file, distribution=True) == file
    onnx.checker.check_model(file, full_check=True)
    return model, file


def test_images_codes_masks_and_missing_readings_in_onnxruntime_as_in_a_session(nest, bench):
    model, file = nest
    player = bench("export").Onnx(file, 1)
    found = compare(model, Everything(missing=True, masked=True), player, 500)
    assert found["belief_mean"].shape == found["belief_variance"].shape == (1, 8)
    assert (found["belief_variance"] > 0).all()


def test_the_distribution_comes_out_where_it_is_asked_for(nest, bench):
    _, file = nest
    playing = Playing(bench("export").Onnx(file, 1))
    observation, info = Everything(missing=True, masked=True).reset(seed=0)
    found = playing.act(observation, info)
    assert found["logits"].shape == (6,)
    assert found["logits"][0] < -1e29, "forbidden"
    joint = np.ravel_multi_index(tuple(found["actions"]), (2, 3))
    assert joint == found["logits"].argmax()
    assert found["h_out_previous_action"].argmax() == joint


def test_a_file_says_what_it_is(nest, bench):
    model, file = nest
    told = bench("export").Onnx(file, 1).metadata
    assert told["kalmanac"] == kalmanac.__version__
    assert told["encoder"] == "vssm+kf"
    assert told["num_timesteps"] == "40"
    assert "h_in is not read" in told["reset"]
    told_spaces = json.loads(told["spaces"])
    assert space_from_json(told_spaces["observation"]) == model.observation_space
    assert space_from_json(told_spaces["action"]) == model.action_space
    assert [(x["name"], x["dtype"], x["shape"]) for x in json.loads(told["inputs"])] == [
        ("obs_camera", "uint8", [3, 9, 8]),
        ("obs_cards", "int64", [2]),
        ("obs_pose", "float32", [2]),
        ("obs_rest_0", "int8", [2]),
        ("obs_rest_1", "int64", []),
        ("h_in_mean", "float32", [1, 8]),
        ("h_in_variance", "float32", [1, 8]),
        ("h_in_previous_action", "float32", [6]),
        ("episode_start", "bool", []),
        ("observed", "bool", []),
        ("action_mask", "bool", [6]),
    ]


def test_the_digest_is_that_of_what_was_learned(nest, bench):
    model, file = nest

    def digest():
        step = ExportedStep(model._problem, model.learner, model.normalizer)
        return export.digest(step)

    first = digest()
    assert bench("export").Onnx(file, 1).metadata["digest"] == first
    bias = model.learner.averaged.head.layers[0].bias
    with torch.no_grad():
        bias[0] += 1e-3
        assert digest() != first
        bias[0] -= 1e-3
    assert digest() == first
    model.normalizer.squares[0] += 1
    assert digest() != first
    model.normalizer.squares[0] -= 1


@pytest.mark.slow
def test_any_number_of_rows_with_resets_of_their_own(bench, tmp_path):
    needs_onnx()
    script = bench("export")
    model = script.trained("gru", "continuous")
    file = model.export(tmp_path / "agent.onnx", distribution=True)
    player = script.Onnx(file, script.ROWS)
    found = script.parity(model, "continuous", player)
    assert max(found["actions"], found["memory"]) <= TOLERANCE
    outputs = script.Onnx(file, 1).step({"obs": np.zeros((1, 4), np.float32)}, np.array([True]))
    share = (np.tanh(outputs["action_mean"]) + 1) / 2
    low, high = model.action_space.low, model.action_space.high
    assert np.allclose(outputs["actions"], low + (high - low) * share, atol=TOLERANCE)
    assert outputs["action_log_std"].shape == (1, 2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["discrete", "continuous", "masks", "missing", "image"])
@pytest.mark.parametrize("encoder", ENCODERS)
def test_every_encoder_in_onnxruntime_as_in_a_session(encoder, kind, bench, tmp_path):
    needs_onnx()
    script = bench("export")
    model = script.trained(encoder, kind)
    player = script.Onnx(model.export(tmp_path / "agent.onnx"), script.ROWS)
    found = script.parity(model, kind, player)
    assert found["different discrete actions"] == 0
    assert max(found["actions"], found["memory"]) <= TOLERANCE


@pytest.mark.slow
def test_an_image_alone(bench, tmp_path):
    needs_onnx()
    model = small("vssm+kf", ImageIdentity(), normalize_observations=True).learn(24)
    file = model.export(tmp_path / "agent.onnx")
    compare(model, ImageIdentity(), bench("export").Onnx(file, 1), 40)


class Plain(gymnasium.Env):
    """Observations and actions of other dtypes and shapes."""

    def __init__(self):
        self.observation_space = spaces.Dict(
            {
                "a/b": spaces.Box(-9, 9, (), np.float64),
                "a.b": spaces.Box(-9, 9, (2, 2), np.int64),
            }
        )
        sides = np.array([[-1e6], [0.0]]), np.array([[1e6], [1e-3]])
        self.action_space = spaces.Box(*sides, dtype=np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._show(), {}

    def step(self, action):
        return self._show(), 0.0, False, bool(self.np_random.random() < 0.2), {}

    def _show(self):
        rng = self.np_random
        return {"a/b": np.array(rng.normal()), "a.b": rng.integers(-9, 10, (2, 2))}


def played(bench, tmp_path, model):
    return bench("export").Pt2(model.export(tmp_path / "agent.pt2"), 1)


def test_a_pt2_file_of_images_alone(bench, tmp_path):
    model = small("gru", ImageIdentity(), normalize_observations=True, normalize_rewards=True)
    found = compare(model, ImageIdentity(), played(bench, tmp_path, model), 10)
    assert "actions" in found


def test_other_dtypes_and_shapes_and_names_that_collide(bench, tmp_path):
    model = small("memoryless", Plain())
    player = played(bench, tmp_path, model)
    names = [x["name"] for x in player.metadata["inputs"]]
    assert names == ["obs_0", "obs_1", "episode_start"], "nothing to remember"
    playing, session = Playing(player), model.session()
    for seed in range(20):
        observation, _ = Plain().reset(seed=seed)
        found, action = playing.act(observation, {})["actions"], session.act(observation)
        assert found.dtype == action.dtype == np.float64
        assert np.allclose(found, action, rtol=1e-5, atol=1e-9)


def test_a_mask_inside_the_observation_is_an_input_of_its_own(bench, tmp_path):
    model = small("vssm", Forbidden(inside=True))
    playing = Playing(played(bench, tmp_path, model))
    assert "obs_action_mask" not in playing.inputs
    env, session = Forbidden(inside=True), model.session()
    observation, _ = env.reset(seed=0)
    over = False
    while not over:
        action = session.act(observation)
        mask = {"action_mask": observation["action_mask"]}
        assert playing.act(observation, mask)["actions"] == action
        observation, _, over, _, _ = env.step(action)


@pytest.mark.slow
def test_the_averaged_policy_is_exported_and_dropout_is_not(bench, tmp_path):
    model = small(
        "transformer", Wandering(), average_policy=True, tau=1e-3, learning_rate=1e-2,
        encoder_settings={"window": 5, "dropout": 0.5, "feedforward": 8},
    ).learn(40)  # fmt: skip
    assert model.learner.averaged is not model.learner.actor
    compare(model, Wandering(), played(bench, tmp_path, model), 60)


def test_the_last_reward_is_an_input_where_the_agent_knows_it():
    env = Wandering(longest=40)
    model = small("gru", env, previous_reward=True, normalize_rewards=True).learn(120)
    step = ExportedStep(model._problem, model.learner, model.normalizer, model._policy.return_scale)
    inputs, session = step.example(), model.session()
    observation, reward, rewards = env.reset(seed=5)[0], 0.0, set()
    inputs["episode_start"][:] = True
    for _ in range(5):
        inputs |= {"obs": torch.as_tensor(observation).repeat(2, 1)}
        inputs |= {"previous_reward": torch.full((2,), reward)}
        found = step(inputs)
        action = session.act(observation, previous_reward=reward)
        assert np.abs(found["actions"][0].numpy() - action).max() <= TOLERANCE
        inputs |= {f"h_in_{x}": found[f"h_out_{x}"] for x in (*step.fields, "previous_action")}
        inputs["episode_start"] = torch.zeros(2, dtype=torch.bool)
        observation, reward, *_ = env.step(action)
        rewards.add(reward)
    assert len(rewards) == 5
    other = step(inputs | {"previous_reward": torch.full((2,), 9.0)})
    assert not torch.equal(other["actions"], step(inputs)["actions"])


def test_bad_calls_are_refused(tmp_path, monkeypatch):
    model = small("memoryless", Wandering())
    with pytest.raises(ValueError, match=r"path: got 'agent\.pt', expected a name in \.onnx or"):
        model.export(tmp_path / "agent.pt")
    with pytest.raises(ValueError, match="env: got None"):
        RecurrentSAC("gru").export(tmp_path / "agent.onnx")
    monkeypatch.setattr(export, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r'onnx is not installed: pip install "kalmanac\[e'):
        model.export(tmp_path / "agent.onnx")
    assert list(tmp_path.iterdir()) == []
