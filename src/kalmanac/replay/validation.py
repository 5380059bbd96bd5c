"""Checks on what enters a replay: one clear error that names the argument and the stream.

Everything is checked before anything is stored, so that a refused call changes nothing. What passes
stays where it is, on the host as a rule.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from kalmanac.observation import STORED_NAMES, Observation, PartSize, Sizes
from kalmanac.ops.transfer import is_host

Values = Tensor | ArrayLike
Indices = NDArray[np.int64]


def check_sizes(sizes: Sizes) -> None:
    """O and A are at least 1, S at least 0; O may be 0 where there are images."""
    for name, value, least in (
        ("observation", sizes.observation, 0 if sizes.images else 1),
        ("action", sizes.action, 1),
        ("privileged", sizes.privileged, 0),
    ):
        whole_number(f"sizes.{name}", value, least)
    for shape in sizes.images:
        for value in shape:
            whole_number("sizes.images", value, 1)
    if sizes.action_mask and not sizes.discrete:
        raise ValueError("sizes.action_mask: got True, expected False for continuous actions")


def whole_number(name: str, value: int, least: int) -> None:
    """An integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name}: got {value!r}, expected an integer of at least {least}")


def stream_numbers(streams: Values, count: int) -> Indices:
    """Different streams in 0 … count−1, in any order, (k,)."""
    array = _array("streams", streams)
    if array.size == 0:
        array = array.astype(np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(
            f"streams: got shape {array.shape} of {array.dtype}, expected integers of shape (k,)"
        )
    numbers: Indices = array.astype(np.int64)
    if not numbers.size:
        return numbers
    if numbers.min() < 0 or numbers.max() >= count:
        wrong = numbers[(numbers < 0) | (numbers >= count)][0]
        raise ValueError(f"streams: got {wrong}, expected 0 to {count - 1}")
    if (times := np.bincount(numbers)).max() > 1:
        twice = times.argmax()
        raise ValueError(f"streams: got {twice} more than once, expected different streams")
    return numbers


def require(name: str, fine: NDArray[np.bool_], streams: Indices, expected: str) -> None:
    """`fine` (k,) holds for every stream."""
    if not fine.all():
        raise ValueError(f"{name}: got stream {streams[~fine][0]}, expected {expected}")


def vectors(name: str, x: Values, streams: Indices, width: int) -> Tensor:
    """Finite float32 values (k, width)."""
    return _finite(name, _floats(name, x, (streams.size, width)), streams)


def rewards(x: Values, streams: Indices) -> Tensor:
    """Finite float32 values (k,)."""
    return _finite("reward", _floats("reward", x, (streams.size,)), streams)


def flags(name: str, x: Values, streams: Indices) -> NDArray[np.bool_]:
    """Bool values (k,) on the host."""
    array = _array(name, x)
    if array.dtype != np.bool_ or array.shape != streams.shape:
        raise ValueError(
            f"{name}: got shape {array.shape} of {array.dtype}, "
            f"expected bool of shape ({streams.size},)"
        )
    return array


def actions(x: Values, streams: Indices, sizes: Sizes) -> Tensor:
    """int32 numbers (k,) in 0 … A−1 if discrete, else finite float32 (k, A)."""
    if not sizes.discrete:
        return vectors("action", x, streams, sizes.action)
    array = _array("action", x)
    if array.dtype.kind not in "iu" or array.shape != streams.shape:
        raise ValueError(
            f"action: got shape {array.shape} of {array.dtype}, "
            f"expected integers of shape ({streams.size},)"
        )
    outside = (array < 0) | (array >= sizes.action)
    if outside.any():
        raise ValueError(
            f"action: got {array[outside][0]} in stream {streams[outside][0]}, "
            f"expected 0 to {sizes.action - 1}"
        )
    return torch.from_numpy(array.astype(np.int32))


def observations(
    observation: Any, streams: Indices, sizes: Observation[PartSize]
) -> dict[str, Tensor]:
    """The parts of an `Observation`, by their names in files; a missing reading becomes zeros."""
    if not isinstance(observation, Observation):
        came = type(observation).__name__
        raise TypeError(f"observation: got {came}, expected an Observation of arrays")
    parts: dict[str, Tensor] = {}
    for name, values, size in zip(Observation._fields, observation, sizes, strict=True):
        if values is None and size is None:
            continue
        label = "observation" if name == "vector" else name
        if values is None or size is None:
            came, wanted = ("None", "values") if values is None else ("values", "None")
            raise ValueError(f"{label}: got {came}, expected {wanted}, as the sizes say")
        shape = (streams.size, *size.shape)
        if size.dtype == "float32":
            x = _floats(label, values, shape)
        else:
            x = torch.from_numpy(_exactly(label, values, shape, np.dtype(size.dtype)))
        parts[STORED_NAMES.get(name, name)] = x
    if observation.observed is not None:
        missing = ~parts["observed"][:, None]
        for name in ("observation", "pixels"):
            if name in parts:
                parts[name] = parts[name].masked_fill(missing.to(parts[name].device), 0)
    _finite("observation", parts["observation"], streams)
    if observation.privileged is not None:
        _finite("privileged", parts["privileged"], streams)
    if observation.action_mask is not None:
        allowed = np.asarray(parts["action_mask"].numpy().any(1))
        require("action_mask", allowed, streams, "an allowed action there")
    return parts


def _exactly(name: str, x: Values, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    array = _array(name, x)
    if array.dtype != dtype or array.shape != shape:
        raise ValueError(
            f"{name}: got shape {array.shape} of {array.dtype}, expected {dtype} of shape {shape}"
        )
    return array


def _array(name: str, x: Values) -> NDArray[Any]:
    array = x.detach().cpu().numpy() if isinstance(x, Tensor) else np.asarray(x)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name}: got values of type {array.dtype}, expected numbers")
    return array if array.flags.writeable else array.copy()  # torch warns of read-only memory


def _floats(name: str, x: Values, shape: tuple[int, ...]) -> Tensor:
    """float32 where they are: what comes from the host is checked there, without a device."""
    tensor = x.detach() if isinstance(x, Tensor) else torch.from_numpy(_array(name, x))
    if tensor.shape != shape:
        raise ValueError(f"{name}: got shape {tuple(tensor.shape)}, expected {shape}")
    return tensor.to(torch.float32)


def _finite(name: str, x: Tensor, streams: Indices) -> Tensor:
    """x, if all of it is finite."""
    # On the host numpy takes a quarter of torch's time for so few numbers.
    if not bool(np.isfinite(x.numpy()).all() if is_host(x.device) else x.isfinite().all()):
        where = (~x.isfinite()).nonzero()[0]
        raise ValueError(
            f"{name}: got {x[tuple(where)].item()} in stream {streams[int(where[0])]}, "
            "expected finite numbers"
        )
    return x
