"""A recurrent SAC as public baselines write it: the peer of the update."""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kalmanac._observation import Sizes
from kalmanac._replay.sampling import Batch


def perceptron(widths: Sequence[int]) -> nn.Sequential:
    """Linear layers with ReLU between them."""
    layers: list[nn.Module] = []
    for n, m in pairwise(widths):
        layers += [nn.Linear(n, m), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Network(nn.Module):
    """Embedder, nn.GRU, heads with so many outputs; a critic of continuous actions reads these."""

    def __init__(
        self, sizes: Sizes, hidden: Sequence[int], heads: int, outputs: int, reads_action: bool
    ) -> None:
        super().__init__()
        self.embed = nn.Linear(sizes.observation + sizes.action, 16)
        self.gru = nn.GRU(16, 128, batch_first=True)
        widths = [128 + sizes.observation + sizes.action * reads_action, *hidden, outputs]
        self.heads = nn.ModuleList(perceptron(widths) for _ in range(heads))

    def forward(self, observation: Tensor, previous: Tensor, *action: Tensor) -> list[Tensor]:
        """(B, T, outputs) of each head."""
        z, _ = self.gru(self.embed(torch.cat([observation, previous], -1)))
        features = torch.cat([z, observation, *action], -1)
        return [head(features) for head in self.heads]


class PlainSAC:
    """Two networks, a target, two optimisers and a temperature."""

    def __init__(self, sizes: Sizes, hidden: Sequence[int], device: torch.device) -> None:
        self.discrete = sizes.discrete
        outputs = (sizes.action, sizes.action) if sizes.discrete else (2 * sizes.action, 1)
        self.actor = Network(sizes, hidden, 1, outputs[0], False).to(device)
        self.critic, self.target = (
            Network(sizes, hidden, 2, outputs[1], not sizes.discrete).to(device) for _ in range(2)
        )
        self.target.load_state_dict(self.critic.state_dict())
        self.log_alpha = torch.zeros((), device=device, requires_grad=True)
        self.adams = [
            torch.optim.Adam(p, 3e-4)
            for p in (self.actor.parameters(), self.critic.parameters(), [self.log_alpha])
        ]

    def update(self, batch: Batch) -> None:
        """Critic, actor, temperature, target."""
        (self._update_discrete if self.discrete else self._update_continuous)(batch)
        with torch.no_grad():
            pairs = zip(self.target.parameters(), self.critic.parameters(), strict=True)
            for slow, fast in pairs:
                slow.lerp_(fast, 0.005)

    def _update_discrete(self, batch: Batch) -> None:
        valid = batch.valid.float()
        count = valid.sum()
        seen = (batch.observation.vector, batch.previous_action)
        alpha = self.log_alpha.exp().detach()
        with torch.no_grad():
            log_p = F.log_softmax(self.actor(*seen)[0], -1)
            low = torch.minimum(*self.target(*seen))
            value = (log_p.exp() * (low - alpha * log_p)).sum(-1)[:, 1:]
            goal = batch.reward + 0.99 * value * ~batch.terminated
        taken = [(q[:, :-1] * batch.action).sum(-1) for q in self.critic(*seen)]
        self._step(1, sum(((q - goal).square() * valid).sum() / count for q in taken))
        log_p = F.log_softmax(self.actor(*seen)[0], -1)
        with torch.no_grad():
            low = torch.minimum(*self.critic(*seen))
        lost = (log_p.exp() * (alpha * log_p - low)).sum(-1)[:, :-1]
        self._step(0, (lost * valid).sum() / count)
        entropy = -(log_p.exp() * log_p).sum(-1)[:, :-1].detach()
        self._step(2, self.log_alpha * ((entropy - 1.0) * valid).sum() / count)

    def _update_continuous(self, batch: Batch) -> None:
        valid = batch.valid.float()
        count = valid.sum()
        seen = (batch.observation.vector, batch.previous_action)
        alpha = self.log_alpha.exp().detach()
        with torch.no_grad():
            action, log_p = self._drawn(*seen)
            low = torch.minimum(*self.target(*seen, action))[..., 0]
            goal = batch.reward + 0.99 * (low - alpha * log_p)[:, 1:] * ~batch.terminated
        at_tokens = F.pad(batch.action, (0, 0, 0, 1))
        taken = [q[:, :-1, 0] for q in self.critic(*seen, at_tokens)]
        self._step(1, sum(((q - goal).square() * valid).sum() / count for q in taken))
        action, log_p = self._drawn(*seen)
        low = torch.minimum(*self.critic(*seen, action))[..., 0]
        lost = (alpha * log_p - low)[:, :-1]
        self._step(0, (lost * valid).sum() / count)
        short = action.shape[-1] - log_p[:, :-1].detach()  # the entropy less its goal, -A
        self._step(2, self.log_alpha * (short * valid).sum() / count)

    def _drawn(self, observation: Tensor, previous: Tensor) -> tuple[Tensor, Tensor]:
        """Squashed actions (B, T, A) and their log π (B, T)."""
        mean, log_std = self.actor(observation, previous)[0].chunk(2, -1)
        policy = torch.distributions.Normal(mean, log_std.clamp(-20, 2).exp(), validate_args=False)
        raw = policy.rsample()
        log_p = policy.log_prob(raw) - 2 * (math.log(2) - raw - F.softplus(-2 * raw))
        return torch.tanh(raw), log_p.sum(-1)

    def _step(self, which: int, loss: Tensor | int) -> None:
        assert isinstance(loss, Tensor)
        self.adams[which].zero_grad()
        loss.backward()
        self.adams[which].step()
