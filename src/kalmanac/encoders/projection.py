"""Linear layers as `nn.Linear` has them, computed by `ops.dense`."""

from torch import Tensor, nn

from kalmanac.ops.dense import dense


class Linear(nn.Linear):
    """y = W x + b: the same parameters, names and initial values as `nn.Linear`."""

    def forward(self, x: Tensor) -> Tensor:
        """(…, inputs) to (…, outputs)."""
        return dense(x, self.weight, self.bias)


class Projection(nn.Linear):
    """The same with many outputs for its inputs, which a CPU takes in another form."""

    def forward(self, x: Tensor) -> Tensor:
        """(…, inputs) to (…, outputs)."""
        return dense(x, self.weight, self.bias, bias_as_weight=True)
