"""Checks on what enters a replay: one clear error that names the argument and the stream.

Everything is checked before anything is stored, so that a refused call changes nothing. What passes
stays where it is, on the host as a rule.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from kalmanac.ops.transfer import is_host
from kalmanac.replay.batch import Sizes

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


def token(
    streams: Indices, sizes: Sizes, observation: Values,
    privileged: Values | None, observed: Values | None, pixels: Values | None = None,
    action_mask: Values | None = None,
) -> dict[str, Tensor]:  # fmt: skip
    """The fields that belong to an observation. A missing reading is stored as zeros."""
    for name, value, wanted in (
        ("privileged", privileged, sizes.privileged > 0),
        ("observed", observed, sizes.observed),
        ("pixels", pixels, bool(sizes.images)),
        ("action_mask", action_mask, sizes.action_mask),
    ):
        if (value is not None) != wanted:
            came = "None" if value is None else "values"
            raise ValueError(
                f"{name}: got {came}, expected {'values' if wanted else 'None'}, as the sizes say"
            )
    fields: dict[str, Tensor] = {}
    readings = _floats("observation", observation, (streams.size, sizes.observation))
    if observed is not None:
        seen = torch.from_numpy(flags("observed", observed, streams))
        readings = readings.masked_fill(~seen.to(readings.device)[:, None], 0)
        fields["observed"] = seen
    fields["observation"] = _finite("observation", readings, streams)
    if pixels is not None:
        images = torch.from_numpy(
            _exactly("pixels", pixels, (streams.size, sizes.pixels), np.uint8)
        )
        if observed is not None:
            images = images.masked_fill(~seen[:, None], 0)
        fields["pixels"] = images
    if action_mask is not None:
        fields["action_mask"] = masks(action_mask, streams, sizes)
    if privileged is not None:
        fields["privileged"] = vectors("privileged", privileged, streams, sizes.privileged)
    return fields


def masks(x: Values, streams: Indices, sizes: Sizes) -> Tensor:
    """Bool values (k, A), with an allowed action in every row."""
    array = _exactly("action_mask", x, (streams.size, sizes.action), np.bool_)
    require("action_mask", np.asarray(array.any(1)), streams, "an allowed action there")
    return torch.from_numpy(array)


def _exactly(name: str, x: Values, shape: tuple[int, ...], dtype: type[np.generic]) -> NDArray[Any]:
    array = _array(name, x)
    if array.dtype != dtype or array.shape != shape:
        raise ValueError(
            f"{name}: got shape {array.shape} of {array.dtype}, "
            f"expected {np.dtype(dtype)} of shape {shape}"
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
