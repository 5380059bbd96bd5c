"""Bin packing of windows into rows."""

import numpy as np

from kalmanac.replay.validation import Indices


def first_fit_decreasing(sizes: Indices, width: int) -> tuple[Indices, Indices, Indices]:
    """Put each of `sizes` (n,), largest first, into the first row of `width` that has the space.

    Returns row (n,), column (n,) and the used part of each row. Ties keep their order. The rows
    needed are at most 11/9 of the fewest possible, plus one.
    """
    order = np.argsort(-sizes, kind="stable").tolist()
    needs = sizes.tolist()
    leaves = 1 << (len(needs) - 1).bit_length()
    # most[i]: the largest free space below node i of a binary tree with the rows as its leaves;
    # going left wherever there is space finds the first row that fits.
    most = [width] * (2 * leaves)
    row, column = [0] * len(needs), [0] * len(needs)
    rows = 0
    for window in order:
        need, node = needs[window], 1
        while node < leaves:
            node *= 2
            if most[node] < need:
                node += 1
        place = node - leaves
        rows = max(rows, place + 1)
        row[window], column[window] = place, width - most[node]
        most[node] -= need
        while node > 1:
            node //= 2
            most[node] = max(most[2 * node], most[2 * node + 1])
    used = width - np.array(most[leaves : leaves + rows], np.int64)
    return np.array(row, np.int64), np.array(column, np.int64), used
