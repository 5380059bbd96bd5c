"""The contract that every history encoder obeys, and the checks that all of them share.

A history encoder is a causal map φ: h_{:t} → z_t (paper, section 3.2). It never hides state on
`self`: state goes in and comes out, as a flat named tuple of tensors, batch first.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from kalmanac._ops.dispatch import at_hand, autocast, pads_are_free
from kalmanac._ops.scan import arguments

State = tuple[Tensor, ...]  # always a NamedTuple when an encoder hands it out
Lengths = Tensor | Sequence[int] | None


class HistoryEncoder(nn.Module, ABC):
    """A history encoder is a causal map from embeddings h (B, T, E) to representations z (B, T, E).

    The laws, tested for every row of `ENCODERS`:

    - `forward` over T steps equals T calls of `step`, and a sequence cut anywhere and resumed with
      the returned state equals the whole.
    - `lengths` (B,): steps from `lengths[b]` on are padding. Nothing depends on what stands there,
      NaN included; z is zero there, and the final state is the one after the row's own length. A
      row of length 0 keeps the state it started with.
    - `reset` (B, T) bool: True on the first step of an episode; the initial state is restored
      before that step.
    - `observed` (B, T) bool: False where the reading is missing. Only encoders with a Kalman update
      can leave the update out; they still use the input signal, because h_t carries the previous
      action too. The others ignore the flag and see h_t as it is.
    - Rows do not know of each other, and z_t does not depend on h_s for s > t.

    Carried state is float32 at least, also in a half-precision module.

    Examples:
        >>> import torch
        >>> from kalmanac import HistoryEncoder, make_encoder
        >>> encoder = make_encoder("gru", d_model=8, d_state=32)
        >>> isinstance(encoder, HistoryEncoder)
        True
        >>> h = torch.randn(2, 5, 8)
        >>> z, state = encoder(h, lengths=[5, 3])  # the second row has two padded steps
        >>> z_next, state = encoder.step(h[:, 0], state)  # one step more, with the state of before
        >>> z.shape, z_next.shape
        (torch.Size([2, 5, 8]), torch.Size([2, 8]))
    """

    d_model: int  # E
    uses_history: ClassVar[bool] = (
        True  # False: z_t depends on h_t alone, and no embedder is needed
    )

    @abstractmethod
    def initial_state(self, batch: int) -> State:
        """Return the state before the first step of an episode, on the module's device."""

    @abstractmethod
    def forward(
        self, h: Tensor, state: State | None = None, *, lengths: Lengths = None,
        reset: Tensor | None = None, observed: Tensor | None = None,
    ) -> tuple[Tensor, State]:  # fmt: skip
        """Encode B sequences (B, T, E); returns z and the state after each row's own length."""

    @abstractmethod
    def step(
        self, h_t: Tensor, state: State, *, reset: Tensor | None = None,
        observed: Tensor | None = None,
    ) -> tuple[Tensor, State]:  # fmt: skip
        """Encode one step (B, E), in time that does not grow with the history. Flags are (B,)."""

    def represent(
        self, h: Tensor, *, lengths: Tensor, reset: Tensor | None = None,
        observed: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """Return z of whole episodes, as learning wants it: what `forward` gives at steps.

        h is finite on pads, and nobody looks at z there, which has no gradient. A GPU mostly takes
        as long with pads as without, and no step depends on the pads behind it: lengths would only
        add operations there.
        """
        return self(
            h, lengths=None if pads_are_free(h) else lengths, reset=reset, observed=observed
        )[0]

    def represent_embedded(self, x: Tensor, embedder: nn.Linear, **known: Any) -> Tensor:
        """Return what `represent` gives for h = embedder(x), with x (B, T, n), and all else."""
        return self.represent(embedder(x), **known)

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Tensor, State]:
        """Call `forward`, with its types."""
        return super().__call__(*args, **kwargs)


class Steps(NamedTuple):
    """These are the arguments of a `forward`, checked, with harmless pads."""

    h: Tensor  # (B, T, E), zero on pads: a NaN there would reach the projections' gradients
    lengths: Tensor | None  # (B,) int32; None if every row is full
    padded: Tensor | None  # (B, T, 1) bool; None if every row is full
    reset: Tensor | None  # (B, T) bool, False on pads
    observed: Tensor | None  # (B, T) bool

    def zero_pads(self, z: Tensor) -> Tensor:
        """Return z with zeros at padded steps, (B, T, E)."""
        return z if self.padded is None else z.masked_fill(self.padded, 0)

    def last(self, x: Tensor, start: Tensor) -> Tensor:
        """Return x (B, T, D) at each row's last valid step; `start` (B, D) for rows of length 0."""
        if x.shape[1] == 0:
            return start
        if self.lengths is None:
            return x[:, -1]
        at = (self.lengths.long() - 1).clamp(min=0)[:, None, None].expand(-1, 1, x.shape[2])
        return torch.where(self.lengths[:, None] > 0, x.gather(1, at)[:, 0], start)


def read_steps(
    encoder: HistoryEncoder, h: Tensor, state: State | None, lengths: Lengths,
    reset: Tensor | None, observed: Tensor | None,
) -> Steps:  # fmt: skip
    """Check the arguments of `forward` and overwrite what stands in the pads."""
    if isinstance(h, PackedSequence):
        raise TypeError(
            "h: got a PackedSequence, expected a padded (B, T, E) tensor, with lengths= for its "
            "rows (torch.nn.utils.rnn.pad_packed_sequence gives both)"
        )
    arguments.signal("h", h, None, arguments.REAL)
    _fits("h", h, encoder)
    for name, flags in (("reset", reset), ("observed", observed)):
        if flags is not None:
            arguments.flags(name, flags, h)
    if state is not None:
        check_state(state, h.shape[0])
    rows = None if lengths is None else arguments.row_lengths(lengths, h, check=False)
    if rows is None or _all_full(rows, h.shape[1]):
        return Steps(h, None, None, reset, observed)
    padded = torch.arange(h.shape[1], device=h.device) >= rows[:, None]
    if reset is not None:
        reset = reset & ~padded
    padded = padded[..., None]
    # masked_fill, not where: on CUDA, where would copy its scalar from the host, and no graph
    # could capture that.
    return Steps(h.masked_fill(padded, 0), rows, padded, reset, observed)


def _all_full(rows: Tensor, steps: int) -> bool:
    """Return whether no row has pads, as far as it is known without waiting for a device."""
    return at_hand(rows) and bool((rows == steps).all())


def check_step(
    encoder: HistoryEncoder, h_t: Tensor, state: State, reset: Tensor | None,
    observed: Tensor | None,
) -> None:  # fmt: skip
    """Check the arguments of `step`."""
    if not isinstance(h_t, Tensor) or h_t.dim() != 2:
        shape = tuple(h_t.shape) if isinstance(h_t, Tensor) else type(h_t).__name__
        raise ValueError(f"h_t: got {shape}, expected a (B, E) tensor")
    _fits("h_t", h_t, encoder)
    for name, flags in (("reset", reset), ("observed", observed)):
        if flags is None:
            continue
        if not isinstance(flags, Tensor) or flags.dtype != torch.bool:
            received = flags.dtype if isinstance(flags, Tensor) else type(flags).__name__
            raise TypeError(f"{name}: got {received}, expected a (B,) bool tensor")
        if flags.shape != h_t.shape[:1]:
            raise ValueError(f"{name}: got shape {tuple(flags.shape)}, expected ({h_t.shape[0]},)")
    check_state(state, h_t.shape[0])


def check_state(state: State, batch: int) -> None:
    """Check that a state is a tuple of tensors with B rows each."""
    if not isinstance(state, tuple) or not all(isinstance(x, Tensor) for x in state):
        raise TypeError(f"state: got {type(state).__name__}, expected a named tuple of tensors")
    for x in state:
        if x.dim() == 0 or x.shape[0] != batch:
            raise ValueError(
                f"state: got a tensor of shape {tuple(x.shape)}, expected {batch} rows"
            )


def carried(parameter: Tensor) -> dict[str, Any]:
    """Return device and dtype of what is carried in a module with this parameter."""
    dtype = arguments.carry_dtype(parameter.dtype)
    return {"device": parameter.device, "dtype": dtype}


def positive_sizes(**sizes: int) -> None:
    """Check that each of the named sizes is an integer of at least 1."""
    for name, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name}: got {value!r}, expected an integer of at least 1")


def _fits(name: str, x: Tensor, encoder: HistoryEncoder) -> None:
    """Check features and dtype; autocast brings dtypes together by itself."""
    if x.shape[-1] != encoder.d_model:
        expected = f"d_model = {encoder.d_model}"
        raise ValueError(f"{name}: got {x.shape[-1]} features, expected {expected}")
    weight = next(encoder.parameters(), x)
    if x.dtype != weight.dtype and not autocast(x):
        raise TypeError(
            f"{name}: got dtype {x.dtype}, expected {weight.dtype} as the layer's weights are"
        )
