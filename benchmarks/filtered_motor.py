"""The motor behind the exact Kalman filter: what is left for an agent that needs no memory.

    cd benchmarks
    kalmanac train filtered_motor:FilteredMotor --encoder memoryless --gamma 0.97 \
        --steps 100000 --learning-starts 2000 --update-to-data 0.5 --actor-hidden 128 128 \
        --critic-hidden 128 128 --no-normalize-observations --eval-every 5000 --eval-episodes 32

These are the settings of the motor's suite, but for its critic, which sees more than readings: here
there is no more to see. An agent on the motor has to find out of its readings
where the motor is, and what to do about it. Here the filter has done the former: it knows the
motor, the noise, the delay, which readings are missing and the voltages, as it does for the
engineer in motor.py. What an agent reaches here is what its control is worth, and the distance to
one with a memory of its own is what that memory is worth.
"""

from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from kalmanac._envs.motor import SERVO, Motor
from kalmanac._envs.motor_control import KalmanFilter
from kalmanac._envs.registry import make_env
from kalmanac._envs.sensors import Corruption
from kalmanac._suites.dropout import BURST, DELAY, NOISE

Floats = NDArray[np.float32]


class FilteredMotor(gymnasium.Env[Floats, Floats]):
    """Observes the filter's means of current, speed and load torque, and the reference.

    Args:
        dropout: share of readings that are missing, in bursts.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}  # type: ignore[misc]

    def __init__(self, dropout: float = 0.5) -> None:
        burst = BURST if dropout else None
        corruption = Corruption(noise=NOISE, delay=DELAY, dropout=dropout, dropout_burst=burst)
        self.motor = make_env("motor", corruption=corruption)
        self.filter = KalmanFilter(Motor().load, NOISE, DELAY)
        largest = float(np.finfo(np.float32).max)  # finite, as the motor's own
        self.observation_space = spaces.Box(-largest, largest, (4,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Floats, dict[str, Any]]:
        """Begin at rest."""
        super().reset(seed=seed)
        observation, info = self.motor.reset(seed=seed, options=options)
        self.filter.reset()
        return self._filtered(observation, info, 0.0), info

    def step(self, action: Floats) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """Apply a voltage, and tell the filter of it."""
        voltage = SERVO.voltage * min(1.0, max(-1.0, float(action[0])))
        observation, reward, terminated, truncated, info = self.motor.step(action)
        seen = self._filtered(observation, info, voltage)
        return seen, float(reward), terminated, truncated, info

    def _filtered(self, observation: Floats, info: dict[str, Any], voltage: float) -> Floats:
        # what the filter knows is there at every step: nobody is told that anything is missing
        self.filter.update(observation[:2], bool(info.pop("observed", True)), voltage)
        current, speed, load = self.filter.mean
        reference = observation[2]
        return np.array([current / SERVO.current, speed / SERVO.speed, load, reference], np.float32)
