"""Dropout that draws from a generator of one's own."""

import torch
from torch import Generator, Tensor, nn


class Dropout(nn.Module):
    """y = x · keep / (1 - p) with keep ~ Bernoulli(1 - p), in training; y = x otherwise.

    `generator` draws, and lies on the device of x; None is torch's global one, as in nn.Dropout.
    An encoder that drops with this class instead of nn.Dropout draws from its agent's own stream:
    the agent's seed decides the results.

    Examples:
        >>> import torch
        >>> from kalmanac import Dropout
        >>> dropout = Dropout(0.5)
        >>> dropout.generator = torch.Generator().manual_seed(0)
        >>> sorted(set(dropout(torch.ones(100)).tolist()))
        [0.0, 2.0]
        >>> dropout.eval()(torch.ones(2))
        tensor([1., 1.])
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"dropout: got {p}, expected a probability from 0 to below 1")
        self.p = p
        self.generator: Generator | None = None

    @property
    def works(self) -> bool:
        """Whether anything is dropped now."""
        return self.training and self.p > 0

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape."""
        if not self.works:
            return x
        keep = torch.empty_like(x).bernoulli_(1 - self.p, generator=self.generator)
        return x * (keep / (1 - self.p))


def draw_dropout_from(generator: Generator, module: nn.Module) -> None:
    """All `Dropout` in `module` draws from `generator` from now on."""
    for part in module.modules():
        if isinstance(part, Dropout):
            part.generator = generator
