"""Clocks: wall time on the CPU, events and replayed graphs on CUDA, and the copy bandwidth.

Repetitions of all contenders are interleaved, so that a slow minute of the machine hits all of
them, and each sample follows one untimed call.
"""

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

Run = Callable[[int], Any]  # does the work on input set i


@dataclass
class Stopwatch:
    """Samples of the seconds that one call of `run` takes.

    `run(i)` may do the work `per_run` times over (a captured graph does); `settle` waits for the
    result of the last run where CUDA events of the torch stream cannot see it.
    """

    run: Run
    sets: int  # run is called with 0, 1, …, sets - 1, and again from 0
    events: bool  # CUDA events instead of the wall clock
    per_run: int = 1
    settle: Callable[[Any], None] | None = None
    runs: int = 1  # per sample
    samples: list[float] = field(default_factory=list)

    def calibrate(self, sample_seconds: float) -> float:
        """Choose the runs per sample from a warm call; returns that call's seconds."""
        self._measure(1)
        once = self._measure(1)
        self.runs = max(1, min(1000, round(sample_seconds / max(once * self.per_run, 1e-7))))
        return once

    def sample(self) -> None:
        if self.runs > 1:  # a single long call needs no warming
            self._measure(1 + self.runs // 4)
        self.samples.append(self._measure(self.runs))

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def spread(self) -> float:
        """Half of the range of the middle half of the samples, relative to their median."""
        if len(self.samples) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.samples, n=4, method="inclusive")
        return (high - low) / 2 / self.median

    def _measure(self, runs: int) -> float:
        if self.events:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            begin.record()
            for i in range(runs):
                self.run(i % self.sets)
            end.record()
            end.synchronize()
            return begin.elapsed_time(end) * 1e-3 / (runs * self.per_run)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        begun = time.perf_counter()
        for i in range(runs):
            came = self.run(i % self.sets)
        if self.settle is not None:
            self.settle(came)
        return (time.perf_counter() - begun) / (runs * self.per_run)


def interleave(watches: Sequence[Stopwatch], rounds: int) -> None:
    """One sample of each in turn, `rounds` times."""
    for _ in range(rounds):
        for watch in watches:
            watch.sample()


def capture(run: Run, sets: int) -> Run:
    """A CUDA graph that does `run(0)`, …, `run(sets - 1)`; the result replays it.

    Results of all sets stay alive during the capture, so that no set writes into the memory of
    another: with enough sets nothing is found in the cache.
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run(0)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        kept = [run(i) for i in range(sets)]
    torch.cuda.synchronize()

    def replay(_: int) -> Any:
        graph.replay()
        return kept

    replay(0)
    torch.cuda.synchronize()
    return replay


def cache_bytes(device: torch.device) -> int:
    """The size of the GPU's last cache; 0 on the CPU, where inputs are meant to be warm."""
    if device.type != "cuda":
        return 0
    return getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 64 << 20)


def copy_bandwidth(device: torch.device, megabytes: int, rounds: int = 9) -> float:
    """Bytes per second, read and written, of one large `copy_`: the yardstick of every scan."""
    source = torch.ones(megabytes << 18, device=device)
    target = torch.zeros_like(source)
    watch = Stopwatch(lambda _: target.copy_(source), 1, device.type == "cuda")
    watch.calibrate(0.02)
    interleave([watch], rounds)
    return 2 * source.numel() * source.element_size() / watch.median


def release_memory() -> None:
    """Give back what dead tensors held, before the next large contender."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
