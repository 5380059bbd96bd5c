"""A short causal convolution per channel that carries its taps, and forgets them at a reset."""

import math

import torch
from torch import Tensor, nn


class CausalConvolution(nn.Module):
    """y_t = bias + Σ_j weight_j x_{t-K+1+j}, per channel, zeros before the episode's first step.

    The taps are the last K - 1 inputs, (B, K - 1, D). Parameters start as those of nn.Conv1d.
    """

    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(kernel)
        self.kernel = kernel
        self.weight = nn.Parameter(torch.empty(kernel, channels).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(channels).uniform_(-bound, bound))

    def forward(
        self, x: Tensor, taps: Tensor, lengths: Tensor | None, reset: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """x (B, T, D) → y (B, T, D) and the taps after each row's own length.

        `reset` must be False on pads.
        """
        steps, before = x.shape[1], self.kernel - 1
        inputs = torch.cat([taps.to(x.dtype), x], 1)  # inputs[:, before + t] is x_t
        episode = None if reset is None else self._episodes(reset)
        y = self.bias.expand_as(x)
        for j in range(self.kernel):
            shifted = inputs[:, j : j + steps]
            if episode is not None and j < before:
                earlier = episode[:, j : j + steps] != episode[:, before:]
                shifted = shifted.masked_fill(earlier[..., None], 0)
            y = y + self.weight[j] * shifted

        if lengths is None:
            last = torch.arange(steps, steps + before, device=x.device).expand(x.shape[0], -1)
        else:
            last = lengths.long()[:, None] + torch.arange(before, device=x.device)
        kept = inputs.gather(1, last[..., None].expand(-1, -1, x.shape[2]))
        if episode is not None:
            earlier = episode.gather(1, last) != episode[:, -1:]
            kept = kept.masked_fill(earlier[..., None], 0)
        return y, kept.to(taps.dtype)

    def step(self, x_t: Tensor, taps: Tensor, reset: Tensor | None) -> tuple[Tensor, Tensor]:
        """x_t (B, D) → y_t (B, D) and the taps after it."""
        if reset is not None:
            taps = taps.masked_fill(reset[:, None, None], 0)
        inputs = torch.cat([taps, x_t[:, None].to(taps.dtype)], 1)
        y_t = (self.weight * inputs.to(x_t.dtype)).sum(1) + self.bias
        return y_t, inputs[:, 1:]

    def _episodes(self, reset: Tensor) -> Tensor:
        """The number of resets so far, at every tap and step: equal within an episode."""
        numbers = reset.long().cumsum(1)
        return torch.cat([numbers.new_zeros(len(reset), self.kernel - 1), numbers], 1)
