"""The replay in a file beside the model's, and back into a training with the same spaces."""

import os
from pathlib import Path
from typing import Any

import torch

from kalmanac._replay.buffer import Replay
from kalmanac._replay.replay_file import StoredReplay, read_replay, understood, write_replay
from kalmanac._sac.model_file import with_suffix
from kalmanac._sac.problem import Problem

SUFFIX = ".replay"


def write_buffer(path: str | os.PathLike[str], replay: Replay, problem: Problem) -> Path:
    """Write the replay; without a suffix, the name gets `.replay`. Returns the path."""
    target = with_suffix(path, SUFFIX)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_replay(target, replay, {"spaces": problem.to_json()})
    return target


def read_buffer(
    path: str | os.PathLike[str], problem: Problem, *, capacity: int | None, device: torch.device
) -> Replay:
    """The replay in a file, if it fits `problem` and is bounded by `capacity`, too."""
    source = Path(path) if Path(path).exists() else with_suffix(path, SUFFIX)
    if not source.is_file():
        raise FileNotFoundError(f"path: got {os.fspath(path)!r}, expected an existing replay file")
    stored = read_replay(source)
    _require_same(stored, problem)
    if stored.capacity != capacity:
        raise ValueError(
            f"buffer_size: got {stored.capacity} in {source}, expected {capacity} as in the model "
            f"(load(…, buffer_size={stored.capacity}) makes it so)"
        )
    replay = Replay(problem.sizes, stored.streams, capacity=capacity, device=device)
    stored.restore(replay)
    return replay


def _require_same(stored: StoredReplay, problem: Problem) -> None:
    """Refuse what another environment has left; what a problem consists of is compared by name."""
    with understood(stored.file):
        got = Problem.from_json(stored.about["spaces"])
    named: dict[str, tuple[Any, Any]] = {
        name: (getattr(got, name), getattr(problem, name))
        for name in ("observation_space", "action_space", "privileged_space")
    }
    if problem.sizes.observed:  # else nothing is missing anywhere
        named["unmeasured"] = got.unmeasured, problem.unmeasured
    named |= {
        f"sizes.{name}": (getattr(got.sizes, name), own)
        for name, own in problem.sizes._asdict().items()
    }
    for name, (theirs, own) in named.items():
        if theirs != own:
            raise ValueError(
                f"{name}: got {theirs} in {stored.file}, expected {own} as in the model"
            )
