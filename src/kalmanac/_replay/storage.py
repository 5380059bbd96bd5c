"""Where the steps lie: one row per observation, with the action, reward and end that followed.

Rows of a stream form a ring: position p, counted from the stream's first row ever, lies in row
p mod `rows`. Streams lie one after another, and behind the last of them one row stays zero: a
padded place of a batch is a place that reads that row.

What enters is checked before anything is stored, so that a refused call changes nothing: one clear
error names the argument and the stream. What passes stays where it is, on the host as a rule.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from kalmanac._observation import STORED_NAMES, Observation, PartSize, Sizes
from kalmanac._ops.transfer import is_host
from kalmanac._ops.windows import read_rows

Values = Tensor | ArrayLike
Indices = NDArray[np.int64]


class Storage:
    """Tensors (streams · rows + 1, …) by field, on one device."""

    def __init__(self, sizes: Sizes, streams: int, rows: int, device: torch.device) -> None:
        self.sizes, self.streams, self.rows, self.device = sizes, streams, rows, device
        self.parts = sizes.observation_parts
        self.fields = self._empty(rows)
        # One-hot codes; the number A, which stands in the zero row, has the code zero.
        self.codes = torch.eye(sizes.action + 1, sizes.action, dtype=torch.float32, device=device)

    @property
    def nothing(self) -> int:
        """The row that stays zero."""
        return self.streams * self.rows

    def rows_at(self, streams: Indices, positions: Indices) -> Tensor:
        """Rows of these positions, on the host."""
        return torch.from_numpy(streams * self.rows + positions % self.rows)

    def index(self, streams: Indices, positions: Indices) -> Tensor:
        """Rows of these positions, on the device."""
        return self.rows_at(streams, positions).to(self.device)

    def read(self, name: str, at: Tensor) -> Tensor:
        """Read a field at rows `at` of any shape, in that shape."""
        return read_rows(self.fields[name], at)

    def read_observation(self, at: Tensor, vector: Tensor | None = None) -> Observation[Tensor]:
        """Read the observations at rows `at` of any shape, without the `vector` that is given."""
        stored = self.parts.to_stored()
        known = {} if vector is None else {"observation": vector}
        read = {name: self.read(name, at) for name in stored if name not in known}
        return Observation.from_stored(read | known)

    def read_actions(self, at: Tensor) -> Tensor:
        """Read actions as vectors (…, A)."""
        actions = self.read("action", at)
        return read_rows(self.codes, actions) if self.sizes.discrete else actions

    def grow(self, rows: int, heads: Indices) -> None:
        """Add rows to each stream. `heads` (streams,): the position after each stream's last."""
        positions = heads[:, None] - self.rows + np.arange(self.rows)
        streams = np.arange(self.streams)[:, None]
        source = self.index(streams, positions).reshape(-1)
        grown = self._empty(rows)
        self.rows = rows
        target = self.index(streams, positions).reshape(-1)
        for name, field in self.fields.items():
            grown[name].index_copy_(0, target, field.index_select(0, source))
        self.fields = grown

    def state(self, used: int) -> dict[str, Tensor]:
        """Copy the first `used` rows of every stream, (streams, used, …), on the host."""
        return {
            name: field[:-1].unflatten(0, (self.streams, self.rows))[:, :used].cpu().clone()
            for name, field in self.fields.items()
        }

    def load(self, rows: int, state: dict[str, Tensor]) -> None:
        """Take over rows that `state` handed out."""
        self.rows, self.fields = rows, self._empty(rows)
        for name, field in self.fields.items():
            places = field[:-1].unflatten(0, (self.streams, rows))
            places[:, : state[name].shape[1]] = state[name].to(self.device)

    def _empty(self, rows: int) -> dict[str, Tensor]:
        sizes, length = self.sizes, self.streams * rows + 1

        def zeros(*width: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros((length, *width), dtype=dtype, device=self.device)

        fields = {
            "action": zeros(dtype=torch.int32) if sizes.discrete else zeros(sizes.action),
            "reward": zeros(),
            "terminated": zeros(dtype=torch.bool),
        }
        if sizes.discrete:
            fields["action"][-1] = sizes.action
        for name, part in self.parts.to_stored().items():
            fields[name] = zeros(*part.shape, dtype=getattr(torch, part.dtype))
        return fields


def row_bytes(sizes: Sizes) -> float:
    """Count the bytes of one row, with all its fields."""
    shapes = Storage(sizes, 1, 1, torch.device("meta"))
    return sum(field.nbytes for field in shapes.fields.values()) / 2  # one row, and that of zeros


def check_sizes(sizes: Sizes) -> None:
    """O and A are at least 1, S at least 0; O may be 0 where there are images."""
    for name, value, least in (
        ("observation", sizes.observation, 0 if sizes.images else 1),
        ("action", sizes.action, 1),
        ("privileged", sizes.privileged, 0),
    ):
        check_whole_number(f"sizes.{name}", value, least)
    for shape in sizes.images:
        for value in shape:
            check_whole_number("sizes.images", value, 1)
    if sizes.action_mask and not sizes.discrete:
        raise ValueError("sizes.action_mask: got True, expected False for continuous actions")


def check_whole_number(name: str, value: int, least: int) -> None:
    """An integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name}: got {value!r}, expected an integer of at least {least}")


def check_streams(streams: Values, count: int) -> Indices:
    """Different streams in 0 … count−1, in any order, (k,)."""
    array = _array("streams", streams)
    if array.size == 0:
        array = array.astype(np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(
            f"streams: got shape {array.shape} of {array.dtype}, expected integers of shape (k,)"
        )
    numbers: Indices = array.astype(np.int64)
    outside = (numbers < 0) | (numbers >= count)
    if outside.any():
        raise ValueError(f"streams: got {numbers[outside][0]}, expected 0 to {count - 1}")
    if (times := np.bincount(numbers, minlength=1)).max() > 1:
        twice = times.argmax()
        raise ValueError(f"streams: got {twice} more than once, expected different streams")
    return numbers


def require(name: str, fine: NDArray[np.bool_], streams: Indices, expected: str) -> None:
    """`fine` (k,) holds for every stream."""
    if not fine.all():
        raise ValueError(f"{name}: got stream {streams[~fine][0]}, expected {expected}")


def check_rewards(x: Values, streams: Indices) -> Tensor:
    """Finite float32 values (k,)."""
    return _finite("reward", _floats("reward", x, (streams.size,)), streams)


def check_flags(name: str, x: Values, streams: Indices) -> NDArray[np.bool_]:
    """Bool values (k,) on the host."""
    return _exactly(name, x, streams.shape, np.dtype(np.bool_))


def check_actions(x: Values, streams: Indices, sizes: Sizes) -> Tensor:
    """int32 numbers (k,) in 0 … A−1 if discrete, else finite float32 (k, A)."""
    if not sizes.discrete:
        return _finite("action", _floats("action", x, (streams.size, sizes.action)), streams)
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


def check_observations(
    observation: Any, streams: Indices, sizes: Observation[PartSize]
) -> dict[str, Tensor]:
    """The parts of an `Observation`, by their names in files."""
    if not isinstance(observation, Observation):
        got = type(observation).__name__
        raise TypeError(f"observation: got {got}, expected an Observation of arrays")
    parts: dict[str, Tensor] = {}
    for name, values, size in zip(Observation._fields, observation, sizes, strict=True):
        if values is None and size is None:
            continue
        label = "observation" if name == "vector" else name
        if values is None or size is None:
            got, wanted = ("None", "values") if values is None else ("values", "None")
            raise ValueError(f"{label}: got {got}, expected {wanted}, as the sizes say")
        shape = (streams.size, *size.shape)
        if size.dtype == "float32":
            x = _floats(label, values, shape)
        else:
            x = torch.from_numpy(_exactly(label, values, shape, np.dtype(size.dtype)))
        parts[STORED_NAMES.get(name, name)] = x
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
    values = x.detach() if isinstance(x, Tensor) else _array(name, x)
    if values.shape != shape:
        raise ValueError(f"{name}: got shape {tuple(values.shape)}, expected {shape}")
    tensor = values if isinstance(values, Tensor) else torch.from_numpy(values)
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
