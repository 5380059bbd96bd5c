"""The tensors that a learner will have, known before any of them takes memory."""

import torch
from torch import Tensor, nn

from kalmanac.agent.networks import Actor, Critic
from kalmanac.agent.optimiser import side_by_side
from kalmanac.agent.settings import AgentSettings
from kalmanac.replay import Sizes

Shapes = dict[str, tuple[int, ...]]


class Expected:
    """Shapes of an agent's tensors, from networks without numbers (PyTorch's meta device).

    `actor` and `learner` are those of the two `state_dict`s, the generators' states apart. `unkept`
    counts the numbers that networks make for themselves, and no file holds. `critic_numbers` are
    those of the critic.
    """

    def __init__(self, settings: AgentSettings, sizes: Sizes) -> None:
        with torch.device("meta"):
            actor, critic = Actor(sizes, settings), Critic(sizes, settings)
            learnt: list[Tensor] = [*actor.parameters(), *critic.parameters()]
            learnt += [torch.zeros(())] if settings.ent_coef == "auto" else []
            adam = (len(side_by_side(learnt)),)
        self.actor = _shapes(actor, "")
        parts = {"actor": actor, "critic": critic, "target": critic}
        if settings.average_policy:
            parts["averaged"] = actor
        self.learner: Shapes = {"log_alpha": (), "adam.steps": ()}
        self.learner |= {"adam.average": adam, "adam.square": adam}
        for name, part in parts.items():
            self.learner |= _shapes(part, f"{name}.")
        self.unkept = sum(map(_unkept, (actor, critic)))
        self.critic_numbers = sum(x.numel() for x in critic.state_dict().values())


def _shapes(module: nn.Module, prefix: str) -> Shapes:
    return {f"{prefix}{name}": tuple(x.shape) for name, x in module.state_dict().items()}


def _unkept(module: nn.Module) -> int:
    kept = module.state_dict().keys()
    return sum(x.numel() for name, x in module.named_buffers() if name not in kept)
