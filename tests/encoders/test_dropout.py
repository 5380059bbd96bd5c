"""Dropout keeps the mean, and draws from whom it is told to."""

import pytest
import torch

from kalmanac._encoders.layers import Dropout, draw_dropout_from
from kalmanac._encoders.transformer import TransformerEncoder
from tests.encoders.cases import E, sequence

F64 = torch.float64


def drawn(seed: int, p: float = 0.3) -> torch.Tensor:
    drop = Dropout(p)
    draw_dropout_from(torch.Generator().manual_seed(seed), torch.nn.Sequential(drop))
    return drop(torch.ones(200, 100))


def test_a_share_is_dropped_and_the_mean_is_kept() -> None:
    found = drawn(0)
    assert found.unique().tolist() == pytest.approx([0, 1 / 0.7])
    assert (found == 0).float().mean().item() == pytest.approx(0.3, abs=0.02)
    assert found.mean().item() == pytest.approx(1, abs=0.02)


def test_the_generator_decides_and_the_global_one_is_left_alone() -> None:
    before = torch.get_rng_state()
    assert torch.equal(drawn(3), drawn(3))
    assert not torch.equal(drawn(3), drawn(4))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(0)
    one = Dropout(0.5)(torch.ones(50))
    torch.manual_seed(0)
    assert torch.equal(one, Dropout(0.5)(torch.ones(50)))


def test_nothing_is_dropped_outside_of_training() -> None:
    x = torch.randn(4, 3)
    assert torch.equal(Dropout(0.9).eval()(x), x)
    assert torch.equal(Dropout(0.0)(x), x)
    for bad in (-0.1, 1.0):
        with pytest.raises(ValueError, match=f"dropout: got {bad}, expected a probability"):
            Dropout(bad)


@pytest.mark.parametrize("resets", [False, True])
def test_attention_that_may_drop_is_attention(resets: bool) -> None:
    """So small a share drops nothing, and what is left is what PyTorch computes."""
    torch.manual_seed(0)
    encoder = TransformerEncoder(E, window=6, heads=2, layers=2, dropout=1e-12).double()
    h = sequence(3, 9, F64)
    reset = torch.rand(3, 9) < 0.3 if resets else None
    truth, _ = encoder.eval()(h, reset=reset)
    found, _ = encoder.train()(h, reset=reset)
    assert encoder.blocks[0].dropout.works
    torch.testing.assert_close(found, truth)
    encoder.blocks[0].dropout.p = 0.5
    assert not torch.allclose(encoder(h, reset=reset)[0], truth)
