"""The Transformer against PyTorch's own layer, and its rolling window."""

import pytest
import torch
from torch import nn

from kalmanac._encoders.transformer import TransformerEncoder
from tests.encoders.cases import E, assert_close, by_steps, sequence

F64 = torch.float64


def test_equals_pytorchs_encoder_layer() -> None:
    torch.manual_seed(6)
    ours = TransformerEncoder(E, window=9, feedforward=11, heads=2).double()
    theirs = nn.TransformerEncoderLayer(E, 2, 11, dropout=0.0, batch_first=True).double()
    block = ours.blocks[0]
    pairs = {
        theirs.self_attn.in_proj_weight: block.in_projection.weight,
        theirs.self_attn.in_proj_bias: block.in_projection.bias,
        theirs.self_attn.out_proj.weight: block.out_projection.weight,
        theirs.self_attn.out_proj.bias: block.out_projection.bias,
        theirs.linear1.weight: block.widen.weight,
        theirs.linear1.bias: block.widen.bias,
        theirs.linear2.weight: block.narrow.weight,
        theirs.linear2.bias: block.narrow.bias,
        theirs.norm1.weight: block.attention_norm.weight,
        theirs.norm1.bias: block.attention_norm.bias,
        theirs.norm2.weight: block.feedforward_norm.weight,
        theirs.norm2.bias: block.feedforward_norm.bias,
    }
    assert len(pairs) == len(list(theirs.parameters())) == len(list(ours.parameters()))
    with torch.no_grad():
        for target, source in pairs.items():
            source.add_(0.1 * torch.randn(source.shape))
            target.copy_(source)
    h = sequence(3, 9, F64)
    causal = nn.Transformer.generate_square_subsequent_mask(9, dtype=F64)
    angle = torch.arange(9, dtype=F64)[:, None] / 10000 ** (torch.arange(0, E, 2) / E)
    places = torch.stack([angle.sin(), angle.cos()], 2).reshape(9, E)
    assert_close(ours.positions, places, 1e-6)
    expected = theirs(h + ours.positions, src_mask=causal, is_causal=True)
    assert_close(ours(h)[0], expected, 1e-10)


@pytest.mark.parametrize("layers", [1, 2])
def test_step_equals_forward_before_and_after_the_window_rolls(layers: int) -> None:
    torch.manual_seed(7)
    encoder = TransformerEncoder(E, window=4, layers=layers).double()
    h = sequence(2, 11, F64)
    z, last = encoder(h)
    stepped, state = by_steps(encoder, h, encoder.initial_state(2))
    assert_close(z, stepped, 1e-12)
    assert state.filled.tolist() == last.filled.tolist() == [4, 4]
    for t in range(11):  # each output is the last one of a fresh encoder over the last W tokens
        fresh, _ = encoder(h[:, max(0, t - 3) : t + 1])
        assert_close(z[:, t], fresh[:, -1], 1e-10)
    assert_close(last.tokens, h[:, -4:], 0.0)


def test_positions_restart_at_a_reset() -> None:
    torch.manual_seed(8)
    encoder = TransformerEncoder(E, window=6)
    h = sequence(1, 6)
    reset = torch.tensor([[False, False, False, True, False, False]])
    z, last = encoder(h, reset=reset)
    fresh, _ = encoder(h[:, 3:])
    assert_close(z[:, 3:], fresh, 1e-6)
    assert last.filled.item() == 3


def test_without_a_full_window_the_state_costs_no_second_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encoder = TransformerEncoder(E, window=8)
    _, state = encoder(sequence(2, 3))
    calls = []
    monkeypatch.setattr(encoder, "step", lambda *a, **k: calls.append(a))
    encoder(sequence(2, 5), state)
    encoder(sequence(2, 8))
    assert not calls
