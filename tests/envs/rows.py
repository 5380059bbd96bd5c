"""The rows of the table of environments, a few of them for the quick tests."""

import pytest

from kalmanac._envs.registry import ENVS

QUICK = (
    "best-arm",
    "dmc/pendulum-swingup",
    "popgym/AutoencodeEasy",
    "popgym/MineSweeperEasy",
    "popgym/NoisyPositionOnlyPendulumHard",
)
ROWS = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in ENVS]
