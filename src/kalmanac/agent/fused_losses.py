"""The losses of discrete actions through a kernel of the GPU backend, which knows their gradients.

The same numbers as `Learner.losses_of`, in two launches instead of some eighty; autograd begins at
the heads' outputs.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from kalmanac.agent.networks import read_history
from kalmanac.ops import gpu
from kalmanac.ops.late import late
from kalmanac.replay import Batch, Sizes

if TYPE_CHECKING:
    from kalmanac.agent.learner import Learner

_discrete_losses = late("kalmanac.ops.gpu.loss_kernels", "discrete_losses")
MOST_ACTIONS = 64  # a row of actions has to fit into a program's registers
NAMES = (
    "actor_loss", "critic_loss", "ent_coef_loss", "ent_coef", "entropy", "q_mean", "q_max",
    "target_mean",
)  # fmt: skip


def possible(batch: Batch, sizes: Sizes) -> bool:
    """The kernel can take this batch."""
    ready = batch.reward.is_cuda and gpu.INSTALLED and batch.reward.dtype == torch.float32
    return ready and sizes.discrete and not sizes.action_mask and sizes.action <= MOST_ACTIONS


def roots_of(
    learner: "Learner", batch: Batch
) -> tuple[list[Tensor], list[Tensor], dict[str, Tensor]]:
    """What autograd begins at, the losses' slopes there, and what to log.

    The critic runs over all T + 1 tokens here: nothing depends on the last one, and no copy is
    needed to leave it out.
    """
    settings = learner.settings
    history = read_history(batch)
    judged = read_history(batch, privileged=True) if settings.privileged_critic else history
    actor, critic, target = learner.actor, learner.critic, learner.target
    logits, following, q = learner.side_by_side(
        (history, judged),
        lambda: actor(history),
        torch.no_grad()(lambda: target.head(*target.network.encode(judged))),
        lambda: critic.head(*critic.network.encode(judged)),
    )
    found = _discrete_losses(
        logits, q, following, batch.action, batch.reward, batch.terminated, batch.valid,
        learner.log_alpha, gamma=settings.gamma, entropy_goal=learner.entropy_goal,
        entropy_in_target=settings.entropy_in_target,
        **learner.objective._asdict(),
    )  # fmt: skip
    told = dict(zip(NAMES, found.numbers, strict=True))
    roots, slopes = [logits, q], [found.of_logits, found.of_q]
    if learner.learns_temperature:
        roots.append(learner.log_alpha)
        slopes.append(found.of_log_alpha)
    else:
        del told["ent_coef_loss"]
    return roots, slopes, {f"train/{name}": x for name, x in told.items()}
