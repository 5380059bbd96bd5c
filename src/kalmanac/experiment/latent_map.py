"""What a policy would do all over its latent space (paper, figure of latent space rollouts).

Only two latent channels can be drawn, and only where the policy reads nothing else of the past: one
layer, whose state goes through one projection. The skip connection shows the head the observation
too: it is held fixed over the map.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kalmanac.agent.networks import Actor
from kalmanac.encoders.kalman import KalmanLayer
from kalmanac.encoders.kalman_encoder import KalmanEncoder
from kalmanac.encoders.ssm import SSMLayer
from kalmanac.encoders.stack import Stack
from kalmanac.sac import RecurrentSAC

POINTS = 121  # a side
LEAST = 2.5  # the map goes at least so far from the origin: the prior is N(0, 1)
MARGIN = 0.12  # beyond the trajectory, as a share of the map
ADVICE = "kalmanac train best-arm-demo --encoder vssm+kf --encoder-settings d_state=2"

Floats = NDArray[np.float32]


def has_latent_map(model: RecurrentSAC) -> bool:
    """Whether the agent has a latent space that can be drawn, and actions to draw in it."""
    return model.learner.sizes.discrete and _stack(model.learner.averaged) is not None


def refuse_without_latent_map(model: RecurrentSAC) -> None:
    """ValueError, with the way to train another agent."""
    if has_latent_map(model):
        return
    settings = model.settings
    told = dict(settings.encoder_settings)
    actions = "discrete" if model.learner.sizes.discrete else "continuous"
    raise ValueError(
        f"latent: got an agent with encoder {settings.encoder!r}, settings {told} and {actions} "
        "actions, expected vssm, vssm+kf or vssm+kf-u with two latent channels, one layer and "
        f"discrete actions, as {ADVICE} trains it"
    )


@torch.no_grad()
def latent_map(model: RecurrentSAC, latent: Floats, seen: Tensor) -> tuple[Floats, Floats]:
    """Values of the two channels around a trajectory (T, 2), (2, G), and π there, (G, G, A).

    `seen` (1, O) is what stands beside z in the features that the head reads.
    """
    actor = model.learner.averaged
    stack = _stack(actor)
    assert stack is not None
    low, high = latent.min(0), latent.max(0)
    margin = MARGIN * np.maximum(high - low, 2 * LEAST)
    low, high = np.minimum(low - margin, -LEAST), np.maximum(high + margin, LEAST)
    grid = np.linspace(low, high, POINTS, dtype=np.float32).T  # (2, G)
    first, second = np.meshgrid(*grid)  # [second, first]
    places = torch.from_numpy(np.stack([first, second], -1)).to(seen.device)
    z = stack.norm(_layer(stack).out_projection(places))
    features = torch.cat([z, seen.expand(POINTS, POINTS, -1)], -1)
    return grid, torch.softmax(actor.head(features), -1).cpu().numpy()


def _stack(actor: Actor) -> Stack | None:
    """The encoder's one layer, with what stands behind it; None where it cannot be drawn."""
    encoder = actor.network.encoder
    stack = encoder.stack if isinstance(encoder, KalmanEncoder) else encoder
    if not isinstance(stack, Stack) or len(stack.layers) != 1:
        return None
    layer = stack.layers[0]
    plain = isinstance(layer, SSMLayer) or (
        isinstance(layer, KalmanLayer) and not layer.variance_feature
    )
    return stack if plain and _layer(stack).d_state == 2 else None


def _layer(stack: Stack) -> KalmanLayer | SSMLayer:
    layer = stack.layers[0]
    assert isinstance(layer, KalmanLayer | SSMLayer)
    return layer
