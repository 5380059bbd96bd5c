"""The update as one `jax.jit` (jax_sac.py): checked against ours, then timed, or why it is not."""

import importlib.metadata
import importlib.util
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from kalmanac._replay.sampling import Batch
from kalmanac._sac.learner import Learner
from update_peer import Ours, disagreement, noise_of, refusal

STRETCH = 20  # updates between two waits: waiting for each would cost what is not the update's

Rate = Callable[[Callable[[], None]], float]  # calls a second


def measured(learners: Sequence[Learner], batches: Sequence[Batch], rate: Rate) -> dict[str, Any]:
    """Updates a second of all seeds, or `why_not`."""
    stretch, found = ready(learners, batches)
    if stretch is None:
        return found
    return found | {"updates_per_second": len(learners) * STRETCH * rate(stretch)}


def ready(
    learners: Sequence[Learner], batches: Sequence[Batch], reference: Any = None
) -> tuple[Callable[[], None] | None, dict[str, Any]]:
    """`STRETCH` updates of all seeds from the learners' parameters, compiled; or None and why not.

    They are compared with a peer that is the reference, by default with the learners, which are
    updated for it.
    """
    if importlib.util.find_spec("jax") is None:
        return None, {"why_not": "jax is not installed"}
    # else JAX takes three quarters of the GPU's memory when it starts
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    try:
        from jax_sac import JaxSAC

        return _compiled(JaxSAC, learners, batches, reference or Ours(learners, batches))
    except (ImportError, RuntimeError) as error:  # no GPU, no memory, libraries that do not match
        return None, {"why_not": f"jax: {(str(error) or type(error).__name__).splitlines()[0]}"}


def _compiled(
    JaxSAC: Any, learners: Sequence[Learner], batches: Sequence[Batch], reference: Any
) -> tuple[Callable[[], None] | None, dict[str, Any]]:
    sac, native = JaxSAC.of(*learners), JaxSAC.batch_of(*batches)
    noise = [noise_of(*pair) for pair in zip(learners, batches, strict=True)]
    began = time.perf_counter()
    off = disagreement(sac, reference, native, learners, batches)
    found: dict[str, Any] = {
        "jax": importlib.metadata.version("jax"), "disagreement": off,
        "seconds_to_compile_and_check": time.perf_counter() - began,
    }  # fmt: skip
    why_not = refusal(off, learners[0].device)
    if why_not is not None:
        return None, found | {"why_not": why_not}
    again = sac.drawn(native, noise)

    def stretch() -> None:
        for _ in range(STRETCH):
            sac.repeat(again)
        sac.settle()

    return stretch, found


def in_words(found: dict[str, Any]) -> str:
    """A row's end."""
    if "why_not" in found:
        return str(found["why_not"])
    return f"{found['updates_per_second']:,.0f} updates/s"
