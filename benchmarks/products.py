"""The matrix products of a learner's update and nothing else: what no implementation can avoid.

Of every linear layer, every recurrent weight and every layer of the heads: its product forward, and
where gradients flow its two products backward, each a bare `torch.mm` or `torch.bmm` into memory
that is there already. Only valid tokens count.

A recurrent weight is one product over all tokens here, though in truth it is one a step. Not
counted: the two products of attention, convolutions, scans, and all that is elementwise.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from kalmanac._encoders.s5 import S5Block
from kalmanac._replay.sampling import Batch
from kalmanac._sac.learner import Learner
from kalmanac._sac.networks import Critic, HistoryNetwork


class Layer(NamedTuple):
    """A linear map of `rows` forward and `learned` rows backward; `twins` maps of one input."""

    rows: int
    learned: int  # 0: no backward
    inputs: int
    outputs: int
    into_input: bool = True  # the gradient is wanted further down
    twins: int = 1

    @property
    def multiplications(self) -> int:
        """Multiply-adds of all its products."""
        backward = self.learned * (1 + self.into_input)
        return self.twins * (self.rows + backward) * self.inputs * self.outputs

    @property
    def numbers(self) -> int:
        """Numbers that its products read and write, each product alone."""
        (rows, learnt, n, m), weights = self[:4], self.inputs * self.outputs
        forward = rows * (n + self.twins * m) + self.twins * weights
        backward = learnt * (n + self.twins * m) + self.twins * weights
        into = self.twins * (learnt * (m + n) + weights)
        return forward + (backward + self.into_input * into if learnt else 0)


def layers_of(learner: Learner, batch: Batch) -> list[Layer]:
    """Every linear map of an update: actor and critic learn, the target only looks ahead.

    The actor and the target read all tokens, the critic those with a transition; every head but the
    actor's answers for transitions alone, and gradients come from transitions alone.
    """
    tokens, steps = int(batch.lengths.sum()), int(batch.valid.sum())
    actor, critic, target = learner.actor, learner.critic, learner.target
    found = list(_network(actor.network, tokens, steps))
    own = [layer.weight.shape for layer in actor.head.linear()]
    found += [Layer(tokens, steps, n, m) for m, n in own]
    for judge, rows, learned in ((critic, steps, steps), (target, tokens, 0)):
        found += _network(judge.network, rows, learned)
        found += [Layer(steps, learned, n, m, twins=2) for _, n, m in _shapes(judge)]
    if not critic.discrete:  # it judges the policy's actions too, and leads back to them alone
        found += [Layer(steps, 0, n, m, twins=2) for _, n, m in _shapes(critic)]
        found += [Layer(steps, 0, m, n, twins=2) for _, n, m in _shapes(critic)]
    if actor.network.encoder is None:  # observations need no gradient
        first = {0, len(own)}
        found = [
            x._replace(into_input=x.into_input and i not in first) for i, x in enumerate(found)
        ]
    return found


def products(layers: Sequence[Layer], device: torch.device) -> Callable[[int], Any]:
    """One call does them all. Operands of one shape and role share their memory."""
    pool: dict[tuple[Any, ...], Tensor] = {}

    def tensor(role: str, *shape: int) -> Tensor:
        if (role, shape) not in pool:
            pool[role, shape] = torch.randn(shape, device=device)
        return pool[role, shape]

    calls: list[tuple[Callable[..., Any], Tensor, Tensor, Tensor]] = []
    for rows, learned, n, m, into_input, twins in layers:
        heads = () if twins == 1 else (twins,)
        product = torch.mm if twins == 1 else torch.bmm
        x, weight = tensor("x", rows, n).expand(*heads, -1, -1), tensor("weight", *heads, n, m)
        calls.append((product, x, weight, tensor("y", *heads, rows, m)))
        if learned:
            slope, seen = tensor("slope", *heads, learned, m), tensor("x", learned, n)
            seen = seen.expand(*heads, -1, -1)
            calls.append((product, seen.mT, slope, tensor("into weight", *heads, n, m)))
            if into_input:
                calls.append((product, slope, weight.mT, tensor("into x", *heads, learned, n)))

    def run(_: int) -> None:
        for product, left, right, out in calls:
            product(left, right, out=out)

    return run


def _shapes(critic: Critic) -> list[torch.Size]:
    return [weight.shape for weight in critic.head.weights]


def _network(network: HistoryNetwork, rows: int, learned: int) -> Iterator[Layer]:
    if network.embedder is None or network.encoder is None:
        return
    shape = network.embedder.in_features, network.embedder.out_features
    yield Layer(rows, learned, *shape, into_input=False)
    for part in network.encoder.modules():
        if isinstance(part, nn.Linear):
            yield Layer(rows, learned, part.in_features, part.out_features)
        elif isinstance(part, nn.RNNBase):
            for weight in part.parameters():
                if weight.dim() == 2:
                    yield Layer(rows, learned, weight.shape[1], weight.shape[0])
        elif isinstance(part, S5Block):
            for weight in (part.into, part.out_of):
                yield Layer(rows, learned, weight.shape[1], weight.shape[0])
