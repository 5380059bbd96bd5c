"""The update as one `jax.jit` (jax_sac.py): checked against ours, then timed, or why it is not."""

import importlib.metadata
import importlib.util
import os
import time
from collections.abc import Callable
from typing import Any

import torch

from kalmanac._replay.sampling import Batch
from kalmanac._sac.learner import Learner

UPDATES = 3  # that are compared; from the second on, the target and log α have left their start
STRETCH = 20  # updates between two waits: waiting for each would cost what is not the update's

# Relative, by device. The reference is our update in float32, and JAX's products are TF32 on a GPU.
# Adam's first steps go by the signs of gradients: rounding turns those that are nearly zero.
LOSSES = {"cpu": 1e-4, "cuda": 1e-3}
MOVES = {"cpu": 1e-3, "cuda": 1e-1}


Rate = Callable[[Callable[[], None]], float]  # calls a second


def measured(learner: Learner, batch: Batch, rate: Rate) -> dict[str, Any]:
    """Updates a second from the learner's parameters, which are updated too; or `why_not`."""
    if importlib.util.find_spec("jax") is None:
        return {"why_not": "jax is not installed"}
    # else JAX takes three quarters of the GPU's memory when it starts
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    try:
        from jax_sac import JaxSAC

        return _measured(JaxSAC, learner, batch, rate)
    except (ImportError, RuntimeError) as error:  # no GPU, no memory, libraries that do not match
        return {"why_not": f"jax: {(str(error) or type(error).__name__).splitlines()[0]}"}


def _measured(JaxSAC: Any, learner: Learner, batch: Batch, rate: Rate) -> dict[str, Any]:
    sac, native = JaxSAC.of(learner), JaxSAC.batch_of(batch)
    began = time.perf_counter()
    off = disagreement(sac, native, learner, batch)
    found: dict[str, Any] = {
        "jax": importlib.metadata.version("jax"), "disagreement": off,
        "seconds_to_compile_and_check": time.perf_counter() - began,
    }  # fmt: skip
    allowed = LOSSES[learner.device.type], MOVES[learner.device.type]
    for name, x in off.items():
        most = allowed[name.startswith("moves")]
        if not x <= most:  # a NaN is refused too
            return found | {"why_not": f"REFUSED, {name}: {x:.1e} off, expected {most:.0e}"}

    def stretch() -> None:
        for _ in range(STRETCH):
            sac.update(native)
        sac.settle()

    return found | {"updates_per_second": STRETCH * rate(stretch)}


def disagreement(sac: Any, native: Any, learner: Learner, batch: Batch) -> dict[str, float]:
    """How far a `JaxSAC` that began as the learner leads from it, relative to the learner's.

    The largest distance of each loss over the first updates, and by part the distance of the
    parameters behind them by how far these have moved.
    """
    before = learner.state_dict()
    ours, theirs = list[list[float]](), list[list[float]]()
    for _ in range(UPDATES):
        told = sac.update(native)
        own = learner.losses_of(batch)[0]
        learner.update(batch)
        ours.append([x.item() for x in own.values()])
        theirs.append([float(told[name]) for name in own])
    distance, size = torch.tensor(theirs) - torch.tensor(ours), torch.tensor(ours).abs()
    # log α starts at 0, and so does its loss: equal is equal
    off = torch.where(distance == 0, 0, distance.abs() / size).amax(0)
    found = dict(zip(own, off.tolist(), strict=True))
    after = learner.state_dict()
    moved = {name: torch.tensor(x, device=learner.device) for name, x in sac.parameters().items()}
    for part in ("actor.", "critic.", "target.", *["log_alpha"] * learner.learns_temperature):
        names = [name for name in moved if name.startswith(part)]
        apart = _norm([after[name] - moved[name] for name in names])
        path = _norm([after[name] - before[name] for name in names])
        found[f"moves of {part.strip('.')}"] = apart / path
    return found


def in_words(found: dict[str, Any]) -> str:
    """A row's end."""
    if "why_not" in found:
        return str(found["why_not"])
    return f"{found['updates_per_second']:,.0f} updates/s"


def _norm(parts: list[torch.Tensor]) -> float:
    return torch.cat([x.flatten() for x in parts]).norm().item()
