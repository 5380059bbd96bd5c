"""GRU and LSTM against PyTorch's packed sequences; S5 against its plain recurrence."""

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from kalmanac._encoders.recurrent import GRUEncoder, LSTMEncoder, pieces
from kalmanac._encoders.s5 import S5Block, hippo_normal
from tests.encoders.cases import E, assert_close, sequence

F64 = torch.float64


@pytest.mark.parametrize("kind", [GRUEncoder, LSTMEncoder])
def test_lengths_equal_packed_sequences_with_gradients(
    kind: type[GRUEncoder] | type[LSTMEncoder],
) -> None:
    torch.manual_seed(9)
    encoder = kind(E, d_state=7).double()
    rnn, out = encoder.layers[0], encoder.out_projection
    lengths = torch.tensor([8, 1, 5])
    h = sequence(3, 8, F64)
    z, last = encoder(h, lengths=lengths)
    packed = pack_padded_sequence(h, lengths, batch_first=True, enforce_sorted=False)
    y, end = rnn(packed)
    y, _ = pad_packed_sequence(y, batch_first=True)
    ends = end if isinstance(end, tuple) else (end,)
    valid = torch.arange(8) < lengths[:, None]
    assert_close(z[valid], out(y)[valid], 1e-12)
    for ours, theirs in zip(last, ends, strict=True):
        assert_close(ours[:, 0], theirs[0], 1e-12)

    mine = torch.autograd.grad((z**2).sum() + sum(x.sum() for x in last), [*rnn.parameters()])
    other = torch.autograd.grad(
        (out(y)[valid] ** 2).sum() + sum(x.sum() for x in ends), [*rnn.parameters()]
    )
    for g, truth in zip(mine, other, strict=True):
        assert_close(g, truth, 1e-10)


def test_pieces_cut_where_any_row_resets() -> None:
    reset = torch.zeros(2, 6, dtype=torch.bool)
    reset[0, 0] = reset[0, 2] = reset[1, 5] = True
    assert list(pieces(reset, 6)) == [(0, 2), (2, 5), (5, 6)]
    assert list(pieces(None, 6)) == [(0, 6)]
    assert list(pieces(reset[:, :0], 0)) == []


def test_s5_equals_its_recurrence_with_full_matrices() -> None:
    """Zero-order hold by matrix exponentials of the real 2 × 2 form of each eigenvalue."""
    torch.manual_seed(10)
    block = S5Block(E, 6).double()
    h = sequence(1, 5, F64)
    z, last = block(h)
    x = torch.zeros(3, 2, dtype=F64)
    normed = block.norm(h)
    for t in range(5):
        into = (block.into @ normed[0, t]).reshape(2, 3).T  # (3, 2): real and imaginary part
        for i in range(3):
            rate, w = -block.log_rate[i].exp(), block.frequency[i]
            M = torch.stack([torch.stack([rate, -w]), torch.stack([w, rate])])
            step = torch.linalg.matrix_exp(block.log_step_size[i].exp() * M)
            x = x.clone()
            x[i] = step @ x[i] + torch.linalg.solve(M, (step - torch.eye(2, dtype=F64)) @ into[i])
        y = 2 * block.out_of @ torch.cat([x[:, 0], x[:, 1]]) + block.skip * normed[0, t]
        v = torch.nn.functional.gelu(y)
        assert_close(z[0, t], h[0, t] + v * torch.sigmoid(block.gate(v)), 1e-10)
    assert_close(torch.stack([last.real[0], last.imaginary[0]], 1), x, 1e-10)


def test_hippo_normal_part_is_diagonalised() -> None:
    n = 6
    values, vectors = hippo_normal(n)
    i = torch.arange(n)
    root = torch.sqrt(2 * i.double() + 1)
    hippo = -torch.tril(root[:, None] * root, -1) - torch.diag(i + 1.0)  # HiPPO-LegS
    normal = hippo + 0.5 * root[:, None] * root
    assert_close(normal.to(vectors.dtype) @ vectors, vectors * values, 1e-9)
    assert (values.imag > 0).all()
