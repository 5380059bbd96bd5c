"""First-fit-decreasing against its definition."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kalmanac._replay.sampling import first_fit_decreasing


def by_definition(sizes: list[int], width: int) -> tuple[list[int], list[int], list[int]]:
    row, column, used = [0] * len(sizes), [0] * len(sizes), []
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        place = next((r for r, u in enumerate(used) if u + sizes[i] <= width), len(used))
        if place == len(used):
            used.append(0)
        row[i], column[i] = place, used[place]
        used[place] += sizes[i]
    return row, column, used


@given(st.integers(2, 40).flatmap(
    lambda width: st.tuples(
        st.lists(st.integers(2, width), min_size=1, max_size=70), st.just(width)
    )
))  # fmt: skip
def test_first_fit_decreasing(case: tuple[list[int], int]) -> None:
    sizes, width = case
    actual = first_fit_decreasing(np.array(sizes), width)
    assert tuple(x.tolist() for x in actual) == by_definition(sizes, width)
