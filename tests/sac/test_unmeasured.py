"""A missing reading takes nothing with it that no sensor reads, such as a reference."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import FrameStackObservation, TransformObservation

from kalmanac import (
    Corruption,
    HiddenNumbers,
    ObservationNoise,
    PrivilegedObservation,
    RecurrentSAC,
    corrupted,
    make_vector,
)
from kalmanac._envs.observation_codecs import observation_codec, unmeasured_places
from kalmanac._sac.exported_step import ExportedStep
from kalmanac._sac.problem import Problem
from tests.sac.small import small

NEXT_STEP = AutoresetMode.NEXT_STEP


class Steered(gymnasium.Env):
    """Two readings around 5, which may be missing, and a reference, which the task gives."""

    unmeasured = (1,)
    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, broken=0.0):
        self.broken, self.time = broken, 0  # what stands where a reading is missing

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self._seen()

    def step(self, action):
        self.time += 1
        observation, info = self._seen()
        return observation, float(-abs(action[0])), False, self.time == 6, info

    def _seen(self):
        there = bool(self.np_random.random() < 0.5)
        readings = 5 + self.np_random.standard_normal(2) if there else [self.broken] * 2
        seen = np.array([readings[0], 1 + self.time, readings[1]], np.float32)
        return seen, {"observed": there}


def several(count=2, **settings):
    return SyncVectorEnv([lambda: Steered(**settings)] * count, autoreset_mode=NEXT_STEP)


@pytest.mark.parametrize("broken", [0.0, 3.0, np.nan])
@pytest.mark.parametrize("normalized", [False, True])
def test_what_is_learned_from_has_the_reference_and_no_missing_reading(broken, normalized):
    model = small("gru", several(broken=broken), normalize_observations=normalized).learn(60)
    batch = model._training.batch_aside()
    vector, observed = batch.observation.vector, batch.observation.observed
    token = torch.arange(vector.shape[1]) < batch.lengths[:, None]
    missing, there = token & ~observed, token & observed
    assert missing.any()
    assert there.any()
    assert (vector[missing][:, [0, 2]] == 0).all()
    reference = 1.0 + torch.arange(vector.shape[1]).expand_as(token)
    if normalized:
        mean, deviation = model.normalizer.mean[1], model.normalizer.variance[1] ** 0.5
        reference = (reference - mean) / deviation
    torch.testing.assert_close(vector[..., 1][token], reference[token].float(), atol=1e-4, rtol=0)


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("broken", [0.0, 9.0, np.nan])
def test_what_is_acted_on_too_and_in_an_exported_step(broken, normalized):
    model = small("gru", several(broken=broken), normalize_observations=normalized).learn(60)
    here = {"observed": np.array([False])}
    lost = np.array([[broken, 2.0, broken]], np.float32)
    other = np.array([[broken, 6.0, broken]], np.float32)
    acted = [model.predict(x, deterministic=True, **here)[0] for x in (lost, other)]
    assert not np.allclose(*acted, atol=1e-4), "the reference is seen"
    again = model.predict(np.float32([[7.0, 2.0, -7.0]]), deterministic=True, **here)[0]
    np.testing.assert_array_equal(again, acted[0], "what is missing is not")
    problem, policy = model._known()
    step = ExportedStep(problem, policy.learner, model.normalizer)
    inputs = {name: x[:1].clone() for name, x in step.example().items()}
    for x, wanted in zip((lost, other), acted, strict=True):
        given = {"obs": torch.from_numpy(x), "observed": torch.tensor([False])}
        assert given.keys() <= inputs.keys()
        found = step(inputs | given)["actions"].detach().numpy()
        np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_a_saved_agent_knows_the_places(tmp_path):
    model = small("gru", several(), normalize_observations=True).learn(60)
    model.save(tmp_path / "agent")
    loaded = RecurrentSAC.load(tmp_path / "agent.safetensors", device="cpu")
    assert loaded._known()[0].unmeasured == (1,)
    seen, here = np.float32([[0, 2, 0]]), np.array([False])
    one, other = (x.predict(seen, deterministic=True, observed=here)[0] for x in (model, loaded))
    np.testing.assert_array_equal(one, other)


def before(document):
    """As an older version wrote it."""
    return {key: x for key, x in document.items() if key != "unmeasured"}


def test_a_problem_from_before_has_none():
    document = Problem.of(several(), privileged=False).to_json()
    assert Problem.from_json(document).unmeasured == (1,)
    assert Problem.from_json(before(document)).unmeasured == ()


def test_a_problem_without_any_is_written_as_before():
    env = make_vector("motor", 1)
    assert unmeasured_places(env) == (2,)
    problem = Problem.of(env, privileged=False)
    assert problem.unmeasured == (), "no reading of it can be missing"
    assert "unmeasured" not in problem.to_json()


@pytest.mark.parametrize("normalized", [False, True])
def test_a_run_from_before_goes_on_as_it_was(normalized):
    """It has learned with zeros at all places of a gap."""
    first = small("gru", several(), normalize_observations=normalized).learn(60)
    state = first.checkpoint_state()
    seen, here = np.float32([[0, 2, 0]]), np.array([False])
    for spaces_, expected in ((state["spaces"], (1,)), (before(state["spaces"]), ())):
        model = small("gru", several(), normalize_observations=normalized)
        model.predict(seen, deterministic=True, observed=here)  # the normalizer has settled
        model.load_checkpoint_state({**state, "spaces": spaces_})
        assert model._known()[0].unmeasured == expected
        acted = model.predict(seen, deterministic=True, observed=here)[0]
        lost = model.predict(seen * 0, deterministic=True, observed=here)[0]
        assert np.array_equal(acted, lost) == (expected == ())
        model.learn(40)
        batch = model._training.batch_aside()
        vector, observed = batch.observation.vector, batch.observation.observed
        token = torch.arange(vector.shape[1]) < batch.lengths[:, None]
        observed = observed | ~token
        assert vector[~observed][:, [0, 2]].abs().sum() == 0
        assert bool(vector[~observed][:, 1].any()) == bool(expected) or normalized


def test_a_buffer_of_other_places_is_refused_where_readings_can_be_missing(tmp_path):
    model = small("gru", several()).learn(40)
    model.save_replay_buffer(tmp_path / "own")
    other = small("gru", several()).learn(40)
    other._set_unmeasured(())
    other.save_replay_buffer(tmp_path / "other")
    model.load_replay_buffer(tmp_path / "own.replay")
    with pytest.raises(ValueError, match=r"unmeasured: got \(\) in .*, expected \(1,\)"):
        model.load_replay_buffer(tmp_path / "other.replay")


def test_an_environment_of_other_places_is_refused():
    class Turned(Steered):
        unmeasured = (0,)

    model = small("gru", several()).learn(20)
    model.set_env(several())
    with pytest.raises(ValueError, match=r"env.unmeasured: got \(0,\), expected \(1,\)"):
        model.set_env(SyncVectorEnv([Turned] * 2, autoreset_mode=NEXT_STEP))


def test_places_are_found_through_wrappers_vectors_and_processes():
    bad = Corruption(noise=0.1, delay=1, dropout=0.5, dropout_flag=True)
    assert unmeasured_places(corrupted(Steered(), bad)) == (1,)
    assert unmeasured_places(several()) == (1,)
    assert unmeasured_places(gymnasium.make("CartPole-v1")) == ()
    assert unmeasured_places(PrivilegedObservation(make_vector("motor", 1))) == ()
    assert unmeasured_places(HiddenNumbers(Steered(), (0,))) == (0,)
    assert unmeasured_places(HiddenNumbers(Steered(), (1,))) == ()
    for many in (AsyncVectorEnv([Steered] * 2), make_vector("motor", 2, workers=2)):
        try:
            assert unmeasured_places(many) in ((1,), (2,))
        finally:
            many.close()


def test_a_missing_reading_of_the_motor_leaves_its_reference():
    bad = Corruption(dropout=0.9, dropout_burst=30)
    env = make_vector("motor", 3, corruption=bad)
    problem = Problem.of(env, privileged=False)
    batch, infos = env.reset(seed=0)
    found = []
    for _ in range(20):
        found.append(problem.reader.read(batch, infos))
        np.testing.assert_array_equal(found[-1].vector[:, 2], batch[:, 2])
        batch, *_, infos = env.step(np.zeros((3, 1), np.float32))
    assert any((x.vector[~x.observed, 2] != 0).any() for x in found)
    assert all((x.vector[~x.observed][:, [0, 1]] == 0).all() for x in found)


def test_an_agent_for_data_alone_is_told_them():
    model = small("gru")
    model.set_spaces(
        Steered.observation_space, Steered.action_space, observed=True, unmeasured=(1,)
    )
    assert model._known()[0].observations.measured.tolist() == [True, False, True]


@pytest.mark.parametrize(
    "given", [(1,), [1], (-2,), np.array([1]), np.flatnonzero([0, 1, 0]), (np.int64(1),), (1, 1)]
)
def test_places_may_be_any_integers(given):
    class Declares(Steered):
        unmeasured = given

    assert unmeasured_places(Declares()) == (1,)
    noisy = ObservationNoise(Declares(), 1.0)
    assert [noisy.reset(seed=seed)[0][1] for seed in range(3)] == [1, 1, 1]


@pytest.mark.parametrize("given", [(3,), (-4,), True, 1, "heat", (0.0,), ((1,),)])
def test_what_are_no_places_is_refused(given):
    class Declares(Steered):
        unmeasured = given

    with pytest.raises((TypeError, ValueError), match=r"unmeasured: got .*places of 0 to 2, such"):
        unmeasured_places(Declares())
    with pytest.raises((TypeError, ValueError), match=r"unmeasured: got .*places of 0 to 2, such"):
        small("gru").set_spaces(
            Steered.observation_space, Steered.action_space, observed=True, unmeasured=given
        )


def test_a_wrapper_that_changes_the_shape_has_to_declare_its_own():
    """Without a word of it, all of a missing reading is zeros, as ever."""
    shorter = TransformObservation(Steered(), lambda o: o[1:], spaces.Box(-9, 9, (2,), np.float32))
    stacked = FrameStackObservation(Steered(), 4)
    for env in (shorter, stacked, SyncVectorEnv([lambda: shorter], autoreset_mode=NEXT_STEP)):
        with pytest.warns(UserWarning, match="unmeasured: got .* a wrapper that changes the shape"):
            assert unmeasured_places(env) == ()
    shorter.unmeasured = (0,)
    assert unmeasured_places(shorter) == (0,)
    stacked.unmeasured = ()
    assert unmeasured_places(stacked) == ()


def test_places_of_what_is_no_vector_are_refused():
    codec = observation_codec(spaces.Dict({"a": spaces.Box(0, 1, (3,))}))
    with pytest.raises(TypeError, match=r"unmeasured: got places in Dict.*, expected a Box"):
        codec.set_unmeasured((0,))
