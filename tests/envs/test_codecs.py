"""The codecs: flat features in, the environment's own actions out."""

from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from hypothesis import given
from hypothesis import strategies as st

from kalmanac._envs.action_codecs import action_codec
from kalmanac._envs.best_arm import BestArm, BestArmVector
from kalmanac._envs.observation_codecs import observation_codec, privileged_space
from tests.envs.toys import Identity, NoisyIntegrator


def test_a_box_is_flattened_in_order():
    codec = observation_codec(spaces.Box(-1, 1, (2, 3)))
    batch = np.arange(24.0).reshape(4, 2, 3)
    assert codec.size == 6
    assert codec.encode(batch).vector.dtype == np.float32
    np.testing.assert_array_equal(codec.encode(batch).vector, batch.reshape(4, 6))


def test_a_box_without_axes_is_one_feature():
    assert observation_codec(spaces.Box(-1, 1, ())).encode(np.array([0.5, 1.0])).vector.shape == (
        2,
        1,
    )


def test_a_discrete_observation_is_one_hot_from_its_start():
    codec = observation_codec(spaces.Discrete(3, start=5))
    np.testing.assert_array_equal(codec.encode(np.array([7, 5])).vector, [[0, 0, 1], [1, 0, 0]])
    assert codec.encode(np.array([7, 5])).vector.dtype == np.float32


@pytest.mark.parametrize("space", [spaces.Box(-1, 1, (2,)), spaces.Discrete(4)])
def test_an_array_of_observations_and_a_list_encode_alike(space):
    codec = observation_codec(space)
    space.seed(0)
    rows = [space.sample() for _ in range(3)]
    loose = np.full(3, None, dtype=object)
    for i, row in enumerate(rows):
        loose[i] = row
    stacked = codec.encode(np.stack(rows)).vector
    np.testing.assert_array_equal(codec.encode(loose).vector, stacked)
    np.testing.assert_array_equal(codec.encode(rows).vector, stacked)
    assert codec.encode(loose[:0]).vector.shape == (0, codec.size)
    loose[1] = None
    with pytest.raises(ValueError, match="observation: got 1 × None"):
        codec.encode(loose)


def test_what_is_encoded_is_no_view_of_the_environments_buffer():
    codec = observation_codec(spaces.Box(-1, 1, (2,)))
    batch = np.zeros((3, 2), np.float32)
    encoded = codec.encode(batch).vector
    batch += 1
    assert (encoded == 0).all()


def test_observations_of_another_shape_or_range_are_refused():
    with pytest.raises(ValueError, match=r"observation: got shape \(4, 3\), expected \('n', 2\)"):
        observation_codec(spaces.Box(-1, 1, (2,))).encode(np.zeros((4, 3)))
    with pytest.raises(ValueError, match="observation: got 0 to 3, expected 0 to 2"):
        observation_codec(spaces.Discrete(3)).encode(np.array([0, 3]))
    with pytest.raises(ValueError, match="observation: got float64"):
        observation_codec(spaces.Discrete(3)).encode(np.array([0.0]))
    with pytest.raises(TypeError, match="observation: got dict"):
        observation_codec(spaces.Discrete(3)).encode({})


@pytest.mark.parametrize("space", [spaces.Dict({"a": spaces.Discrete(2)}), spaces.Text(3)])
def test_action_spaces_without_a_codec_are_named(space):
    with pytest.raises(TypeError, match=f"action space: got {type(space).__name__}.*expected Disc"):
        action_codec(space)


def test_action_boxes_without_bounds_or_floats_are_refused():
    with pytest.raises(ValueError, match=r"action space: got Box.*expected finite bounds"):
        action_codec(spaces.Box(-np.inf, np.inf, (2,)))
    with pytest.raises(ValueError, match="expected finite bounds"):
        action_codec(spaces.Box(np.array([0, 0]), np.array([1, np.inf]), dtype=np.float64))
    with pytest.raises(TypeError, match="expected Discrete, MultiDiscrete, MultiBinary or a Box"):
        action_codec(spaces.Box(0, 5, (2,), dtype=np.int32))


def test_discrete_actions_count_from_the_spaces_start():
    codec = action_codec(spaces.Discrete(3, start=-1))
    assert (codec.size, codec.discrete) == (3, True)
    decoded = codec.decode(np.array([0, 2]))
    assert decoded.tolist() == [-1, 1]
    assert decoded.dtype == np.int64
    with pytest.raises(ValueError, match="action: got 3 to 3, expected 0 to 2"):
        codec.decode(np.array([3]))


bounds = st.floats(-1e6, 1e6, width=32)


@given(low=bounds, width=st.floats(0.001, 1e6), share=st.floats(-1, 1))
def test_continuous_actions_span_the_box_and_never_leave_it(low, width, share):
    space = spaces.Box(np.full((2, 1), low), np.full((2, 1), low + width), dtype=np.float64)
    codec = action_codec(space)
    assert (codec.size, codec.discrete) == (2, False)
    ends = codec.decode(np.array([[-1, 1], [share, 0]], np.float32))
    assert ends.shape == (2, 2, 1)
    np.testing.assert_array_equal(ends[0, 0], space.low[0])
    np.testing.assert_array_equal(ends[0, 1], space.high[1])
    np.testing.assert_allclose(ends[1, 1], low + width / 2, rtol=1e-9, atol=1e-9)
    assert all(row in space for row in ends)


@given(low=bounds, share=st.floats(-1, 1, width=32))
def test_rounding_to_float32_keeps_an_action_in_its_box(low, share):
    space = spaces.Box(np.float32(low), np.float32(low) + np.float32(3.7), (1,))
    assert action_codec(space).decode(np.array([[share]], np.float32))[0] in space


def test_joint_actions_count_all_combinations_once():
    space = spaces.MultiDiscrete([2, 3, 2], start=[0, 5, -1])
    codec = action_codec(space)
    assert (codec.size, codec.discrete) == (12, True)
    decoded = codec.decode(np.arange(12))
    assert (decoded.shape, decoded.dtype) == ((12, 3), space.dtype)
    assert len({tuple(row) for row in decoded.tolist()}) == 12
    assert all(row in space for row in decoded)
    assert decoded[:3].tolist() == [[0, 5, -1], [0, 5, 0], [0, 6, -1]], "the last counts fastest"
    grid = action_codec(spaces.MultiDiscrete([[2, 2], [2, 2]]))
    assert grid.decode(np.array([5])).tolist() == [[[0, 1], [0, 1]]]
    with pytest.raises(ValueError, match="action: got 12 to 12, expected 0 to 11"):
        codec.decode(np.array([12]))


def test_too_many_joint_actions_are_refused_with_the_reason():
    assert action_codec(spaces.MultiDiscrete([64, 64])).size == 4096
    with pytest.raises(ValueError, match="with 4160 joint actions, expected at most 4096: the ag"):
        action_codec(spaces.MultiDiscrete([64, 65]))
    with pytest.raises(ValueError, match=f"{10**40} joint actions"):
        action_codec(spaces.MultiDiscrete([10] * 40))


@pytest.mark.parametrize("space", [spaces.Discrete(6, start=3), spaces.MultiDiscrete([2, 3])])
def test_random_actions_keep_to_the_mask(space):
    codec = action_codec(space)
    told = np.zeros((3000, *((2, 3) if isinstance(space, spaces.MultiDiscrete) else (6,))), np.int8)
    told.reshape(3000, 6)[:, [1, 4]] = 1
    told[:1000] = 1
    mask = codec.mask(told)
    assert (mask.shape, mask.dtype) == ((3000, 6), np.bool_)
    drawn = codec.sample(np.random.default_rng(0), 3000, mask)
    np.testing.assert_allclose(np.bincount(drawn[1000:], minlength=6)[[1, 4]], 1000, atol=100)
    assert set(drawn[:1000]) == set(range(6))
    for wrong in (np.ones((2, 5)), np.ones(6)):
        with pytest.raises(ValueError, match=r"action_mask: got shape .*expected \('n', 6\)"):
            codec.mask(wrong)
    with pytest.raises(ValueError, match="action_mask: got one, expected none for continuous"):
        action_codec(spaces.Box(-1, 1, (6,))).mask(np.ones((2, 6)))


def test_bad_continuous_actions_are_refused_and_rounding_is_not():
    codec = action_codec(spaces.Box(-2, 2, (1,)))
    assert codec.decode([[1 + 1e-6]]).tolist() == [[2.0]]
    for bad in (1.1, np.nan):
        with pytest.raises(ValueError, match=r"action: got .*expected values in \[-1, 1\]"):
            codec.decode([[bad]])
    with pytest.raises(ValueError, match=r"action: got shape \(1, 2\), expected \('n', 1\)"):
        codec.decode([[0.0, 0.0]])


@pytest.mark.parametrize("space", [spaces.Discrete(4, start=2), spaces.Box(-3, 1, (2, 2))])
def test_random_actions_are_uniform_and_follow_their_generator(space):
    codec = action_codec(space)
    drawn = codec.sample(np.random.default_rng(0), 4000)
    np.testing.assert_array_equal(drawn, codec.sample(np.random.default_rng(0), 4000))
    assert all(action in space for action in codec.decode(drawn))
    if codec.discrete:
        assert (drawn.shape, drawn.dtype) == ((4000,), np.int64)
        np.testing.assert_allclose(np.bincount(drawn), 1000, atol=150)
    else:
        assert (drawn.shape, drawn.dtype) == ((4000, 4), np.float32)
        np.testing.assert_allclose(drawn.mean(axis=0), 0, atol=0.05)
        np.testing.assert_allclose(drawn.var(axis=0), 1 / 3, atol=0.03)


def test_the_privileged_space_is_found_through_wrappers_and_copies():
    space = NoisyIntegrator().privileged_space
    wrapped = gymnasium.wrappers.TimeLimit(NoisyIntegrator(), 5)
    for env in (NoisyIntegrator(), wrapped, SyncVectorEnv([lambda: wrapped])):
        assert privileged_space(env) == space
    assert privileged_space(BestArmVector(2)) == privileged_space(BestArm())
    for env in (Identity(), SyncVectorEnv([Identity])):
        assert privileged_space(env) is None


# Python warns of a fork where other tests have left threads
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_environments_in_other_processes_are_asked_for_their_privileged_space():
    wrapped = partial(gymnasium.wrappers.TimeLimit, NoisyIntegrator(), 5)
    for make, space in ((wrapped, NoisyIntegrator().privileged_space), (Identity, None)):
        env = AsyncVectorEnv([make] * 2)
        try:
            assert privileged_space(env) == space
            env.reset(seed=0)  # it is alive
        finally:
            env.close()


def test_a_strange_privileged_space_is_refused():
    env = Identity()
    env.privileged_space = spaces.Discrete(2)
    with pytest.raises(TypeError, match=r"privileged_space: got Discrete\(2\), expected a Box"):
        privileged_space(env)


ACTIONS = [
    spaces.Discrete(4, start=-1),
    spaces.MultiDiscrete([2, 3], start=[1, -1]),
    spaces.MultiDiscrete([[2, 3], [4, 2]]),
    spaces.Box(np.float32([[-3, 0], [2, -1]]), np.float32([[1, 9], [2, 0]])),
]


@pytest.mark.parametrize("space", ACTIONS, ids=str)
def test_encoding_reverses_decoding(space):
    codec = action_codec(space)
    space.seed(0)
    actions = np.stack([space.sample() for _ in range(20)])
    encoded = codec.encode(actions)
    np.testing.assert_allclose(codec.decode(encoded), actions, atol=1e-5)
    assert encoded.dtype == (np.int64 if codec.discrete else np.float32)
    for wrong in (actions + 30, actions[:, None, None]):
        with pytest.raises(ValueError, match="action: got"):
            codec.encode(wrong)
