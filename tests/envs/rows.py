"""The rows of the table of environments, a few of them for the quick tests."""

import pytest

from kalmanac._envs.extras import missing
from kalmanac._envs.registry import ENVS

QUICK = (
    "best-arm",
    "bullet/Hopper-P",
    "dmc/pendulum-swingup",
    "motor",
    "mujoco/Hopper-P",
    "popgym/AutoencodeEasy",
    "popgym/ConcentrationEasy",
    "popgym/MineSweeperEasy",
    "popgym/NoisyPositionOnlyPendulumHard",
)


def _marks(name):
    """Most are slow, and some need what is not installed here."""
    extra = ENVS[name].extra
    lacking = missing(extra) if extra else None
    skip = [pytest.mark.skip(reason=lacking)] if lacking else []
    return skip if name in QUICK else [*skip, pytest.mark.slow]


ROWS = [pytest.param(name, marks=_marks(name)) for name in ENVS]
