"""One size: check every contender against the truth, time those that agree, compute ratios."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from agreement import Lanes, choose_lanes, disagreement, truth
from contenders import PLAIN, Contender, Mode, Task
from problem import Inputs, Size, make_inputs
from timing import Stopwatch, cache_bytes, capture, release_memory

MODES: tuple[Mode, ...] = ("forward", "both")
CAPTURE_SECONDS = 0.3  # a longer eager call is not worth a graph of a hundred thousand nodes
ROTATE_SECONDS = 0.005  # a longer call cycles through more memory than any cache holds
MOST_SETS = 24


@dataclass(frozen=True)
class RaceRules:
    """How long to measure."""

    rounds: int  # samples of each contender
    sample_seconds: float  # work in one sample, where one call is shorter
    patience: float  # seconds of one call above which a contender is skipped


class Race:
    """All contenders at one size. What was left out says why: `skipped`, or `refused`."""

    def __init__(
        self, size: Size, device: torch.device, rules: RaceRules, absent: dict[str, str]
    ) -> None:
        self.size, self.device, self.rules = size, device, rules
        self.skipped = dict(absent)
        self.refused: dict[str, str] = {}
        self.notes: dict[str, str] = {}
        self.agreement: dict[str, dict[str, Any]] = {}
        self.watches: dict[tuple[str, Mode, str], Stopwatch] = {}
        self.traffic: dict[str, dict[Mode, int]] = {}
        self.inputs = self._input_sets()

    def run(self, contenders: Sequence[Contender]) -> None:
        """Check, calibrate, then time all that are left, interleaved."""
        lanes, probe = choose_lanes(self.inputs[0])
        truths: dict[Task, dict[str, Tensor]] = {}
        for contender in contenders:
            if contender.task is not None and contender.task not in truths:
                truths[contender.task] = truth(probe, lanes, contender.task)
            begun = time.monotonic()
            self._admit(contender, lanes, probe, truths)
            print(f"  {contender.name}: ready after {time.monotonic() - begun:.0f} s", flush=True)
            release_memory()
        self._time()

    def _time(self) -> None:
        """Interleave all samples; who runs out of memory now, beside the others' graphs, is out."""
        for _ in range(self.rules.rounds):
            for key, watch in list(self.watches.items()):
                if key not in self.watches:
                    continue
                try:
                    watch.sample()
                except torch.OutOfMemoryError:
                    self._drop(key[0])
                    self.skipped[key[0]] = "out of memory beside the others"
                    del watch
                    release_memory()

    def _drop(self, name: str) -> None:
        self.watches = {key: watch for key, watch in self.watches.items() if key[0] != name}

    def result(self, bandwidth: float) -> dict[str, Any]:
        """Everything measured, as plain data."""
        names = dict.fromkeys(name for name, _, _ in self.watches)
        rows = [self._row(name, bandwidth) for name in names]
        return {
            "size": list(self.size),
            "input_sets": len(self.inputs),
            "rows": rows,
            "ratios": ratios(rows),
            "skipped": self.skipped,
            "refused": self.refused,
        }

    def _input_sets(self) -> list[Inputs]:
        """As many sets as it takes to overflow the GPU's cache twice; one on the CPU."""
        working_set = 56 * self.size.elements
        wanted = -(-2 * cache_bytes(self.device) // working_set)
        count = max(1, min(MOST_SETS, wanted))
        return [make_inputs(self.size, self.device, seed) for seed in range(count)]

    def _admit(
        self,
        contender: Contender,
        lanes: Lanes,
        probe: Inputs,
        truths: dict[Task, dict[str, Tensor]],
    ) -> None:
        """Let the contender in, or note why not: skipped (a peer, memory, time) or refused."""
        name = contender.name
        skipped, refused = contender.skip(probe), None
        try:
            if skipped is None:
                refused = self._check(contender, lanes, probe, truths)
            if skipped is None and refused is None:
                skipped = self._enter(contender)
        except torch.OutOfMemoryError:
            skipped = "out of memory"
        except Exception as error:  # whatever it is, the others are still to be timed
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            if contender.ours:
                refused = f"crashed: {reason}"
            else:
                skipped = f"failed: {reason}"
        if skipped is not None:
            self.skipped[name] = skipped
        if refused is not None:
            self.refused[name] = refused
        if skipped is not None or refused is not None:
            self._drop(name)

    def _check(
        self,
        contender: Contender,
        lanes: Lanes,
        probe: Inputs,
        truths: dict[Task, dict[str, Tensor]],
    ) -> str | None:
        """Compare with the truth; what is wrong, if something is."""
        if contender.task is None or contender.answer is None:
            return None
        came = contender.answer(contender.prepare(probe))
        worst, agrees = disagreement(came, truths[contender.task], lanes)
        self.agreement[contender.name] = worst._asdict()
        return None if agrees else str(worst)

    def _enter(self, contender: Contender) -> str | None:
        """Set up the contender's stopwatches; a reason if one call takes too long."""
        self.notes[contender.name] = contender.note
        if contender.bytes_per_element is not None:
            self.traffic[contender.name] = contender.bytes_per_element
        native = [contender.prepare(x) for x in self.inputs]
        for mode in MODES:
            slow = self._watch(contender, mode, native)
            if slow is not None:
                return slow
        return None

    def _watch(self, contender: Contender, mode: Mode, native: list[Any]) -> str | None:
        work = contender.forward if mode == "forward" else contender.both
        on_torch_stream = self.device.type == "cuda" and contender.settle is None

        def run(i: int) -> Any:
            return work(native[i])

        eager = Stopwatch(run, len(native), on_torch_stream, settle=contender.settle)
        once = eager.calibrate(self.rules.sample_seconds)
        if once > self.rules.patience:
            return f"one call took {once:.0f} s"
        self.watches[contender.name, mode, "eager"] = eager
        if not on_torch_stream or once > CAPTURE_SECONDS:
            return None
        sets = len(native) if once < ROTATE_SECONDS else 1
        try:
            replay = capture(run, sets)
        except RuntimeError as error:  # out of memory is one of them
            reason = str(error).splitlines()[0]
            self.notes[contender.name] += f"; {mode} could not be captured: {reason}"
            return None
        graph = Stopwatch(replay, 1, True, per_run=sets)
        graph.calibrate(self.rules.sample_seconds)
        self.watches[contender.name, mode, "graph"] = graph
        return None

    def _row(self, name: str, bandwidth: float) -> dict[str, Any]:
        row: dict[str, Any] = {"name": name, "note": self.notes[name], "times": {}}
        row["agreement"] = self.agreement.get(name)
        for (owner, mode, how), watch in self.watches.items():
            if owner != name:
                continue
            times = {"median": watch.median, "spread": watch.spread, "samples": watch.samples}
            if name in self.traffic:
                floor = self.traffic[name][mode] * self.size.elements / bandwidth
                times |= {"floor": floor, "times_floor": watch.median / floor}
                times["fraction_of_copy_bandwidth"] = floor / watch.median
            row["times"][f"{mode} {how}"] = times
        return row


def best_time(row: dict[str, Any], mode: Mode) -> float | None:
    """The median of the contender's faster way, eager or graph."""
    found = [t["median"] for key, t in row["times"].items() if key.startswith(mode)]
    return min(found, default=None)


def ratios(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """Fast backend → peer → mode → how many times longer the peer takes, each at its best."""
    by_name = {row["name"]: row for row in rows}
    kalman = [n for n in by_name if n.startswith("kalman ")]
    subjects = [n for n in kalman if n.split()[1] not in PLAIN] or ["kalman parallel"]
    table: dict[str, dict[str, dict[str, float]]] = {}
    for subject in subjects:
        if subject not in by_name:
            continue
        backend = subject.split()[1]
        others = [n for n in by_name if n not in kalman and not n.startswith("linear")]
        others += [f"kalman {p}" for p in PLAIN] + [f"linear {backend}"]
        table[subject] = {}
        for other in others:
            if other == subject or other not in by_name:
                continue
            pair = {
                m: (best_time(by_name[subject], m), best_time(by_name[other], m)) for m in MODES
            }
            table[subject][other] = {m: p / s for m, (s, p) in pair.items() if s and p}
    return table
