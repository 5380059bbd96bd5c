"""xᵀ y in parts is xᵀ y."""

import pytest
import torch

from kalmanac.ops.row_products import add_product, room_for


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("rows", [0, 1, 2, 7, 12])
def test_sums_of_products_over_rows(rows: int, threads: int) -> None:
    random = torch.Generator().manual_seed(rows)
    pairs = [
        (torch.randn(n, 4, generator=random).double(), torch.randn(n, 3, generator=random).double())
        for n in (rows, 5)
    ]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        room = room_for(*pairs[0])
    finally:
        torch.set_num_threads(before)
    assert room.shape == (threads, 4, 3)
    for x, y in pairs:
        add_product(room, x, y)
    torch.testing.assert_close(room.sum(0), sum(x.mT @ y for x, y in pairs))


def test_strided_rows_are_read_in_place() -> None:
    x, y = torch.randn(3, 6).double().mT, torch.randn(6, 8).double()[:, 2:5]
    room = room_for(x, y)
    add_product(room, x, y)
    torch.testing.assert_close(room.sum(0), x.mT @ y)
