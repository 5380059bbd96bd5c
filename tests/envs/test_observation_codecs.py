"""Spaces of every kind as features and pixels: what a vector environment gives, and lists of it."""

from collections import OrderedDict

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector.utils import concatenate, create_empty_array
from hypothesis import given
from hypothesis import strategies as st

from kalmanac._envs.action_codecs import action_codec
from kalmanac._envs.observation_codecs import is_image, observation_codec

IMAGE = spaces.Box(0, 255, (12, 10, 3), np.uint8)
EVERYTHING = spaces.Dict(
    {
        "pose": spaces.Box(-1, 1, (2, 2)),
        "camera": IMAGE,
        "gear": spaces.Discrete(3, start=-1),
        "inner": spaces.Tuple(
            (spaces.MultiBinary(2), spaces.Dict({"cards": spaces.MultiDiscrete([2, 3])}))
        ),
        "map": spaces.Box(0, 255, (9, 8), np.uint8),
    }
)


def leaves():
    return st.sampled_from(
        [
            spaces.Box(-1, 1, (2,)),
            spaces.Box(0, 9, (), np.int32),
            spaces.Discrete(3, start=4),
            spaces.MultiDiscrete([[2, 3], [4, 2]]),
            spaces.MultiBinary([2, 2]),
            IMAGE,
        ]
    )


def nested():
    return st.recursive(
        leaves(),
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=3).map(lambda found: spaces.Tuple(found)),
            st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=3).map(spaces.Dict),
        ),
        max_leaves=5,
    )


def batched(space, rows):
    """As Gymnasium's vector environments hand observations out."""
    return concatenate(space, rows, create_empty_array(space, n=len(rows)))


@given(nested(), st.integers(0, 2**31))
def test_a_vectors_batch_and_a_list_of_observations_encode_alike(space, seed):
    codec = observation_codec(space)
    space.seed(seed)
    rows = [space.sample() for _ in range(3)]
    loose = np.full(3, None, dtype=object)
    loose[:] = np.fromiter(rows, dtype=object, count=3)
    vector = batched(space, tuple(rows))
    whole = codec.encode(vector)
    assert_same(whole, codec.encode(rows))
    assert_same(whole, codec.encode(loose))
    for i, row in enumerate(rows):
        one, single = codec.as_batch(row)
        assert single
        assert_same(whole.map(lambda x, i=i: x[i : i + 1]), codec.encode(one))
    assert (whole.vector.shape, whole.vector.dtype) == ((3, codec.size), np.float32)
    assert (whole.images is not None) == bool(codec.images)
    assert codec.scaled.shape == (codec.size,)
    same, single = codec.as_batch(vector)
    assert not single
    assert_same(codec.encode(same), whole)


@given(nested(), st.integers(0, 2**31))
def test_decoding_gives_the_batch_back(space, seed):
    space.seed(seed)
    codec, rows = observation_codec(space), [space.sample() for _ in range(3)]
    batch = batched(space, tuple(rows))
    decoded = codec.decode(codec.encode(batch))
    assert data_equivalence(decoded, batch)


def test_a_mask_inside_an_observation_is_put_back():
    space = spaces.Dict({"action_mask": spaces.MultiBinary(2), "seen": spaces.Box(-1, 1, (1,))})
    codec = observation_codec(space, action_codec(spaces.Discrete(2)))
    batch = {"action_mask": np.int8([[0, 1]]), "seen": np.float32([[0.5]])}
    observation = codec.encode(batch)._replace(action_mask=np.array([[False, True]]))
    assert data_equivalence(codec.decode(observation), batch)


def assert_same(one, other):
    assert one.parts().keys() == other.parts().keys()
    for name, x in one.parts().items():
        np.testing.assert_array_equal(x, getattr(other, name))


def test_features_stand_in_the_order_of_the_space():
    codec = observation_codec(EVERYTHING)
    seen = {
        "pose": np.float32([[0.1, 0.2], [0.3, 0.4]]),
        "camera": np.zeros((12, 10, 3), np.uint8),
        "gear": np.int64(1),
        "inner": (np.int8([1, 0]), {"cards": np.array([1, 2])}),
        "map": np.zeros((9, 8), np.uint8),
    }
    expected = [0, 0, 1, 1, 0, 0, 1, 0, 0, 1, 0.1, 0.2, 0.3, 0.4]  # gear, bits, cards, pose
    np.testing.assert_allclose(codec.encode([seen]).vector, [expected])
    assert codec.scaled.tolist() == [False] * 10 + [True] * 4, "codes are not to be normalized"
    assert codec.images == ((3, 12, 10), (1, 9, 8))
    assert codec.encode([seen]).images.shape == (1, 12 * 10 * 3 + 9 * 8)


def test_channels_first_and_last_give_the_same_pixels():
    rng = np.random.default_rng(0)
    first = rng.integers(0, 256, (2, 4, 9, 11), np.uint8)
    one = observation_codec(spaces.Box(0, 255, (4, 9, 11), np.uint8))
    other = observation_codec(spaces.Box(0, 255, (9, 11, 4), np.uint8))
    assert one.images == other.images == ((4, 9, 11),)
    assert (one.size, other.size) == (0, 0)
    pixels = one.encode(first).images
    assert pixels.dtype == np.uint8
    np.testing.assert_array_equal(pixels, first.reshape(2, -1))
    np.testing.assert_array_equal(pixels, other.encode(np.moveaxis(first, 1, -1)).images)
    assert one.encode(first).vector.shape == (2, 0)


@pytest.mark.parametrize(
    ("space", "image"),
    [
        (spaces.Box(0, 255, (84, 84, 3), np.uint8), True),
        (spaces.Box(0, 255, (4, 84, 84), np.uint8), True),
        (spaces.Box(0, 255, (8, 9), np.uint8), True),
        (spaces.Box(0, 255, (7, 7, 3), np.uint8), False),  # a small grid of codes
        (spaces.Box(0, 255, (128,), np.uint8), False),
        (spaces.Box(0, 1, (84, 84, 3), np.uint8), False),
        (spaces.Box(0, 255, (84, 84, 3), np.float32), False),
    ],
)
def test_what_counts_as_an_image(space, image):
    assert is_image(space) is image
    assert bool(observation_codec(space).images) is image


@pytest.mark.parametrize(
    "space",
    [
        spaces.Text(5),
        spaces.Graph(spaces.Box(-1, 1, (2,)), None),
        spaces.Sequence(spaces.Discrete(2)),
        spaces.OneOf([spaces.Discrete(2), spaces.Discrete(3)]),
    ],
)
def test_spaces_that_cannot_be_read_are_named(space):
    name = type(space).__name__
    with pytest.raises(TypeError, match=f"observation space: got {name}.*expected Box, Discrete"):
        observation_codec(space)
    with pytest.raises(TypeError, match=rf"got {name}.* at \['a'\]\[1\], expected Box"):
        observation_codec(spaces.Dict({"a": spaces.Tuple([spaces.Discrete(2), space])}))


def test_an_observation_without_parts_is_refused():
    with pytest.raises(ValueError, match=r"observation space: got Dict\(\), expected at least one"):
        observation_codec(spaces.Dict({}))


def test_wrong_observations_name_the_part():
    codec = observation_codec(EVERYTHING)
    good = EVERYTHING.sample()
    for change, message in (
        ({"gear": np.int64(2)}, r"observation\['gear'\]: got 2 to 2, expected -1 to 1"),
        ({"pose": np.zeros(3)}, r"observation\['pose'\]: got shape \(1, 3\), expected"),
        ({"inner": (np.zeros(2),)}, r"observation\['inner'\]\[1\]\['cards'\]: got tuple without 1"),
        ({"map": None}, r"observation\['map'\]: got 1 × None"),
        ({"map": np.zeros((9, 8))}, r"observation\['map'\]: got float64, expected uint8"),
    ):
        wrong = [good | change]
        with pytest.raises(ValueError, match=message):
            codec.encode(wrong)
    with pytest.raises(ValueError, match=r"observation\['camera'\]: got shape \(5,\), expected"):
        codec.as_batch(good | {"camera": np.zeros(5)})


def masked(n):
    return spaces.Dict(
        OrderedDict(observation=spaces.Box(-1, 1, (2,)), action_mask=spaces.MultiBinary(n))
    )


def test_a_mask_in_the_observation_is_no_feature():
    actions = action_codec(spaces.Discrete(3))
    codec = observation_codec(masked(3), actions)
    assert codec.has_action_mask
    assert codec.size == 2
    seen = {"observation": np.zeros((4, 2)), "action_mask": np.ones((4, 3), np.int8)}
    assert codec.encode(seen).vector.shape == (4, 2)
    assert codec.action_mask(seen).shape == (4, 3)
    joint = observation_codec(masked([2, 2]), action_codec(spaces.MultiDiscrete([2, 2])))
    assert joint.has_action_mask


@pytest.mark.parametrize(
    ("n", "actions"),
    [
        (4, action_codec(spaces.Discrete(3))),
        (3, action_codec(spaces.Box(-1, 1, (3,)))),
        (3, None),
    ],
)
def test_bits_of_that_name_that_fit_no_actions_are_features(n, actions):
    codec = observation_codec(masked(n), actions)
    assert not codec.has_action_mask
    assert codec.size == 2 + n
    assert codec.action_mask({}) is None


def test_gymnasiums_own_environments_of_many_kinds_encode():
    for name in ("Blackjack-v1", "CliffWalking-v1", "FrozenLake-v1"):
        env = gymnasium.make_vec(name, 2)
        seen, _ = env.reset(seed=0)
        codec = observation_codec(env.single_observation_space)
        assert codec.encode(seen).vector.shape == (2, codec.size)
        env.close()
