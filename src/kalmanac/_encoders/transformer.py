"""A causal Transformer over a rolling window of the last tokens (paper, section 5.1)."""

import math
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kalmanac._encoders.contract import (
    HistoryEncoder,
    Lengths,
    State,
    carried,
    check_step,
    positive_sizes,
    read_steps,
)
from kalmanac._encoders.layers import Dropout, output_norm
from kalmanac._ops.dispatch import readable


class Window(NamedTuple):
    """The last tokens of the episode, oldest first, (B, W, E), and how many there are, (B,)."""

    tokens: Tensor
    filled: Tensor


class TransformerEncoder(HistoryEncoder):
    """z_t = the last output of a causal encoder run over the last W tokens h_{t-W+1 … t}.

    The oldest token of the window always stands at position 0: while the window fills, positions
    count from the episode's start; once it rolls, every token moves down by one at each step. A
    cache of keys and values would be wrong from then on, so `step` encodes its window anew, in time
    that depends on W alone. `forward` gives exactly the same numbers: one causal pass over the
    steps before any window can roll, and steps after that. A reset empties the window. `dropout`
    works in training alone, where PyTorch's layer has it; the paper's presets train with 0.1.
    """

    def __init__(
        self,
        d_model: int = 16,
        *,
        window: int = 64,
        layers: int = 1,
        norm: bool = False,
        heads: int = 1,
        feedforward: int = 256,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        positive_sizes(
            d_model=d_model, window=window, layers=layers, heads=heads, feedforward=feedforward
        )
        if d_model % heads:
            raise ValueError(f"heads: got {heads}, expected a divisor of d_model = {d_model}")
        self.d_model, self.window = d_model, window
        self.blocks = nn.ModuleList(
            Block(d_model, heads, feedforward, dropout) for _ in range(layers)
        )
        self.norm = output_norm(d_model, norm)
        self.positions: Tensor
        self.register_buffer("positions", sinusoids(window, d_model), persistent=False)

    def initial_state(self, batch: int) -> Window:
        """Return an empty window."""
        kind = carried(self.positions)
        tokens = torch.zeros(batch, self.window, self.d_model, **kind)
        return Window(tokens, torch.zeros(batch, dtype=torch.int64, device=kind["device"]))

    def forward(
        self, h: Tensor, state: State | None = None, *, lengths: Lengths = None,
        reset: Tensor | None = None, observed: Tensor | None = None,
    ) -> tuple[Tensor, Window]:  # fmt: skip
        """See `HistoryEncoder`; `observed` is ignored."""
        steps = read_steps(self, h, state, lengths, reset, observed)
        before = self.initial_state(h.shape[0]) if state is None else Window(*state)
        n = min(h.shape[1], self.window if state is None else self._room(before))
        parts = []
        if n:
            early = None if steps.reset is None else steps.reset[:, :n]
            parts.append(self._pass(steps.h[:, :n], before if state is not None else None, early))
        after = self._advance(before, steps.h[:, :n], steps.lengths, steps.reset)
        for t in range(n, h.shape[1]):
            flags = None if steps.reset is None else steps.reset[:, t]
            z_t, moved = self.step(steps.h[:, t], after, reset=flags)
            if steps.padded is not None:
                ended = steps.padded[:, t]  # (B, 1)
                moved = Window(
                    torch.where(ended[..., None], after.tokens, moved.tokens),
                    torch.where(ended[:, 0], after.filled, moved.filled),
                )
            after = moved
            parts.append(z_t[:, None])
        z = torch.cat(parts, 1) if parts else h
        return steps.zero_pads(z), after

    def step(
        self, h_t: Tensor, state: State, *, reset: Tensor | None = None,
        observed: Tensor | None = None,
    ) -> tuple[Tensor, Window]:  # fmt: skip
        """See `HistoryEncoder`; `observed` is ignored."""
        check_step(self, h_t, state, reset, observed)
        tokens, count = state
        slot = torch.arange(self.window, device=h_t.device)
        if reset is not None:
            count = count.masked_fill(reset, 0)
            tokens = tokens.masked_fill((slot >= count[:, None])[..., None], 0)
        full = (count == self.window)[:, None, None]
        tokens = torch.where(full, tokens.roll(-1, 1), tokens)
        newest = count.clamp(max=self.window - 1)
        at = (slot == newest[:, None])[..., None]
        tokens = torch.where(at, h_t[:, None].to(tokens.dtype), tokens)

        x = (tokens + self.positions).to(h_t.dtype)
        earlier = slot <= newest[:, None]  # (B, W)
        causal = slot <= slot[:, None]
        for block in self.blocks[:-1]:
            x = block(x, causal & earlier[:, None] | (slot == slot[:, None]))
        last = x.gather(1, newest[:, None, None].expand(-1, 1, self.d_model))
        z = cast(Block, self.blocks[-1])(x, earlier[:, None], queries=last)
        return self.norm(z[:, 0]), Window(tokens, newest + 1)

    def _room(self, state: Window) -> int:
        """Count the steps of every row before its window rolls; 0 where that is unreadable."""
        if not readable(state.filled) or state.filled.numel() == 0:
            return 0
        return self.window - int(state.filled.max())

    def _pass(self, h: Tensor, state: Window | None, reset: Tensor | None) -> Tensor:
        """Return z (B, n, E) of n new tokens behind those of `state`; no window rolls meanwhile."""
        batch, n, _ = h.shape
        if state is None and reset is None:
            x = h + self.positions[:n].to(h.dtype)
            for block in self.blocks:
                x = block(x, None)
            return self.norm(x)

        new = torch.arange(n, device=h.device)
        episode = new.new_zeros(batch, n) if reset is None else reset.long().cumsum(1)
        old = 0 if state is None else self.window
        filled = new.new_zeros(batch) if state is None else state.filled
        place = filled[:, None] + new
        if reset is not None:
            since = _last_reset(reset)
            place = torch.where(since < 0, place, new - since)
        tokens, real = h, new.new_ones(batch, n, dtype=torch.bool)
        if state is not None:
            slot = torch.arange(old, device=h.device)
            tokens = torch.cat([state.tokens.to(h.dtype), h], 1)
            place = torch.cat([slot.expand(batch, -1), place], 1)
            episode = torch.cat([episode.new_zeros(batch, old), episode], 1)
            real = torch.cat([slot < filled[:, None], real], 1)
        index = torch.arange(old + n, device=h.device)
        allowed = (index <= index[:, None]) & (episode[:, :, None] == episode[:, None])
        allowed = allowed & real[:, None] | (index == index[:, None])
        x = tokens + self.positions[place.clamp(max=self.window - 1)].to(h.dtype)
        for block in self.blocks:
            x = block(x, allowed)
        return self.norm(x[:, old:])

    def _advance(
        self, state: Window, h: Tensor, lengths: Tensor | None, reset: Tensor | None
    ) -> Window:
        """Return the windows after n tokens of h (fewer where `lengths` says so); none rolls."""
        n = h.shape[1]
        added = torch.full_like(state.filled, n)
        if lengths is not None:
            added = lengths.to(added).clamp(max=n)
        dropped = torch.zeros_like(added)  # tokens before the last reset, old ones included
        if reset is not None and n:
            since = _last_reset(reset[:, :n])[:, -1]
            dropped = (state.filled + since).masked_fill(since < 0, 0)
        count = state.filled + added - dropped
        slot = torch.arange(self.window, device=h.device)
        source = slot + dropped[:, None]  # counted over the old tokens, then the new ones
        is_new = source >= state.filled[:, None]
        source = torch.where(is_new, source - state.filled[:, None] + self.window, source)
        tokens = torch.cat([state.tokens, h.to(state.tokens.dtype)], 1)
        source = source.clamp(max=tokens.shape[1] - 1)[..., None].expand(-1, -1, self.d_model)
        empty = (slot >= count[:, None])[..., None]
        return Window(tokens.gather(1, source).masked_fill(empty, 0), count)


class Block(nn.Module):
    """The layer of nn.TransformerEncoderLayer at its defaults: post-norm, ReLU.

    y = LN(x + attention(x)),   z = LN(y + W₂ ReLU(W₁ y))
    """

    def __init__(self, d_model: int, heads: int, feedforward: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.in_projection = nn.Linear(d_model, 3 * d_model)
        self.out_projection = nn.Linear(d_model, d_model)
        self.widen = nn.Linear(d_model, feedforward)
        self.narrow = nn.Linear(feedforward, d_model)
        self.attention_norm = nn.LayerNorm(d_model)
        self.feedforward_norm = nn.LayerNorm(d_model)
        self.dropout = Dropout(dropout)
        nn.init.xavier_uniform_(self.in_projection.weight)  # as nn.MultiheadAttention starts
        nn.init.zeros_(self.in_projection.bias)
        nn.init.zeros_(self.out_projection.bias)

    def forward(self, x: Tensor, allowed: Tensor | None, queries: Tensor | None = None) -> Tensor:
        """x (B, S, E). `allowed` (B, Q, S) bool says who attends to whom; None is causal.

        With `queries` (B, Q, E), only their outputs are computed, else those of all of x.
        """
        targets = x if queries is None else queries
        if queries is None:
            q, k, v = self.in_projection(x).chunk(3, -1)
        else:
            weight, bias, width = self.in_projection.weight, self.in_projection.bias, x.shape[2]
            q = F.linear(targets, weight[:width], bias[:width])
            k, v = F.linear(x, weight[width:], bias[width:]).chunk(2, -1)
        q, k, v = (y.unflatten(2, (self.heads, -1)).transpose(1, 2) for y in (q, k, v))
        mask = None if allowed is None else allowed[:, None]
        if self.dropout.works:
            attended = self._attend_to_some(q, k, v, mask)
        else:
            attended = F.scaled_dot_product_attention(q, k, v, mask, is_causal=mask is None)
        attended = self.out_projection(attended.transpose(1, 2).flatten(2))
        y = self.attention_norm(targets + self.dropout(attended))
        wide = self.dropout(F.relu(self.widen(y)))
        return self.feedforward_norm(y + self.dropout(self.narrow(wide)))

    def _attend_to_some(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """dropout(softmax(q kᵀ / √d)) v: PyTorch's own would draw from the global generator."""
        if mask is None:
            mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()
        scores = (q @ k.transpose(2, 3) / math.sqrt(q.shape[3])).masked_fill(~mask, -math.inf)
        return self.dropout(scores.softmax(3)) @ v


def _last_reset(reset: Tensor) -> Tensor:
    """Return (B, T): the step of the last reset so far, or -1."""
    step = torch.arange(reset.shape[1], device=reset.device).expand_as(reset)
    return step.masked_fill(~reset, -1).cummax(1).values


def sinusoids(positions: int, d_model: int) -> Tensor:
    """Return (W, E): sin and cos of position · 10000^(-2i / E) in turn (Vaswani et al., 2017)."""
    place = torch.arange(positions, dtype=torch.float64)[:, None]
    even = torch.arange(0, d_model, 2, dtype=torch.float64)
    angle = place * torch.exp(-math.log(10000.0) / d_model * even)
    table = torch.stack([angle.sin(), angle.cos()], 2).flatten(1)
    return table[:, :d_model].to(torch.get_default_dtype())
