"""Where the steps lie: one row per observation, with the action, reward and end that followed.

Rows of a stream form a ring: position p, counted from the stream's first row ever, lies in row
p mod `rows`. Streams lie one after another, and behind the last of them one row stays zero: a
padded place of a batch is a place that reads that row.
"""

import numpy as np
import torch
from torch import Tensor

from kalmanac.observation import Observation, Sizes
from kalmanac.ops.windows import read_rows
from kalmanac.replay.validation import Indices


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

    def write(self, at: Tensor, **values: Tensor) -> None:
        """Store one value a field in each of the rows `at` (k,); all of them on the device."""
        for name, value in values.items():
            self.fields[name].index_copy_(0, at, value)

    def read(self, name: str, at: Tensor) -> Tensor:
        """A field at rows `at` of any shape, in that shape."""
        return read_rows(self.fields[name], at)

    def read_observation(self, at: Tensor, vector: Tensor | None = None) -> Observation[Tensor]:
        """The observations at rows `at` of any shape; `vector` is not read where it is given."""
        stored = self.parts.to_stored()
        given = {} if vector is None else {"observation": vector}
        read = {name: self.read(name, at) for name in stored if name not in given}
        return Observation.from_stored(read | given)

    def read_actions(self, at: Tensor) -> Tensor:
        """Actions as vectors (…, A)."""
        found = self.read("action", at)
        return read_rows(self.codes, found) if self.sizes.discrete else found

    def grow(self, rows: int, heads: Indices) -> None:
        """More rows for each stream. `heads` (streams,): the position after each stream's last."""
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
        """Copies of the first `used` rows of every stream, (streams, used, …), on the host."""
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
    """Of one row, with all its fields."""
    shapes = Storage(sizes, 1, 1, torch.device("meta"))
    return sum(field.nbytes for field in shapes.fields.values()) / 2  # one row, and that of zeros
