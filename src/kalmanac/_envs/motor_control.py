"""The engineer's controllers of the motor: a cascade of PI controllers, and a Kalman filter.

The outer controller turns the speed's error into a torque, the inner one the current's error into
a voltage; both are tuned as gem_controllers of gym-electric-motor does, by the symmetrical optimum
with its parameter a. What they know of current and speed is either the last reading that came, or
the mean of the exact Kalman filter, which knows the motor, the noise, the delay and the voltages.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kalmanac._envs.motor import SERVO, Parameters, discretized

Matrix = NDArray[np.float64]
DEFAULT = 4.0  # gem_controllers' a
ROUNDING = 1e-6  # of readings in single precision
MARGIN = 0.2  # of the current, kept in reserve: gem_controllers' too


class Gains(NamedTuple):
    """Proportional and integral gains of both controllers."""

    speed: float  # N m s
    speed_integral: float  # N m
    current: float  # V / A
    current_integral: float  # V / (A s)


def tuned(motor: Parameters = SERVO, a: float = DEFAULT) -> Gains:
    """Tune by the symmetrical optimum; a smaller `a` is quicker and less damped."""
    if not a > 1:
        raise ValueError(f"a: got {a!r}, expected a number above 1")
    current = motor.inductance / (motor.period * a)
    reset_time = motor.period * a**2
    speed = motor.inertia / (a * reset_time)
    return Gains(speed, speed / (a * reset_time), current, current / reset_time)


class CascadedPI:
    """From what is known of current and speed (A, rad/s) and the reference to a voltage."""

    def __init__(self, gains: Gains, motor: Parameters = SERVO) -> None:
        self.gains, self.motor = gains, motor
        self.reset()

    def reset(self) -> None:
        """Forget the integrated errors."""
        self._speed = self._current = 0.0

    def control(self, current: float, speed: float, reference: float) -> float:
        """Return a voltage; where an output is at its limit, its controller does not integrate."""
        motor, gains = self.motor, self.gains
        error = reference - speed
        wanted = gains.speed * error + gains.speed_integral * self._speed
        most = motor.flux * motor.current * (1 - MARGIN)
        torque = min(most, max(-most, wanted))
        self._speed += motor.period * error * (torque == wanted)
        error = torque / motor.flux - current
        wanted = gains.current * error + gains.current_integral * self._current
        wanted += motor.flux * speed  # the voltage that the turning rotor itself makes
        voltage = min(motor.voltage, max(-motor.voltage, wanted))
        self._current += motor.period * error * (voltage == wanted)
        return voltage


class LastReading:
    """This knows the last reading that came, and takes it for the present."""

    def __init__(self, motor: Parameters = SERVO) -> None:
        self.motor = motor
        self.reset()

    def reset(self) -> None:
        """Know nothing but that the motor is at rest."""
        self.mean = np.zeros(2)

    def update(self, reading: NDArray[Any], observed: bool, voltage: float) -> None:
        """Take a reading of current and speed, if there is one."""
        if observed:
            self.mean = np.array([self.motor.current, self.motor.speed]) * reading


class KalmanFilter:
    """The exact filter of (current, speed, load torque) from late, noisy and missing readings.

    A reading that comes now is `delay` steps old: the filter stands there, and predicts from it
    with the voltages since. `mean` (3,) and `covariance` (3, 3) are of the present state.
    """

    def __init__(self, load: float, noise: float, delay: int, motor: Parameters = SERVO) -> None:
        self.step = discretized(motor, load)
        self.load, self.delay = load, delay
        self.scale = 1 / np.array([motor.current, motor.speed])
        self.noise = np.eye(2) * max(noise, ROUNDING) ** 2
        self.reset()

    def reset(self) -> None:
        """Know that the motor is at rest, and how loads are spread."""
        self._mean, self._covariance = np.zeros(3), np.diag([0.0, 0.0, self.load**2])
        self._voltages: list[float] = []  # since the state that the filter stands at
        self._began = False
        self.mean, self.covariance = self._mean, self._covariance

    def update(self, reading: NDArray[Any], observed: bool, voltage: float) -> None:
        """Take a reading (2,), if there is one, after `voltage` was applied for a step.

        An episode's first reading comes before any voltage, which then counts for nothing. It is
        known already, since every episode begins at rest, and so are its repetitions while the
        second one is on its way.
        """
        if self._began:
            self._voltages.append(voltage)
            if len(self._voltages) > self.delay:
                oldest = self._voltages.pop(0)
                self._mean, self._covariance = self._ahead(self._mean, self._covariance, oldest)
                if observed:
                    self._correct(np.asarray(reading, np.float64))
        self._began = True
        self.mean, self.covariance = self._mean, self._covariance
        for past in self._voltages:
            self.mean, self.covariance = self._ahead(self.mean, self.covariance, past)

    def _ahead(self, mean: Matrix, covariance: Matrix, voltage: float) -> tuple[Matrix, Matrix]:
        a, b, q = self.step
        return a @ mean + b * voltage, a @ covariance @ a.T + q

    def _correct(self, reading: Matrix) -> None:
        measured = self._covariance[:, :2] * self.scale  # P Hᵀ
        spread = measured[:2] * self.scale[:, None] + self.noise
        gain = np.linalg.solve(spread, measured.T).T
        left = np.eye(3)
        left[:, :2] -= gain * self.scale
        self._mean = self._mean + gain @ (reading - self.scale * self._mean[:2])
        self._covariance = left @ self._covariance @ left.T + gain @ self.noise @ gain.T


class Engineer:
    """A controller in the place of an agent: observations (3,) in, actions (1,) out.

    With `told`, a missing reading is known to be missing; without, its zeros are a reading.
    """

    def __init__(
        self, gains: Gains, estimate: "LastReading | KalmanFilter", *, told: bool = True,
        motor: Parameters = SERVO,
    ) -> None:  # fmt: skip
        self.cascade, self.estimate, self.told = CascadedPI(gains, motor), estimate, told
        self.reset()

    def reset(self) -> None:
        """Begin an episode."""
        self.cascade.reset()
        self.estimate.reset()
        self._voltage = 0.0

    def act(self, observation: NDArray[Any], observed: bool = True) -> NDArray[np.float32]:
        """Return the voltage's share of the supply."""
        motor = self.cascade.motor
        self.estimate.update(observation[:2], observed or not self.told, self._voltage)
        current, speed = self.estimate.mean[:2].tolist()
        reference = motor.speed * float(observation[2])
        voltage = self.cascade.control(current, speed, reference)
        action = np.array([voltage / motor.voltage], np.float32)
        self._voltage = motor.voltage * float(action[0])  # as rounded as the motor gets it
        return action
