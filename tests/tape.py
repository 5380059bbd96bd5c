"""A tape in the place of CUDA's graphs, for tests that have no GPU.

It keeps the operations and their tensors, and a replay runs them again, into the same places.
"""

from contextlib import contextmanager

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Tape(TorchDispatchMode):
    """What was done while it was entered, to be done again."""

    def __init__(self):
        super().__init__()
        self.done, self.replays, self.generators = [], 0, []

    def register_generator_state(self, generator):
        self.generators.append((generator, generator.get_state()))

    def __torch_dispatch__(self, work, types, given=(), named=None):
        # CUDA only notes what is recorded: nothing that was there before may change
        at_once = work is not torch.ops.aten._foreach_copy_.default
        result = work(*given, **(named or {})) if at_once else None
        self.done.append((work, given, named or {}, result))
        return result

    @torch.no_grad()
    def replay(self):
        self.replays += 1
        for work, given, named, result in self.done:
            again = work(*given, **named)
            for place, x in zip(_tensors(result), _tensors(again), strict=True):
                if x.data_ptr() != place.data_ptr():
                    place.copy_(x)


def _tensors(result):
    each = result if isinstance(result, list | tuple) else [result]
    return [x for x in each if isinstance(x, torch.Tensor)]


class Stream:
    device = torch.device("cpu")

    def __init__(self, device=None):
        pass


def on_tape(monkeypatch):
    """Let calls be recorded on tapes; the list of all that are made from now on."""
    made = []

    def new():
        made.append(Tape())
        return made[-1]

    @contextmanager
    def recording(tape, stream=None):
        with torch.no_grad(), tape:
            yield
        for generator, state in tape.generators:
            generator.set_state(state)

    for name, fake in {"Stream": Stream, "CUDAGraph": new, "graph": recording}.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    return made
