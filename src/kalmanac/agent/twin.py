"""The heads' multilayer perceptrons: one for the actor, two at once for the twin critic."""

from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn

from kalmanac.ops.dispatch import Precision
from kalmanac.ops.mlp import mlp


class Perceptron(nn.Module):
    """Linear layers with ReLU between them; orthogonal weights, zero biases.

    `precision` is that of factors where kernels of ours run the layers: on a GPU, in updates.
    """

    precision: Precision = "tf32"

    def __init__(self, widths: Sequence[int], *, gain: float = 1.0) -> None:
        super().__init__()
        layers = [nn.Linear(n, m) for n, m in pairwise(widths)]
        self.layers = nn.ModuleList(layers)
        for layer in layers:
            nn.init.orthogonal_(layer.weight, gain)
            nn.init.zeros_(layer.bias)

    def forward(self, *parts: Tensor) -> Tensor:
        """(…, first width), perhaps in several parts side by side, to (…, last width)."""
        weights = [layer.weight.mT[None] for layer in self.linear()]
        biases = [layer.bias[None, None] for layer in self.linear()]
        return mlp(parts, weights, biases, precision=self.precision).squeeze(0)

    def linear(self) -> list[nn.Linear]:
        """The layers, with their type."""
        return [cast(nn.Linear, layer) for layer in self.layers]


class TwinPerceptron(nn.Module):
    """Two independent perceptrons on the same input, each layer one matrix product.

    `precision` as in `Perceptron`.
    """

    precision: Precision = "tf32"

    def __init__(self, widths: Sequence[int], *, gain: float = 1.0) -> None:
        super().__init__()
        self.weights = nn.ParameterList(torch.empty(2, n, m) for n, m in pairwise(widths))
        self.biases = nn.ParameterList(torch.zeros(2, 1, m) for m in widths[1:])
        for weight in self.weights:
            for twin in weight:
                nn.init.orthogonal_(twin, gain)

    def forward(self, *parts: Tensor, frozen: bool = False) -> Tensor:
        """(…, first width), perhaps in several parts side by side, to (2, …, last width).

        `frozen`: gradients reach the parts, not the weights.
        """
        layers = [*self.weights, *self.biases]
        if frozen:
            layers = [x.detach() for x in layers]
        count = len(self.weights)
        return mlp(parts, layers[:count], layers[count:], precision=self.precision)
