"""Whether runs fit into memory, before they start; where they do not, a setting that would."""

import copy
import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from kalmanac.agent import Learner
from kalmanac.agent.capture import can_record
from kalmanac.experiment.description import Experiment
from kalmanac.experiment.failure import explain
from kalmanac.experiment.full_batch import full_batch
from kalmanac.experiment.memory import free_bytes, release
from kalmanac.ops.device import kind, peak_on_gpu
from kalmanac.replay import Batch, bytes_needed

GB = 1e9
FEW = 8  # windows to measure with: all of them might not fit
WORKSPACES = 512 * 10**6  # of libraries, on all streams of a run on a GPU
SPARE = 0.05  # of the free memory: allocators do not fill it to the last byte


class NoRoomError(ValueError):
    """Runs that need more memory than is free.

    Examples:
        >>> from kalmanac import Experiment, NoRoomError, run
        >>> experiment = Experiment(
        ...     env="track", total_steps=1, eval_every=1, eval_episodes=1, batch_size=1, num_envs=1
        ... )
        >>> try:
        ...     outcome = run(experiment, "runs/large", events=False)
        ... except NoRoomError as error:
        ...     print(error)  # what it needs, what there is, and a setting that would fit
    """


class Need(NamedTuple):
    """Bytes that one run takes, beside what the process holds already."""

    replay: int
    update: int  # what an update computes with, twice on a GPU: eager, and in the graph
    learner: int

    @property
    def total(self) -> int:
        """All of it."""
        return sum(self)


def check_room(
    experiment: Experiment, learner: Learner, runs: int = 1, *, free: float | None = None
) -> None:
    """NoRoomError where `runs` runs of this experiment do not fit on the learner's device.

    Args:
        free: bytes; None asks the device.
    """
    device = learner.device
    free = free_bytes(device) if free is None else free
    if free is None:
        return
    usable = (1 - SPARE) * free
    need = needed(experiment, learner)
    if runs * need.total <= usable:
        return
    each = f" for each of {runs} seeds" if runs > 1 else ""
    told = (
        f"memory: got a run that needs {need.total / GB:.3g} GB{each} (replay "
        f"{need.replay / GB:.3g}, update {need.update / GB:.3g}), expected at most "
        f"{usable / runs / GB:.3g} GB on {kind(device)}"
    )
    flags = _proposals(experiment, learner, need, runs, usable)
    fits = f"{' or '.join(flags)} would fit" if flags else "no smaller replay or batch alone would"
    raise NoRoomError(f"{told}; {fits}")


def needed(experiment: Experiment, learner: Learner) -> Need:
    """What a run of this experiment will take on the learner's device."""
    recorded = can_record(learner.device)
    return Need(
        replay=_replay(experiment, learner, experiment.buffer_size),
        update=(1 + recorded) * update_bytes(experiment, learner) + recorded * WORKSPACES,
        learner=sum(x.nbytes for x in learner.state_dict().values()),
    )


def update_bytes(experiment: Experiment, learner: Learner) -> int:
    """What an update with full windows holds at its largest: measured with a few, times the rest.

    A copy of the learner does it.
    """
    rows = min(experiment.batch_size, FEW)
    few = dataclasses.replace(experiment, batch_size=rows)
    try:
        held = _held_by_update(
            copy.deepcopy(learner), full_batch(learner.sizes, few, learner.device)
        )
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        if not isinstance(explain(error), str):
            raise
        raise NoRoomError(
            f"memory: got windows of which {rows} do not fit on {kind(learner.device)}, expected a "
            f"context_length smaller than {experiment.context_length}"
        ) from None
    finally:
        release()
    return held * experiment.batch_size // rows


def _held_by_update(learner: Learner, batch: Batch) -> int:
    """The batch, and what is kept of the forward pass until the backward one has read it."""
    given = sum(x.nbytes for x in (*batch.observation, *batch[1:]) if x is not None)

    def update() -> None:
        learner.update(batch)
        learner.side_by_side.forget()

    if (peak := peak_on_gpu(update, learner.device)) is not None:
        return given + peak
    held: dict[int, int] = {}  # bytes by place

    def keep(x: Tensor) -> Tensor:
        held[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        learner.update(batch)
    return given + sum(held.values())


def _proposals(
    experiment: Experiment, learner: Learner, need: Need, runs: int, usable: float
) -> list[str]:
    """Settings with which it would fit, as flags."""
    found = []
    each = usable / runs - need.learner
    kept = min(experiment.total_steps, experiment.buffer_size or experiment.total_steps)
    size = _largest(kept, lambda size: _replay(experiment, learner, size) + need.update <= each)
    if size >= max(experiment.num_envs, experiment.context_length):
        found.append(f"--buffer-size {size}")
    batch, update = experiment.batch_size, need.update / experiment.batch_size
    if (rows := _largest(batch, lambda rows: need.replay + rows * update <= each)) >= 1:
        found.append(f"--batch-size {rows}")
    if (fewer := int(usable // need.total)) >= 1:
        found.append(f"--seeds {fewer}")
    return found


def _largest(limit: int, fits: Callable[[int], bool]) -> int:
    """The largest number below `limit` that fits, cut to two digits; 0 where none does."""
    low, high = 0, limit
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    digits = 10 ** max(0, len(str(low)) - 2)
    return low // digits * digits


def _replay(experiment: Experiment, learner: Learner, capacity: int | None) -> int:
    return bytes_needed(
        learner.sizes,
        experiment.num_envs,
        experiment.total_steps,
        capacity=capacity if capacity is None else max(capacity, experiment.num_envs),
        reserved=can_record(learner.device),
    )
