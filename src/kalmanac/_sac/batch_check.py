"""What the networks read of an observation, and whether batches and observations have it."""

from torch import Tensor

from kalmanac._observation import Observation, PartSize, Sizes
from kalmanac._replay.sampling import Batch
from kalmanac._sac.config import AgentSettings


def parts_to_read(sizes: Sizes, settings: AgentSettings) -> Observation[PartSize]:
    """What the networks read of an observation."""
    reward = PartSize((), "float32") if settings.previous_reward else None
    return sizes.observation_parts._replace(previous_reward=reward)


def check_batch(batch: Batch, sizes: Sizes, settings: AgentSettings) -> None:
    """The batch has the shapes of these sizes."""
    rows, steps = batch.reward.shape
    tokens = (rows, steps + 1)
    optional = ("observed",) if settings.privileged_critic else ("observed", "privileged")
    parts = parts_to_read(sizes, settings)
    check_parts("batch.observation", batch.observation, parts, tokens, optional)
    expected = {
        "previous_action": (*tokens, sizes.action),
        "action": (rows, steps, sizes.action),
        "terminated": (rows, steps),
        "valid": (rows, steps),
        "lengths": (rows,),
    }
    if settings.critic_clock:
        if batch.elapsed is None:
            raise ValueError("batch.elapsed: got None, expected each token's steps (critic_clock)")
        expected["elapsed"] = tokens
    for name, shape in expected.items():
        got = tuple(getattr(batch, name).shape)
        if got != shape:
            raise ValueError(f"batch.{name}: got shape {got}, expected {shape}")


def check_parts(
    name: str, observation: Observation[Tensor], sizes: Observation[PartSize],
    rows: tuple[int, ...], optional: tuple[str, ...],
) -> None:  # fmt: skip
    """The observation has parts of these sizes, with `rows` before their shape."""
    for part, x, size in zip(Observation._fields, observation, sizes, strict=True):
        if size is None or (x is None and part in optional):
            continue
        got, shape = None if x is None else tuple(x.shape), (*rows, *size.shape)
        if got != shape:
            raise ValueError(f"{name}.{part}: got shape {got}, expected {shape}")
