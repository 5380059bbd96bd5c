"""Images as features: a small convolutional network for each image of an observation."""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

Shape = tuple[int, int, int]  # channels, height, width


class ImageEmbedder(nn.Module):
    """Pixels (…, P) uint8 to features (…, F · images).

    Each image goes through 3 × 3 convolutions that halve its sides (rounded up), with ReLU behind
    each, one linear layer and a LayerNorm: its features have the scale of normalised numbers.
    """

    def __init__(self, shapes: Sequence[Shape], channels: Sequence[int], features: int) -> None:
        super().__init__()
        self.shapes = tuple(shapes)
        self.features = features * len(self.shapes)
        self.towers = nn.ModuleList(_tower(shape, channels, features) for shape in self.shapes)

    def forward(self, pixels: Tensor) -> Tensor:
        """(…, P) to (…, F · images)."""
        rows = pixels.flatten(0, -2)
        found = []
        images = rows.split([math.prod(shape) for shape in self.shapes], -1)
        for tower, shape, image in zip(self.towers, self.shapes, images, strict=True):
            # as numbers in [-1/2, 1/2]; channels last in memory, which is faster on a CPU
            x = image.unflatten(-1, shape).contiguous(memory_format=torch.channels_last)
            found.append(tower(x.float() / 255 - 0.5))
        return torch.cat(found, -1).unflatten(0, pixels.shape[:-1])


def _tower(shape: Shape, channels: Sequence[int], features: int) -> nn.Sequential:
    depth, height, width = shape
    layers: list[nn.Module] = []
    for n, m in pairwise([depth, *channels]):
        layers += [nn.Conv2d(n, m, 3, stride=2, padding=1), nn.ReLU()]
        height, width = (height + 1) // 2, (width + 1) // 2
    last = channels[-1] if channels else depth
    linear = nn.Linear(last * height * width, features)
    return nn.Sequential(*layers, nn.Flatten(), linear, nn.LayerNorm(features))
