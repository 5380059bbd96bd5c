"""Mamba against a sequential S6 recurrence, and its convolution against nn.Conv1d."""

import torch
import torch.nn.functional as F

from kalmanac._encoders.layers import CausalConvolution
from kalmanac._encoders.mamba import MambaBlock
from tests.encoders.cases import E, assert_close, sequence

F64 = torch.float64


def test_block_equals_a_sequential_s6_recurrence() -> None:
    torch.manual_seed(4)
    block = MambaBlock(E, 4, dt_rank=2).double()
    h = sequence(2, 9, F64)
    z, last = block(h)
    D, S, K = 2 * E, 4, 4
    normed = h / torch.sqrt((h * h).mean(-1, keepdim=True) + 1e-5) * block.norm.weight
    inner = normed @ block.in_projection.weight.T
    x, gate = inner[..., :D], inner[..., D:]
    A = -block.log_rate.exp()
    for b in range(2):
        state = torch.zeros(D, S, dtype=F64)
        for t in range(9):
            mixed = block.convolution.bias.clone()
            for back in range(min(K, t + 1)):
                mixed = mixed + block.convolution.weight[K - 1 - back] * x[b, t - back]
            v = mixed * torch.sigmoid(mixed)
            chosen = block.selection.weight @ v
            size = F.softplus(block.step_size.weight @ chosen[:2] + block.step_size.bias)
            y = block.skip * v
            for d in range(D):
                for s in range(S):
                    decay = torch.exp(size[d] * A[d, s])
                    state = state.clone()
                    state[d, s] = decay * state[d, s] + size[d] * chosen[2 + s] * v[d]
            y = y + state @ chosen[2 + S :]
            y = y * gate[b, t] * torch.sigmoid(gate[b, t])
            assert_close(z[b, t], h[b, t] + block.out_projection.weight @ y, 1e-10)
        assert_close(last.latent[b], state, 1e-10)
        assert_close(last.taps[b], x[b, -3:], 1e-12)


def test_convolution_equals_conv1d() -> None:
    torch.manual_seed(5)
    ours, theirs = CausalConvolution(6, 4), torch.nn.Conv1d(6, 6, 4, groups=6, padding=3)
    with torch.no_grad():
        theirs.weight.copy_(ours.weight.T[:, None])
        theirs.bias.copy_(ours.bias)
    x = torch.randn(2, 9, 6)
    y, _ = ours(x, torch.zeros(2, 3, 6), None, None)
    assert_close(y, theirs(x.mT)[..., :9].mT, 1e-6)


def test_a_reset_clears_the_taps() -> None:
    convolution = CausalConvolution(1, 3)
    with torch.no_grad():
        convolution.weight.fill_(1.0)
        convolution.bias.zero_()
    x = torch.tensor([[[1.0], [10.0], [100.0], [1000.0]]])
    reset = torch.tensor([[False, False, True, False]])
    y, taps = convolution(x, torch.full((1, 2, 1), 0.5), None, reset)
    assert y[0, :, 0].tolist() == [2.0, 11.5, 100.0, 1100.0]
    assert taps[0, :, 0].tolist() == [100.0, 1000.0]
    late = torch.tensor([[False, False, False, True]])
    _, taps = convolution(x, torch.zeros(1, 2, 1), None, late)
    assert taps[0, :, 0].tolist() == [0.0, 1000.0]
