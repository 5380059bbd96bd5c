"""The motor that tells of gaps by a flag in the observation alone: what the word to a filter costs.

    cd benchmarks
    kalmanac train ungated:Ungated --preset dropout-motor --encoder vssm+kf --dropout 0 \
        --dropout-burst None --no-dropout-flag --noise 0 --delay 0

Noise, delay and gaps are made in here, as the preset makes them, and `info["observed"]` is left
out. So a Kalman layer takes in what stands in a gap as it takes in readings: zeros, the flag, the
reference and the previous action. Beside a run of the preset with `--dropout 0.5`, which is told
in both ways, it says what leaving the update out is worth.
"""

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from kalmanac._envs.registry import make_env
from kalmanac._envs.sensors import Corruption
from kalmanac._suites.dropout import BURST, DELAY, NOISE

Floats = NDArray[np.float32]


class Ungated(gymnasium.Wrapper[Floats, Floats, Floats, Floats]):
    """Args: dropout, the share of readings that are missing, in bursts."""

    def __init__(self, dropout: float = 0.5) -> None:
        corruption = Corruption(
            noise=NOISE, delay=DELAY, dropout=dropout, dropout_burst=BURST, dropout_flag=True
        )
        super().__init__(make_env("motor", corruption=corruption))
        self.privileged_space = self.env.get_wrapper_attr("privileged_space")
        self.metadata = {**(self.env.metadata or {}), "observed": False}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Floats, dict[str, Any]]:
        """Begin at rest."""
        observation, info = self.env.reset(seed=seed, options=options)
        return observation, _untold(info)

    def step(self, action: Floats) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """Apply a voltage."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, float(reward), terminated, truncated, _untold(info)


def _untold(info: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in info.items() if key != "observed"}
