"""Three small environments on which learning can be tested, each with what can be reached in it.

- Identity: say what you see. No memory needed; ends by truncation.
- RepeatFirst: say what you saw first. Without memory nothing better than chance; terminates.
- NoisyIntegrator: hold a drifting position at zero. Continuous; memory finds the drift that a
  noisy reading hides; ends by truncation.

`random`, `memory` and `memoryless` of each `reference()` are mean returns of an episode,
undiscounted: of uniformly random actions, of the best policy that remembers, of the best that
does not.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces


@dataclass(frozen=True)
class Reference:
    random: float
    memory: float
    memoryless: float


class Identity(gymnasium.Env[np.int64, np.int64]):
    """Each step shows one of `symbols` symbols; naming it pays 1."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}  # type: ignore[misc]

    def __init__(self, symbols: int = 4, length: int = 16) -> None:
        self.symbols, self.length = symbols, length
        self.observation_space = self.action_space = spaces.Discrete(symbols)
        self._time, self._shown = 0, np.int64(0)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._time = 0
        return self._show(), {}

    def step(self, action):
        reward = float(action == self._shown)
        self._time += 1
        return self._show(), reward, False, self._time >= self.length, {}

    def reference(self) -> Reference:
        return Reference(self.length / self.symbols, float(self.length), float(self.length))

    def _show(self) -> np.int64:
        self._shown = self.np_random.integers(self.symbols)
        return self._shown


class RepeatFirst(gymnasium.Env[np.int64, np.int64]):
    """The first observation is a symbol, the others are blank (the highest number).

    Naming the symbol pays 1 in each of the last `scored` steps; the earlier ones pay nothing.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}  # type: ignore[misc]

    def __init__(self, symbols: int = 3, length: int = 8, scored: int = 4) -> None:
        if not 1 <= scored < length:
            raise ValueError(f"scored: got {scored}, expected 1 to {length - 1}")
        self.symbols, self.length, self.scored = symbols, length, scored
        self.observation_space = spaces.Discrete(symbols + 1)
        self.action_space = spaces.Discrete(symbols)
        self._time, self._symbol = 0, np.int64(0)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._time, self._symbol = 0, self.np_random.integers(self.symbols)
        return self._symbol, {}

    def step(self, action):
        self._time += 1
        reward = float(action == self._symbol and self._time > self.length - self.scored)
        return np.int64(self.symbols), reward, self._time >= self.length, False, {}

    def reference(self) -> Reference:
        chance = self.scored / self.symbols  # a blank tells nothing
        return Reference(chance, float(self.scored), chance)


class NoisyIntegrator(gymnasium.Env[np.ndarray, np.ndarray]):
    """x ← x + action + drift, between walls; each step pays −x². What is seen is x + noise.

    The drift is drawn for an episode and stays hidden; `info["privileged"]` tells (x, drift).
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}  # type: ignore[misc]

    def __init__(
        self, noise: float = 0.6, drift: float = 0.7, start: float = 0.5, wall: float = 3.0,
        length: int = 20,
    ) -> None:  # fmt: skip
        self.noise, self.drift, self.start, self.wall = noise, drift, start, wall
        self.length = length
        self.observation_space = spaces.Box(-100.0, 100.0, (1,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.privileged_space = spaces.Box(-wall, wall, (2,), np.float32)
        self._time, self._position, self._drift = 0, 0.0, 0.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._time = 0
        self._position = self.np_random.uniform(-self.start, self.start)
        self._drift = self.np_random.uniform(-self.drift, self.drift)
        return self._read(), self._info()

    def step(self, action):
        push = float(np.clip(action[0], -1, 1))
        self._position = float(np.clip(self._position + push + self._drift, -self.wall, self.wall))
        self._time += 1
        over = self._time >= self.length
        return self._read(), -(self._position**2), False, over, self._info()

    def reference(self) -> Reference:
        """Means and covariances of linear policies, followed exactly; walls and bounds left out.

        With memory: a Kalman filter on (x, drift) and action −(x̂ + drift^), which leaves the
        predicted variance. Without: action −gain · reading with the best gain. Random actions are
        simulated, since they meet the walls.
        """
        memoryless = max(self._without_memory(gain) for gain in np.linspace(0, 1.5, 151))
        return Reference(self._at_random(), self._with_memory(), memoryless)

    def gains(self) -> np.ndarray:
        """The Kalman gains for (x, drift) at every step, (length, 2)."""
        return np.array([gain for gain, _ in self._filter()])

    def _filter(self):
        spread = self._first()
        flow = np.array([[1.0, 1.0], [0.0, 1.0]])
        for _ in range(self.length):
            gain = spread[:, 0] / (spread[0, 0] + self.noise**2)
            spread = flow @ (spread - np.outer(gain, spread[0])) @ flow.T
            yield gain, spread[0, 0]

    def _with_memory(self) -> float:
        return -float(sum(variance for _, variance in self._filter()))

    def _without_memory(self, gain: float) -> float:
        spread, total = self._first(), 0.0
        flow = np.array([[1.0 - gain, 1.0], [0.0, 1.0]])
        for _ in range(self.length):
            spread = flow @ spread @ flow.T
            spread[0, 0] += (gain * self.noise) ** 2
            total -= spread[0, 0]
        return float(total)

    def _at_random(self, episodes: int = 4000) -> float:
        rng = np.random.default_rng(0)
        x = rng.uniform(-self.start, self.start, episodes)
        drift = rng.uniform(-self.drift, self.drift, episodes)
        total = 0.0
        for _ in range(self.length):
            x = np.clip(x + drift + rng.uniform(-1, 1, episodes), -self.wall, self.wall)
            total -= float((x**2).mean())
        return total

    def _first(self) -> np.ndarray:
        return np.diag([self.start**2 / 3, self.drift**2 / 3])  # variances of uniforms

    def _read(self) -> np.ndarray:
        reading = self._position + self.noise * self.np_random.standard_normal()
        return np.array([reading], dtype=np.float32)

    def _info(self) -> dict[str, Any]:
        return {"privileged": np.array([self._position, self._drift], dtype=np.float32)}


TOYS = (Identity, RepeatFirst, NoisyIntegrator)
