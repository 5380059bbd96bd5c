"""Windows drawn and laid out by one kernel are those of the plain operations."""

import pytest
import torch

from kalmanac._observation import Sizes
from kalmanac._ops import windows
from kalmanac._replay.episodes import Table
from kalmanac._replay.sampling import RULES, lay_one_a_row, sample_one_a_row
from kalmanac._replay.storage import Storage

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]  # cpu: Triton's interpreter


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("burn_in", [0, 3])
@pytest.mark.parametrize("context", [1, 5, 200])
def test_one_kernel_draws_and_places_what_plain_operations_do(
    context: int, burn_in: int, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, streams, lengths = 40, 3, [1, 2, 7, 30, 1, 12]
    entries = torch.zeros(3, 64, dtype=torch.int64)
    for slot, length in enumerate(lengths):  # some lie over the end of their ring
        entries[:, slot] = torch.tensor([slot % streams, 25 + 11 * slot, length])
    table = Table(entries.to(device), torch.tensor([len(lengths)], device=device))
    storage = Storage(Sizes(1, 2, True), streams, rows, torch.device(device))

    def seeded() -> torch.Generator:
        return torch.Generator(device).manual_seed(4)

    monkeypatch.setattr(windows, "fused", lambda x: True)
    found, laid = sample_one_a_row(table, storage, 16, context, burn_in=burn_in, generator=seeded())
    cut = RULES["episodes"](table, 16, context, seeded())
    truth = windows.windows_of(table.entries, *cut, burn_in)
    expected = lay_one_a_row(truth, storage, context + burn_in + 1)
    for name, x in truth._asdict().items():
        assert torch.equal(getattr(found, name), x), name
    for name, x in expected.places._asdict().items():
        assert torch.equal(getattr(laid.places, name), x), name
    assert torch.equal(laid.episode, expected.episode)
    assert laid.reset is laid.elapsed is None


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("sizes", [Sizes(1, 3, True), Sizes(5, 2, False), Sizes(3, 17, True)])
def test_one_kernel_reads_what_plain_operations_do(
    sizes: Sizes, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = torch.Generator().manual_seed(0)
    rows, streams, width = 40, 3, 9
    storage = Storage(sizes, streams, rows, torch.device(device))
    for name, field in storage.fields.items():
        top = sizes.action if name == "action" and sizes.discrete else 2
        drawn = torch.randint(top, field[:-1].shape, generator=random)
        field[:-1] = drawn.to(field) if not field.is_floating_point() else drawn / 3 + 0.1
    token = torch.randint(storage.nothing, (6, width), generator=random).to(device)
    last = torch.tensor([[8], [0], [3], [7], [8], [1]], device=device)
    place = torch.arange(width, device=device)
    token = token.masked_fill(place > last, storage.nothing)
    step = token[:, :-1].masked_fill(place[:-1] >= last, storage.nothing)
    given = (storage.fields, token, step, storage.codes if sizes.discrete else None)
    monkeypatch.setattr(windows, "fused", lambda x: True)
    found, truth = (windows.read_windows(*given, several_a_row=yes) for yes in (False, True))
    for name, x in truth._asdict().items():
        assert torch.equal(getattr(found, name), x), name
