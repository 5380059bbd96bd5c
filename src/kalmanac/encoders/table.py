"""The table of history encoders: name → constructor. A new encoder is its file and one row here."""

import inspect
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from kalmanac.encoders.encoder import HistoryEncoder
from kalmanac.encoders.kalman_encoder import kf_block, vssm_kf
from kalmanac.encoders.mamba import mamba
from kalmanac.encoders.memoryless import Memoryless
from kalmanac.encoders.recurrent import GRUEncoder, LSTMEncoder
from kalmanac.encoders.s5 import s5
from kalmanac.encoders.ssm import vssm
from kalmanac.encoders.transformer import TransformerEncoder
from kalmanac.expect import expect_known

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
    """The settings that encoder `name` takes, with their defaults.

    Examples:
        >>> from kalmanac import encoder_settings
        >>> encoder_settings("gru")
        {'d_model': 16, 'd_state': 128, 'layers': 1, 'norm': False}
    """
    return {k: p.default for k, p in inspect.signature(_row(name)).parameters.items()}


def make_encoder(name: str, **settings: Any) -> HistoryEncoder:
    """Encoder `name` with the paper's settings, except for those given and a Transformer's dropout.

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
    known = encoder_settings(name)
    for setting in settings:
        if setting not in known:
            raise TypeError(
                f"{setting}: encoder {name!r} has no such setting, expected {', '.join(known)}"
            )
    return _row(name)(**settings)


def check_encoder(name: str, settings: Iterable[str]) -> None:
    """ValueError with the nearest right name unless there is such an encoder with such settings."""
    expect_known("encoder", name, ENCODERS)
    if "d_model" in settings:
        raise ValueError("encoder_settings: got d_model, expected it as embedding")
    for setting in settings:
        expect_known("encoder_settings", setting, encoder_settings(name))


def _row(name: str) -> Callable[..., HistoryEncoder]:
    if name not in ENCODERS:
        raise ValueError(f"encoder: got {name!r}, expected one of {', '.join(ENCODERS)}")
    return ENCODERS[name]
