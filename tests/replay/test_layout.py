"""Windows drawn and laid out by one kernel are those of the plain operations."""

import pytest
import torch

from kalmanac.replay import layout
from kalmanac.replay.batch import Sizes
from kalmanac.replay.drawing import draw
from kalmanac.replay.episodes import Table
from kalmanac.replay.storage import Storage

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]  # cpu: Triton's interpreter


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("burn_in", [0, 3])
@pytest.mark.parametrize("context", [1, 5, 200])
def test_one_kernel_draws_and_places_what_plain_operations_do(
    context: int, burn_in: int, device: str
) -> None:
    rows, streams, lengths = 40, 3, [1, 2, 7, 30, 1, 12]
    entries = torch.zeros(3, 64, dtype=torch.int64)
    for slot, length in enumerate(lengths):  # some lie over the end of their ring
        entries[:, slot] = torch.tensor([slot % streams, 25 + 11 * slot, length])
    table = Table(entries.to(device), torch.tensor([len(lengths)], device=device))
    storage = Storage(Sizes(1, 2, True), streams, rows, torch.device(device))

    def seeded() -> torch.Generator:
        return torch.Generator(device).manual_seed(4)

    found, places = layout.drawn_one_a_row(
        table, storage, 16, context, burn_in=burn_in, generator=seeded()
    )
    truth = draw(table, 16, context, rule="episodes", burn_in=burn_in, generator=seeded())
    expected = layout.one_a_row(truth, storage, context + burn_in + 1)
    for name, x in truth._asdict().items():
        assert torch.equal(getattr(found, name), x), name
    for name, x in expected._asdict().items():
        if x is not None:
            assert torch.equal(getattr(places, name), x), name
