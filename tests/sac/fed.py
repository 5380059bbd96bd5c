"""Best Arm with random numbers from a table, so that two ways to play it meet the same episodes."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from numpy.typing import NDArray

from kalmanac._envs.best_arm import BestArm
from kalmanac._envs.wrappers import PrivilegedObservation


class Table:
    """In the place of a numpy generator: numbers of one bandit in their order, then zeros."""

    def __init__(self, uniform: NDArray[np.float64], noise: NDArray[np.float64]) -> None:
        self._uniform, self._noise = list(uniform), list(noise)

    def random(self, n: int) -> NDArray[np.float64]:
        return self._next(self._uniform, n)

    def standard_normal(self, n: int) -> NDArray[np.float64]:
        return self._next(self._noise, n)

    def _next(self, numbers: list[float], n: int) -> NDArray[np.float64]:
        return np.array([numbers.pop(0) if numbers else 0.0 for _ in range(n)])


class Fed(BestArm):
    """Best Arm that draws from a table."""

    def __init__(self, table: Table, **settings: Any) -> None:
        super().__init__(**settings)
        self._table = table

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self._np_random = self._table
        return super().reset(seed=None, options=options)


class Draws:
    """In the place of a numpy generator: the numbers of n bandits, step by step."""

    def __init__(self, uniform: NDArray[np.float64], noise: NDArray[np.float64]) -> None:
        self.uniform, self.noise, self.row = uniform, noise, 0  # (2, n), (steps, n)

    def random(self, shape: tuple[int, ...]) -> NDArray[np.float64]:
        assert shape == self.uniform.shape
        return self.uniform

    def standard_normal(self, shape: tuple[int, ...]) -> NDArray[np.float64]:
        actual = np.zeros(shape)
        rows = self.noise[self.row : self.row + shape[0]]
        actual[: len(rows)] = rows
        self.row += shape[0]
        return actual


def drawn(n: int, steps: int, seed: int) -> Draws:
    rng = np.random.default_rng(seed)
    return Draws(rng.random((2, n)), rng.standard_normal((steps, n)))


def fed(draws: Draws, *, privileged: bool = False, **settings: Any) -> gymnasium.vector.VectorEnv:
    """The environments, each with its column of the numbers."""
    columns = zip(draws.uniform.T, draws.noise.T, strict=True)
    tables = [Table(*column) for column in columns]
    makers = [lambda table=table: Fed(table, **settings) for table in tables]
    env = SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP)
    return PrivilegedObservation(env) if privileged else env
