"""The largest batch of a run, of zeros: to time an update with it, or to see what it takes."""

import torch

from kalmanac.experiment.building import horizon
from kalmanac.experiment.description import Experiment
from kalmanac.observation import PartSize, Sizes
from kalmanac.ops.dispatch import packs_rows
from kalmanac.replay import Batch


def full_batch(sizes: Sizes, experiment: Experiment, device: torch.device) -> Batch:
    """A batch in which every window has its full length, as far as an episode can be so long."""
    rows, steps = experiment.batch_size, experiment.context_length + experiment.burn_in
    steps = min(steps, horizon(experiment) or steps)
    valid = torch.ones(rows, steps, dtype=torch.bool, device=device)
    first = torch.zeros(rows, steps + 1, dtype=torch.bool, device=device)
    first[:, 0] = True

    def zeros(*shape: int) -> torch.Tensor:
        return torch.zeros(rows, *shape, device=device)

    def part(size: PartSize) -> torch.Tensor:  # all readings are there, all actions allowed
        fill, dtype = size.dtype == "bool", getattr(torch, size.dtype)
        return torch.full((rows, steps + 1, *size.shape), fill, dtype=dtype, device=device)

    return Batch(
        observation=sizes.observation_parts.map(part),
        previous_action=zeros(steps + 1, sizes.action),
        action=zeros(steps, sizes.action),
        reward=zeros(steps),
        terminated=~valid,
        valid=valid,
        lengths=torch.full((rows,), steps + 1, device=device),
        reset=first if packs_rows(device) else None,  # as packed rows have it
    )
