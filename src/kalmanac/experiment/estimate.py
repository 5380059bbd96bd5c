"""What a run will take, before it starts: a few real steps and updates are timed."""

import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import torch

from kalmanac.agent import AgentSettings, Learner
from kalmanac.agent.capture import WARM_UP, Captured, UpdateWith, can_record
from kalmanac.experiment.building import horizon, make_model, training_environment
from kalmanac.experiment.description import Experiment
from kalmanac.experiment.full_batch import full_batch
from kalmanac.experiment.memory import held_bytes, release
from kalmanac.experiment.room import GB, needed
from kalmanac.ops.device import held_on_gpus, synchronize
from kalmanac.ops.dispatch import packs_rows
from kalmanac.printable import duration
from kalmanac.replay import Batch
from kalmanac.rollout import closed
from kalmanac.sac import RecurrentSAC


class Estimate(NamedTuple):
    """Of a whole run on this machine."""

    seconds: float
    memory_gb: float

    def __str__(self) -> str:
        return f"about {duration(self.seconds)}, {self.memory_gb:.1f} GB"


def estimate(experiment: Experiment, *, device: str = "auto", seconds: float = 0.5) -> Estimate:
    """Time vector steps and updates of an agent that is thrown away, each for about `seconds`.

    How long episodes will become is not known. Updates count as the mean of two extremes: episodes
    as random actions give them, and windows of full length. Evaluations count half their horizon.
    """
    found = _measured(experiment, device, seconds)
    release()  # nothing of it is left for the run
    return found


def _measured(experiment: Experiment, device: str, seconds: float) -> Estimate:
    held = held_bytes() + (held_on_gpus() or 0)
    env = training_environment(experiment)
    model = make_model(dataclasses.replace(experiment, update_to_data=0.0), env, device)
    steps = endlessly(model, experiment.total_steps)

    def timed(work: Callable[[], object]) -> float:
        return mean_seconds(work, model.device, seconds)

    step = timed(lambda: next(steps))
    drawn = model.replay.sample(
        experiment.batch_size,
        experiment.context_length,
        generator=torch.Generator(model.device).manual_seed(experiment.seed),
        rule=experiment.drawing,
        burn_in=experiment.burn_in,
        packed=packs_rows(model.device),
    )
    longest = full_batch(model.learner.sizes, experiment, model.device)
    how = model.settings
    updates_with = (update_as_trained(model.learner, batch, how) for batch in (drawn, longest))
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
        (held + needed(experiment, model.learner).total) / GB,
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
        work = UpdateWith(learner, batch)
        work.tf32 = settings.tf32
        return Captured([work], learner.device, record=settings.graph)
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
