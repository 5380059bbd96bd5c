"""Speed control of an electric motor: a voltage makes current, current makes torque.

A DC motor with permanent magnets turns a load whose torque wanders. Current i, speed ω and load
torque m follow

    L di/dt = u − ψ ω − R i        J dω/dt = ψ i − b ω − m        dm/dt = −m / θ + noise

which is linear, so that a step of length τ under a constant voltage u is exact:
x' = A x + B u + ε with ε ~ N(0, Q), and a Kalman filter for x = (i, ω, m) is exact, too. The
equations are those of gym-electric-motor's DcPermanentlyExcitedMotor with a linear load, which
tests compare step by step; it has no load that wanders, no state to be left and entered again, and
a step of it takes many times as long.

Readings of current and speed are true here: noise, delay and dropout are `Corruption`'s. The
reference comes from no sensor and stays what it is.
"""

from typing import Any, ClassVar, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from kalmanac._envs.wrappers import count, deviation

Floats = NDArray[np.float32]
Matrix = NDArray[np.float64]


class Parameters(NamedTuple):
    """A servo motor of 60 V and 20 A; SI units."""

    resistance: float = 1.5
    inductance: float = 3e-3
    flux: float = 0.17  # V s: torque a current, and voltage a speed
    inertia: float = 5e-4  # of motor and load together
    friction: float = 1e-4
    voltage: float = 60.0  # of the supply: an action of 1
    current: float = 20.0  # more than it is punished
    speed: float = 300.0  # a reading of 1
    period: float = 1e-3  # of the control: one step
    load_time: float = 0.05  # the load forgets its torque in about this time


SERVO = Parameters()
ERROR_COST, CURRENT_COST = 10.0, 1.0
REACH = 0.7  # of the speed: how far references go
SLOPE = 0.01  # of the speed, a step: how fast a reference changes
NEW_LEVEL = 1 / 60  # how likely a step is to bring a new level


class Discrete(NamedTuple):
    """One step of x = (i, ω, m): x' = A x + B u + ε, ε ~ N(0, Q)."""

    a: Matrix  # (3, 3)
    b: Matrix  # (3,)
    q: Matrix  # (3, 3)


def discretized(motor: Parameters, load: float) -> Discrete:
    """Integrate exactly over one step; `load` is the torque's standard deviation."""
    r, ell, psi, inertia, friction = motor[:5]
    dynamics = np.array(
        [
            [-r / ell, -psi / ell, 0.0],
            [psi / inertia, -friction / inertia, -1 / inertia],
            [0.0, 0.0, -1 / motor.load_time],
        ]
    )
    driven = np.zeros((4, 4))
    driven[:3, :3], driven[0, 3] = dynamics, 1 / ell
    step = exponential(driven * motor.period)
    noise = np.zeros((3, 3))
    noise[2, 2] = 2 * load**2 / motor.load_time
    both = np.block([[-dynamics, noise], [np.zeros((3, 3)), dynamics.T]])  # Van Loan
    pair = exponential(both * motor.period)
    q = pair[3:, 3:].T @ pair[:3, 3:]
    return Discrete(step[:3, :3], step[:3, 3], (q + q.T) / 2)


def exponential(matrix: Matrix) -> Matrix:
    """Compute e^M by its series, with M halved until it is small."""
    halvings = max(0, int(np.ceil(np.log2(max(np.abs(matrix).sum(1).max(), 1e-12)))) + 1)
    small, term = matrix / 2**halvings, np.eye(len(matrix))
    total = term.copy()
    for k in range(1, 20):
        term = term @ small / k
        total += term
    return np.linalg.matrix_power(total, 2**halvings)


class Motor(gymnasium.Env[Floats, Floats]):
    """The observation is (current, speed, reference), the action a voltage, each in units of SERVO.

    A step pays minus ten times the speed's distance to the reference, and minus what the current
    is above its limit. `info["privileged"]` is (current, speed, load torque, reference, the level
    that it moves to). An episode is cut after `horizon` steps.

    Args:
        load: standard deviation of the load's torque, in N m.
        horizon: steps of an episode, a millisecond each.

    Examples:
        >>> from kalmanac import Motor
        >>> env = Motor()
        >>> (current, speed, reference), info = env.reset(seed=0)
        >>> float(speed), float(reference)
        (0.0, 0.0)
        >>> observation, reward, *_ = env.step([0.5])
        >>> bool(observation[0] > 0)  # a current flows
        True
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}  # type: ignore[misc]
    unmeasured = (2,)  # the reference's place in the observation: no sensor reads it

    def __init__(self, load: float = 0.5, horizon: int = 200) -> None:
        self.load, self.horizon = deviation("load", load), count("horizon", horizon, 1)
        step = discretized(SERVO, self.load)
        self._a, self._b = step.a.tolist(), step.b.tolist()
        low, high = np.linalg.eigh(step.q)
        self._noise = (high * np.sqrt(np.maximum(low, 0))).tolist()  # noise @ noise.T = Q
        largest = float(np.finfo(np.float32).max)  # finite, because Gymnasium's checker asks for it
        self.observation_space = spaces.Box(-largest, largest, (3,), np.float32)
        self.privileged_space = spaces.Box(-largest, largest, (5,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self._x, self._reference, self._level = (0.0, 0.0, 0.0), 0.0, 0.0
        self._time = -1  # −1: never reset

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Floats, dict[str, Any]]:
        """Begin at rest, with some load and a level to go to."""
        super().reset(seed=seed)
        self._x = (0.0, 0.0, self.load * self.np_random.standard_normal())
        self._reference, self._level, self._time = 0.0, self._new_level(), 0
        return self._observation(), self._info()

    def step(self, action: Any) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """Apply a voltage for one step, and pay for the speed at its end."""
        if self._time < 0:
            raise gymnasium.error.ResetNeeded("step: no episode is running, call reset first")
        if np.shape(action) != (1,) or not -np.inf < (duty := float(action[0])) < np.inf:
            raise ValueError(f"action: got {action!r}, expected one finite number, (1,)")
        u = SERVO.voltage * min(1.0, max(-1.0, duty))
        i, w, m = self._x
        e, f, g = self.np_random.standard_normal(3).tolist()
        i, w, m = (
            a[0] * i + a[1] * w + a[2] * m + b * u + n[0] * e + n[1] * f + n[2] * g
            for a, b, n in zip(self._a, self._b, self._noise, strict=True)
        )
        self._x = (i, w, m)
        error, excess = abs(w / SERVO.speed - self._reference), abs(i) / SERVO.current - 1
        reward = -ERROR_COST * error - CURRENT_COST * max(0.0, excess)
        if self.np_random.random() < NEW_LEVEL:
            self._level = self._new_level()
        change = self._level - self._reference
        self._reference += min(SLOPE, max(-SLOPE, change))
        self._time += 1
        return self._observation(), reward, False, self._time >= self.horizon, self._info()

    def get_checkpoint_state(self) -> dict[str, Any]:
        """Return all that the future depends on, as plain data."""
        return {
            "x": list(self._x), "reference": self._reference, "level": self._level,
            "time": self._time, "generator": self.np_random.bit_generator.state,
        }  # fmt: skip

    def set_checkpoint_state(self, state: dict[str, Any]) -> None:
        """Go on exactly where `get_checkpoint_state` was called."""
        i, w, m = map(float, state["x"])
        self._x, self._time = (i, w, m), int(state["time"])
        self._reference, self._level = float(state["reference"]), float(state["level"])
        self.np_random.bit_generator.state = state["generator"]

    def _new_level(self) -> float:
        return REACH * (2 * self.np_random.random() - 1)

    def _observation(self) -> Floats:
        i, w, _ = self._x
        return np.array([i / SERVO.current, w / SERVO.speed, self._reference], np.float32)

    def _info(self) -> dict[str, Any]:
        i, w, m = self._x
        truth = (i / SERVO.current, w / SERVO.speed, m, self._reference, self._level)
        return {"privileged": np.array(truth, np.float32)}
