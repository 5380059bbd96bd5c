"""What a run will take, before it starts: memory that is free, memory that is needed, and time."""

import copy
import dataclasses
import gc
import math
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from kalmanac._lab.experiment import Experiment
from kalmanac._lab.factory import full_batch, horizon, make_model, training_environment
from kalmanac._lab.failure import explain
from kalmanac._messages import duration
from kalmanac._ops.device import (
    free_on_gpu,
    held_on_gpus,
    kind,
    peak_on_gpu,
    release_on_gpus,
    synchronize,
)
from kalmanac._ops.dispatch import packs_rows
from kalmanac._ops.graphed_call import WARM_UP, can_record
from kalmanac._replay.buffer import bytes_needed
from kalmanac._replay.sampling import Batch
from kalmanac._sac.config import AgentSettings
from kalmanac._sac.cuda_graph import GraphedUpdates, UpdateWith, run_eagerly
from kalmanac._sac.environment_failure import closed
from kalmanac._sac.learner import Learner
from kalmanac._sac.recurrent_sac import RecurrentSAC

PROC, CGROUP = Path("/proc"), Path("/sys/fs/cgroup")


def held_bytes() -> int:
    """Memory of the host that the process holds now, not the most that it ever held.

    The kernel's own maximum also counts what came before the run in the same process, and what a
    parent held before it became this one. Where the present is not known, it must do.
    """
    try:
        pages = int((PROC / "self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return pages * os.sysconf("SC_PAGE_SIZE")


def free_bytes(device: torch.device) -> int | None:
    """Memory that the process can still get on the device; None where that is not known."""
    if (free := free_on_gpu(device)) is not None:
        return free
    limits = [x for x in (_of_machine(), _of_group()) if x is not None]
    return min(limits, default=None)


def release() -> None:
    """Give back what nobody holds any more, to the devices, too."""
    gc.collect()
    release_on_gpus()


def _of_machine() -> int | None:
    """Read what Linux calls available."""
    try:
        lines = (PROC / "meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    fields = dict(line.split(":", 1) for line in lines)
    return int(fields["MemAvailable"].split()[0]) * 1024 if "MemAvailable" in fields else None


def _of_group() -> int | None:
    """Read what a container may still take; file caches that Linux would give up count as free."""
    try:
        most, now = ((CGROUP / f"memory.{x}").read_text().strip() for x in ("max", "current"))
        lines = (CGROUP / "memory.stat").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    fields = dict(line.split() for line in lines)
    reclaimable = sum(int(fields.get(name, 0)) for name in ("inactive_file", "slab_reclaimable"))
    return None if most == "max" else max(0, int(most) - int(now) + reclaimable)


GB = 1e9
FEW = 8  # windows to measure with, where all of them take long or do not fit
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


class MemoryNeed(NamedTuple):
    """Bytes that one run takes, beside what the process holds already."""

    replay: int
    update: int  # what an update computes with, twice on a GPU: eager, and in the graph
    learner: int

    @property
    def total(self) -> int:
        """The sum of the parts."""
        return sum(self)


def check_memory(
    experiment: Experiment, learner: Learner, runs: int = 1, *, free: float | None = None
) -> None:
    """Raise NoRoomError where `runs` runs of this experiment do not fit on the learner's device.

    Args:
        free: bytes; None asks the device.
    """
    device = learner.device
    free = free_bytes(device) if free is None else free
    if free is None:
        return
    usable = (1 - SPARE) * free
    need = memory_needed(experiment, learner)
    if runs * need.total <= usable:
        return
    each = f" for each of {runs} seeds" if runs > 1 else ""
    message = (
        f"memory: got a run that needs {need.total / GB:.3g} GB{each} (replay "
        f"{need.replay / GB:.3g}, update {need.update / GB:.3g}), expected at most "
        f"{usable / runs / GB:.3g} GB on {kind(device)}"
    )
    flags = _proposals(experiment, learner, need, runs, usable)
    fits = f"{' or '.join(flags)} would fit" if flags else "no smaller replay or batch alone would"
    raise NoRoomError(f"{message}; {fits}")


def memory_needed(experiment: Experiment, learner: Learner) -> MemoryNeed:
    """What a run of this experiment will take on the learner's device."""
    recorded = can_record(learner.device)
    return MemoryNeed(
        replay=_replay(experiment, learner, experiment.buffer_size),
        update=(1 + recorded) * update_bytes(experiment, learner) + recorded * WORKSPACES,
        learner=sum(x.nbytes for x in learner.state_dict().values()),
    )


def update_bytes(experiment: Experiment, learner: Learner) -> int:
    """What an update with full windows holds at its largest; a copy of the learner makes it.

    On a GPU it is one with all windows, as the training makes them: kernels for another number of
    them would be compiled for this alone. Elsewhere, and where these do not fit, a few windows are
    measured, and the others counted as they are.
    """
    few = min(experiment.batch_size, FEW)
    sizes = (experiment.batch_size, few) if can_record(learner.device) else (few,)
    for rows in dict.fromkeys(sizes):
        some = dataclasses.replace(experiment, batch_size=rows)
        try:
            batch = full_batch(learner.sizes, some, learner.device)
            peak = _peak_of_update(copy.deepcopy(learner), batch, experiment.tf32)
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            if not isinstance(explain(error), str):
                raise
            continue
        finally:
            release()
        return peak * experiment.batch_size // rows
    raise NoRoomError(
        f"memory: got windows of which {few} do not fit on {kind(learner.device)}, expected a "
        f"context_length smaller than {experiment.context_length}"
    )


def _peak_of_update(learner: Learner, batch: Batch, tf32: bool) -> int:
    """The batch, and what is kept of the forward pass until the backward one has read it."""
    batch_bytes = sum(x.nbytes for x in (*batch.observation, *batch[1:]) if x is not None)
    work = UpdateWith(learner, batch, tf32=tf32)

    def update() -> None:
        run_eagerly(work)
        learner.streams.forget()

    if (peak := peak_on_gpu(update, learner.device)) is not None:
        return batch_bytes + peak
    saved: dict[int, int] = {}  # bytes by place

    def keep(x: Tensor) -> Tensor:
        saved[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        learner.update(batch)
    return batch_bytes + sum(saved.values())


def _proposals(
    experiment: Experiment, learner: Learner, need: MemoryNeed, runs: int, usable: float
) -> list[str]:
    """Settings with which it would fit, as flags."""
    flags = []
    each = usable / runs - need.learner
    capacity = min(experiment.total_steps, experiment.buffer_size or experiment.total_steps)
    size = _largest(capacity, lambda size: _replay(experiment, learner, size) + need.update <= each)
    if size >= max(experiment.num_envs, experiment.context_length):
        flags.append(f"--buffer-size {size}")
    batch, update = experiment.batch_size, need.update / experiment.batch_size
    if (rows := _largest(batch, lambda rows: need.replay + rows * update <= each)) >= 1:
        flags.append(f"--batch-size {rows}")
    if (fewer := int(usable // need.total)) >= 1:
        flags.append(f"--seeds {fewer}")
    return flags


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


class Estimate(NamedTuple):
    """What a whole run takes on this machine."""

    seconds: float
    memory_gb: float

    def __str__(self) -> str:
        return f"about {duration(self.seconds)}, {self.memory_gb:.1f} GB"


def estimate(experiment: Experiment, *, device: str = "auto", seconds: float = 0.5) -> Estimate:
    """Time vector steps and updates of an agent that is thrown away, each for about `seconds`.

    How long episodes will become is not known. Updates count as the mean of two extremes: episodes
    as random actions give them, and windows of full length. Evaluations count half their horizon.
    """
    result = _measured(experiment, device, seconds)
    release()  # nothing of it is left for the run
    return result


def _measured(experiment: Experiment, device: str, seconds: float) -> Estimate:
    held = held_bytes() + (held_on_gpus() or 0)
    env = training_environment(experiment)
    model = make_model(dataclasses.replace(experiment, update_to_data=0.0), env, device)
    steps = endlessly(model, experiment.total_steps)

    def timed(work: Callable[[], object]) -> float:
        return mean_seconds(work, model.device, seconds)

    step = timed(lambda: next(steps))
    sampled = model.replay.sample(
        experiment.batch_size,
        experiment.context_length,
        generator=torch.Generator(model.device).manual_seed(experiment.seed),
        rule=experiment.drawing,
        burn_in=experiment.burn_in,
        previous_reward=experiment.previous_reward,
        elapsed=experiment.critic_clock,
        packed=packs_rows(model.device),
    )
    longest = full_batch(model.learner.sizes, experiment, model.device)
    how = model.settings
    updates_with = (update_as_trained(model.learner, batch, how) for batch in (sampled, longest))
    short, long = map(timed, updates_with)
    closed(env)
    updates = experiment.update_to_data * max(
        0, experiment.total_steps - experiment.learning_starts
    )
    evaluations = experiment.total_steps // experiment.eval_every * len(experiment.evaluations)
    vector_steps = math.ceil(experiment.total_steps / experiment.num_envs)
    vector_steps += evaluations * (horizon(experiment) or 0) // 2
    return Estimate(
        vector_steps * step + updates * (short + long) / 2,
        (held + memory_needed(experiment, model.learner).total) / GB,
    )


def endlessly(model: RecurrentSAC, steps: int) -> Iterator[RecurrentSAC]:
    """Vector steps of one training of so many steps after another: a replay that is reserved for
    all of them is no larger than the run's."""
    while True:
        yield from model.advance(steps)


def update_as_trained(
    learner: Learner, batch: Batch, settings: AgentSettings
) -> Callable[[], object]:
    """An update in the form that a training runs: on CUDA, replayed from a graph if it is."""
    if can_record(learner.device):
        work = UpdateWith(learner, batch, tf32=settings.tf32)
        return GraphedUpdates([work], learner.device, record=settings.graph)
    return partial(learner.update, batch)


def mean_seconds(work: Callable[[], object], device: torch.device, seconds: float) -> float:
    """Seconds that `work` takes; its first calls, which may compile or record, are left out."""

    def done() -> None:
        work()
        synchronize(device)

    for _ in range(WARM_UP + 1):  # an update's graph is recorded after its warm-up
        done()
    began, times = time.perf_counter(), 0
    while (spent := time.perf_counter() - began) < seconds or times < 3:
        done()
        times += 1
    return spent / times
