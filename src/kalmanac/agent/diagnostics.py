"""What the networks think of a batch: Kalman beliefs, and values and policy of each action."""

import torch
from torch import Tensor

from kalmanac.agent.networks import (
    Actor,
    Critic,
    History,
    HistoryNetwork,
    read_history,
    token_pads,
)
from kalmanac.encoders import KalmanEncoder
from kalmanac.ops.sac_losses import Counted
from kalmanac.replay import Batch

MOST_ACTIONS = 64  # beyond it nobody reads a number for each


@torch.no_grad()
def diagnose(actor: Actor, critic: Critic, batch: Batch, privileged: bool) -> dict[str, Tensor]:
    """0-d tensors: mean gain and posterior variance of Kalman encoders; mean Q and share by action.

    Q is averaged over the steps at which the action is allowed.
    The plain names are the actor's, those that end in `_critic` the critic's.
    """
    history = read_history(batch)
    judged = read_history(batch, privileged=privileged)
    tokens = Counted.of(~token_pads(batch))
    allowed = history.observation.action_mask
    found = beliefs(actor.network, history, tokens)
    for name, x in beliefs(critic.network, judged, tokens).items():
        found[f"{name}_critic"] = x
    if critic.discrete and actor.distribution.outputs <= MOST_ACTIONS:
        steps = Counted.of(batch.valid)
        share = torch.softmax(actor(history)[:, :-1], -1)
        q = critic.head(critic.network(judged.but_last())).mean(0)
        for a in range(share.shape[-1]):
            free = steps if allowed is None else Counted.of(batch.valid & allowed[:, :-1, a])
            found[f"train/q_action_{a}"] = free.mean(q[..., a])
            found[f"train/policy_action_{a}"] = steps.mean(share[..., a])
    return found


def beliefs(network: HistoryNetwork, history: History, tokens: Counted) -> dict[str, Tensor]:
    """Mean gain and posterior variance over tokens, channels and layers; {} without beliefs."""
    if not isinstance(network.encoder, KalmanEncoder):
        return {}
    seen = network.encoder.beliefs(
        network.embed(network.look(history.observation), history.previous_action),
        history.lengths,
        reset=history.reset,
        observed=history.observation.observed,
    )
    return {  # (B, L, T + 1, N) each
        "train/gain_mean": tokens.mean(seen.gain.mean((1, 3))),
        "train/posterior_variance_mean": tokens.mean(seen.posterior.variance.mean((1, 3))),
    }
