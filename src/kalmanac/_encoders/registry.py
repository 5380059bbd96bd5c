"""The registry of history encoders: name → constructor, and the encoder that remembers nothing.

A new encoder is its file and one row here.
"""

import inspect
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, ClassVar, NamedTuple

from torch import Tensor

from kalmanac._encoders.contract import (
    HistoryEncoder,
    Lengths,
    State,
    check_step,
    positive_sizes,
    read_steps,
)
from kalmanac._encoders.kalman_encoder import kf_block, vssm_kf
from kalmanac._encoders.mamba import mamba
from kalmanac._encoders.recurrent import GRUEncoder, LSTMEncoder
from kalmanac._encoders.s5 import s5
from kalmanac._encoders.ssm import vssm
from kalmanac._encoders.transformer import TransformerEncoder
from kalmanac._messages import expect_known


class NoState(NamedTuple):
    """This state has no tensors at all."""


class Memoryless(HistoryEncoder):
    """z_t = h_t. Also what Oracle uses, which sees the environment's true state instead."""

    uses_history: ClassVar[bool] = False

    def __init__(self, d_model: int = 16) -> None:
        super().__init__()
        positive_sizes(d_model=d_model)
        self.d_model = d_model

    def initial_state(self, batch: int) -> NoState:
        """Return an empty state."""
        return NoState()

    def forward(
        self, h: Tensor, state: State | None = None, *, lengths: Lengths = None,
        reset: Tensor | None = None, observed: Tensor | None = None,
    ) -> tuple[Tensor, NoState]:  # fmt: skip
        """Return h, with zeros on pads; everything else is ignored."""
        return read_steps(self, h, state, lengths, reset, observed).h, NoState()

    def step(
        self, h_t: Tensor, state: State, *, reset: Tensor | None = None,
        observed: Tensor | None = None,
    ) -> tuple[Tensor, NoState]:  # fmt: skip
        """Return h_t."""
        check_step(self, h_t, state, reset, observed)
        return h_t, NoState()


ENCODERS: dict[str, Callable[..., HistoryEncoder]] = {
    "vssm": vssm,
    "vssm+kf": vssm_kf,
    "vssm+kf-u": partial(vssm_kf, input_signal=False),
    "mamba": mamba,
    "gru": GRUEncoder,
    "transformer": TransformerEncoder,
    "memoryless": Memoryless,
    # beyond the paper's legend
    "kf-block": kf_block,
    "lstm": LSTMEncoder,
    "s5": s5,
}
"""The history encoders by name, each a function that makes one. A row of your own may be added.

Examples:
    >>> from kalmanac import ENCODERS
    >>> sorted(ENCODERS)[:5]
    ['gru', 'kf-block', 'lstm', 'mamba', 'memoryless']
"""


def encoder_settings(name: str) -> dict[str, Any]:
    """Return the settings that encoder `name` takes, with their defaults.

    Examples:
        >>> from kalmanac import encoder_settings
        >>> encoder_settings("gru")
        {'d_model': 16, 'd_state': 128, 'layers': 1, 'norm': False}
    """
    return {k: p.default for k, p in inspect.signature(_row(name)).parameters.items()}


def make_encoder(name: str, **settings: Any) -> HistoryEncoder:
    """Make encoder `name` with the paper's settings but for `settings` and a Transformer's dropout.

    That is 0 unless it is said, since runs and models that do not say it were trained without; the
    paper's presets say 0.1.

    Examples:
        >>> import torch
        >>> from kalmanac import make_encoder
        >>> encoder = make_encoder("vssm+kf", d_model=8, d_state=32)
        >>> z, state = encoder(torch.zeros(4, 10, 8))  # (B, T, E)
        >>> z.shape
        torch.Size([4, 10, 8])
    """
    allowed = encoder_settings(name)
    for setting in settings:
        if setting not in allowed:
            raise TypeError(
                f"{setting}: encoder {name!r} has no such setting, expected {', '.join(allowed)}"
            )
    return _row(name)(**settings)


def check_encoder(name: str, settings: Iterable[str]) -> None:
    """Raise ValueError with the nearest right name unless the encoder and its settings exist."""
    expect_known("encoder", name, ENCODERS)
    if "d_model" in settings:
        raise ValueError("encoder_settings: got d_model, expected it as embedding")
    for setting in settings:
        expect_known("encoder_settings", setting, encoder_settings(name))


def _row(name: str) -> Callable[..., HistoryEncoder]:
    if name not in ENCODERS:
        raise ValueError(f"encoder: got {name!r}, expected one of {', '.join(ENCODERS)}")
    return ENCODERS[name]
