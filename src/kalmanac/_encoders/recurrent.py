"""GRU and LSTM, resettable and safe on padded batches.

Sequences run unpacked: packing needs lengths on the host, which breaks graph capture. A reset cuts
the sequence, and the pieces run one after the other. A single step takes PyTorch's cells: cuDNN
would gather weights that lie apart into one piece of memory, at every call. torch.compile refuses
any nn.GRU or nn.LSTM in a full graph until `torch._dynamo.config.allow_rnn` is set.
"""

from typing import NamedTuple, cast, final

import torch
from torch import Tensor, nn

from kalmanac._encoders.contract import (
    HistoryEncoder,
    Lengths,
    State,
    Steps,
    carried,
    check_step,
    positive_sizes,
    read_steps,
)
from kalmanac._encoders.layers import Linear, output_norm
from kalmanac._ops.gru import gru, pieces, takes_lengths


class GRUState(NamedTuple):
    """The hidden states of all layers, (B, L, N)."""

    hidden: Tensor


class LSTMState(NamedTuple):
    """Hidden and cell states of all layers, (B, L, N) each."""

    hidden: Tensor
    cell: Tensor


@final
class GRUEncoder(HistoryEncoder):
    """nn.GRU and a projection back to E. One nn.GRU per layer, as every layer's end is needed."""

    def __init__(
        self, d_model: int = 16, *, d_state: int = 128, layers: int = 1, norm: bool = False
    ) -> None:
        super().__init__()
        positive_sizes(d_model=d_model, d_state=d_state, layers=layers)
        self.d_model, self.d_state = d_model, d_state
        widths = [d_model, *[d_state] * (layers - 1)]
        self.layers = nn.ModuleList(nn.GRU(n, d_state, batch_first=True) for n in widths)
        self.out_projection = Linear(d_state, d_model)
        self.norm = output_norm(d_model, norm)

    def initial_state(self, batch: int) -> GRUState:
        """Return zeros."""
        kind = carried(self.out_projection.weight)
        return GRUState(torch.zeros(batch, len(self.layers), self.d_state, **kind))

    def forward(
        self, h: Tensor, state: State | None = None, *, lengths: Lengths = None,
        reset: Tensor | None = None, observed: Tensor | None = None,
    ) -> tuple[Tensor, GRUState]:  # fmt: skip
        """See `HistoryEncoder`; `observed` is ignored."""
        steps = read_steps(self, h, state, lengths, reset, observed)
        (hidden,) = self.initial_state(h.shape[0]) if state is None else state
        x, ends = steps.h, []
        for i, layer in enumerate(self.layers):
            start = hidden[:, i]
            x = _gru(cast(nn.GRU, layer), x, start, steps)
            ends.append(steps.last(x.to(start.dtype), start))
        z = self.norm(self.out_projection(x))
        return steps.zero_pads(z), GRUState(torch.stack(ends, 1))

    def represent(
        self, h: Tensor, *, lengths: Tensor, reset: Tensor | None = None,
        observed: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """See `HistoryEncoder`. Where time grows with the steps, the layers receive the lengths."""
        read_steps(self, h, None, None, reset, observed)
        if not all(takes_lengths(h, _weights(cast(nn.GRU, x))) for x in self.layers):
            return super().represent(h, lengths=lengths, reset=reset, observed=observed)
        start = h.new_zeros(len(h), self.d_state)
        for layer in self.layers:
            weights = _weights(cast(nn.GRU, layer))
            h = gru(h, start, weights, lengths=lengths, reset=reset)
        return self.norm(self.out_projection(h))

    def step(
        self, h_t: Tensor, state: State, *, reset: Tensor | None = None,
        observed: Tensor | None = None,
    ) -> tuple[Tensor, GRUState]:  # fmt: skip
        """See `HistoryEncoder`; `observed` is ignored."""
        check_step(self, h_t, state, reset, observed)
        x, (hidden,) = h_t, _after_reset(state, reset)
        ends = []
        for i, layer in enumerate(self.layers):
            weights = _weights(cast(nn.GRU, layer))
            x = torch.gru_cell(x.to(weights[0].dtype), hidden[:, i].to(weights[0].dtype), *weights)
            ends.append(x.to(hidden.dtype))
        return self.norm(self.out_projection(x)), GRUState(torch.stack(ends, 1))


class LSTMEncoder(HistoryEncoder):
    """nn.LSTM and a projection back to E. Beyond the paper's legend."""

    def __init__(
        self, d_model: int = 16, *, d_state: int = 128, layers: int = 1, norm: bool = False
    ) -> None:
        super().__init__()
        positive_sizes(d_model=d_model, d_state=d_state, layers=layers)
        self.d_model, self.d_state = d_model, d_state
        widths = [d_model, *[d_state] * (layers - 1)]
        self.layers = nn.ModuleList(nn.LSTM(n, d_state, batch_first=True) for n in widths)
        self.out_projection = Linear(d_state, d_model)
        self.norm = output_norm(d_model, norm)

    def initial_state(self, batch: int) -> LSTMState:
        """Return zeros."""
        kind = carried(self.out_projection.weight)
        zeros = torch.zeros(batch, len(self.layers), self.d_state, **kind)
        return LSTMState(zeros, torch.zeros_like(zeros))

    def forward(
        self, h: Tensor, state: State | None = None, *, lengths: Lengths = None,
        reset: Tensor | None = None, observed: Tensor | None = None,
    ) -> tuple[Tensor, LSTMState]:  # fmt: skip
        """See `HistoryEncoder`; `observed` is ignored."""
        steps = read_steps(self, h, state, lengths, reset, observed)
        hidden, cell = self.initial_state(h.shape[0]) if state is None else state
        x, hiddens, cells = steps.h, [], []
        for i, layer in enumerate(self.layers):
            start = hidden[:, i]
            x, last_cell = _lstm(cast(nn.LSTM, layer), x, start, cell[:, i], steps)
            hiddens.append(steps.last(x.to(start.dtype), start))
            cells.append(last_cell)
        z = self.norm(self.out_projection(x))
        return steps.zero_pads(z), LSTMState(torch.stack(hiddens, 1), torch.stack(cells, 1))

    def step(
        self, h_t: Tensor, state: State, *, reset: Tensor | None = None,
        observed: Tensor | None = None,
    ) -> tuple[Tensor, LSTMState]:  # fmt: skip
        """See `HistoryEncoder`; `observed` is ignored."""
        check_step(self, h_t, state, reset, observed)
        x, (hidden, cell) = h_t, _after_reset(state, reset)
        hiddens, cells = [], []
        for i, layer in enumerate(self.layers):
            weights = _weights(cast(nn.LSTM, layer))
            dtype = weights[0].dtype
            start = [hidden[:, i].to(dtype), cell[:, i].to(dtype)]
            x, last = torch.lstm_cell(x.to(dtype), start, *weights)
            hiddens.append(x.to(hidden.dtype))
            cells.append(last.to(cell.dtype))
        z = self.norm(self.out_projection(x))
        return z, LSTMState(torch.stack(hiddens, 1), torch.stack(cells, 1))


def _after_reset(state: State, reset: Tensor | None) -> tuple[Tensor, ...]:
    """Return the parts of a state (B, L, N), which are zero in rows (B,) that are reset."""
    if reset is None:
        return state
    return tuple(x.masked_fill(reset[:, None, None], 0) for x in state)


def _gru(layer: nn.GRU, x: Tensor, hidden: Tensor, steps: Steps) -> Tensor:
    """Return the hidden states of all steps, (B, T, N)."""
    weights = _weights(layer)
    x, hidden = x.to(weights[0].dtype), hidden.to(weights[0].dtype)
    return gru(
        x, hidden, weights, lengths=steps.lengths, reset=steps.reset, training=layer.training
    )


PASS = 1e4  # a gate's input that saturates it exactly in every dtype: σ(PASS) = 1, σ(-PASS) = 0


def _lstm(
    layer: nn.LSTM, x: Tensor, hidden: Tensor, cell: Tensor, steps: Steps
) -> tuple[Tensor, Tensor]:
    """The hidden states of all steps, (B, T, N), and the cell after each row's own length, (B, N).

    nn.LSTM does not show the cells of earlier steps. So pads are marked in one more input feature,
    which holds the input gate at 0 and the forget gate at 1: the cell passes through unchanged.
    """
    weights = _weights(layer)
    carry, dtype = cell.dtype, weights[0].dtype
    x, hidden, cell = x.to(dtype), hidden.to(dtype), cell.to(dtype)
    if steps.padded is not None:
        gates = [-PASS, PASS, 0.0, 0.0]  # input, forget, cell, output
        column = torch.cat([weights[0].new_full((layer.hidden_size, 1), g) for g in gates])
        weights[0] = torch.cat([weights[0], column], 1)
        x = torch.cat([x, steps.padded.to(dtype)], 2)
    outputs = []
    for begin, end in pieces(steps.reset, x.shape[1]):
        if steps.reset is not None:
            hidden = hidden.masked_fill(steps.reset[:, begin, None], 0)
            cell = cell.masked_fill(steps.reset[:, begin, None], 0)
        start = [hidden[None].contiguous(), cell[None].contiguous()]
        y, last, last_cell = torch.lstm(
            x[:, begin:end].contiguous(), start, weights, True, 1, 0.0, layer.training, False, True
        )
        outputs.append(y)
        hidden, cell = last[0], last_cell[0]
    states = torch.cat(outputs, 1) if outputs else x.new_zeros(*x.shape[:2], layer.hidden_size)
    return states, cell.to(carry)


def _weights(layer: nn.RNNBase) -> list[Tensor]:
    """Return input weights, hidden weights, and the biases of both."""
    return list(layer.parameters())
