"""How many threads of PyTorch a run has on a CPU: measured when it begins, and kept from then on.

Some sums have as many parts as there are threads, and their last digits depend on it.
"""

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from kalmanac._lab.experiment import Experiment
from kalmanac._lab.factory import full_batch
from kalmanac._ops.device import on_cpu
from kalmanac._sac.learner import Learner

ROUNDS = (3, 20)  # at least, at most
SECONDS = 1.0  # after which no further round begins
MARGIN = 1.1  # by which more threads must be faster
TOKENS = 4096  # of a batch, at most: the largest ones would take long


def choose_threads(experiment: Experiment, learner: Learner) -> int:
    """The number with which updates of full windows are fastest here and now, at most PyTorch's.

    A copy of the learner makes them. On a GPU it does not matter, and is PyTorch's.
    """
    most = torch.get_num_threads()
    if most == 1 or not on_cpu(learner.device):
        return most
    learner = copy.deepcopy(learner)
    window = experiment.context_length + experiment.burn_in + 1
    rows = max(1, min(experiment.batch_size, TOKENS // window))
    few = experiment.changed({"batch_size": rows})
    batch = full_batch(learner.sizes, few, learner.device)

    def seconds(threads: int) -> float:
        torch.set_num_threads(threads)
        began = time.perf_counter()
        learner.update(batch)
        return time.perf_counter() - began

    with threads_restored():
        return fastest([*(2**i for i in range(10) if 2**i < most), most], seconds)


def fastest(numbers: Sequence[int], seconds: Callable[[int], float]) -> int:
    """The first of these numbers of threads that none of the others beats by a tenth.

    They are measured in turns, so that what else the machine does is in the way of all alike; the
    first round, in which threads start, does not count.
    """
    for number in numbers:
        seconds(number)
    spent = dict.fromkeys(numbers, 0.0)
    least, most = ROUNDS
    for done in range(most):
        if done >= least and sum(spent.values()) > SECONDS:
            break
        for number in numbers:
            spent[number] += seconds(number)
    return next(n for n in numbers if spent[n] <= MARGIN * min(spent.values()))


@contextmanager
def threads_restored() -> Iterator[None]:
    """Give the process its number of threads back, whatever happens inside."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)
