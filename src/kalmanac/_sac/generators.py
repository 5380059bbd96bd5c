"""Memories as named tensors: no pickle is needed to keep them."""

import hashlib
from collections.abc import Iterable, Mapping

from torch import Generator, Tensor


def split_prefixes(
    tensors: Mapping[str, Tensor], known: Iterable[str]
) -> dict[str, dict[str, Tensor]]:
    """`part.name` keys by their part; keys without a dot belong to part ""."""
    parts: dict[str, dict[str, Tensor]] = {part: {} for part in known}
    for key, x in tensors.items():
        part, _, name = key.partition(".") if "." in key else ("", "", key)
        if part not in parts:
            raise ValueError(f"state_dict: got {key}, expected parts {', '.join(sorted(parts))}")
        parts[part][name] = x
    return parts


def load_generator(generator: Generator, state: Tensor) -> None:
    """Set a generator's state. One of another kind of device cannot be taken over, and decides a
    new seed instead: a model trained on a GPU loads on a CPU.
    """
    if state.numel() == generator.get_state().numel():
        generator.set_state(state)
    else:
        digest = hashlib.sha256(state.numpy().tobytes()).digest()
        generator.manual_seed(int.from_bytes(digest[:7], "little"))
