"""Memories of optimisers and generators as named tensors: no pickle is needed to keep them."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Generator, Tensor


def adam_tensors(optimiser: torch.optim.Adam) -> dict[str, Tensor]:
    """`<parameter's number>.<what>` of all that Adam keeps; nothing before its first step."""
    kept = optimiser.state_dict()["state"]
    return {
        f"{number}.{what}": x.detach().clone()
        for number, of_one in kept.items()
        for what, x in of_one.items()
    }


def load_adam(optimiser: torch.optim.Adam, tensors: Mapping[str, Tensor]) -> None:
    """The reverse of `adam_tensors`; the settings stay the optimiser's own."""
    count = sum(len(group["params"]) for group in optimiser.param_groups)
    state: dict[int, dict[str, Any]] = {}
    for key, x in tensors.items():
        number, what = key.split(".")
        state.setdefault(int(number), {})[what] = x.clone()
    if state and set(state) != set(range(count)):
        raise ValueError(f"adam: got {len(state)} parameters, expected {count}")
    if not optimiser.state:
        groups = optimiser.state_dict()["param_groups"]
        optimiser.load_state_dict({"state": state, "param_groups": groups})
        return
    # into the tensors that are there: a recorded graph knows their addresses
    parameters = (p for group in optimiser.param_groups for p in group["params"])
    for i, parameter in enumerate(parameters):
        for what, x in optimiser.state[parameter].items():
            x.copy_(state[i][what]) if state else x.zero_()


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
