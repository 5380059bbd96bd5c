"""One tuple for arrays and tensors, with the names that files have."""

import numpy as np
import pytest
import torch

from kalmanac._observation import Observation, PartSize, Sizes

FULL = Sizes(
    2, 3, True, privileged=4, observed=True, images=((1, 2, 3), (2, 2, 2)), action_mask=True
)


def full(n: int) -> Observation[np.ndarray]:
    rng = np.random.default_rng(n)
    return FULL.observation_parts.map(lambda part: rng.random((n, *part.shape)))


def test_sizes_say_which_parts_there_are():
    assert FULL.observation_parts == Observation(
        vector=PartSize((2,), "float32"), images=PartSize((14,), "uint8"),
        observed=PartSize((), "bool"), action_mask=PartSize((3,), "bool"),
        privileged=PartSize((4,), "float32"),
    )  # fmt: skip
    assert Sizes(2, 3, True).observation_parts == Observation(PartSize((2,), "float32"))


@pytest.mark.parametrize("part", FULL.observation_parts.parts().values())
def test_dtypes_are_those_of_both_libraries(part):
    array = np.zeros(1, part.dtype)
    assert torch.from_numpy(array).dtype == getattr(torch, part.dtype)


def test_parts_that_are_not_there_stay_away():
    plain = Observation(np.ones((2, 3)))
    assert plain.parts().keys() == {"vector"}
    assert plain.map(torch.from_numpy).images is None


def test_rows_are_replaced_in_a_copy():
    one, other = full(5), full(2)
    both = one.replace_rows(np.array([3, 1]), other)
    for name, z in both.parts().items():
        x, y = getattr(one, name), getattr(other, name)
        np.testing.assert_array_equal(z[[3, 1]], y)
        np.testing.assert_array_equal(z[[0, 2, 4]], x[[0, 2, 4]])
        assert not np.shares_memory(x, z)


def test_files_keep_the_names_that_they_have_had():
    stored = full(2).to_stored()
    assert stored.keys() == {"observation", "pixels", "observed", "action_mask", "privileged"}
    for name, x in full(2).parts().items():
        np.testing.assert_array_equal(getattr(Observation.from_stored(stored), name), x)
