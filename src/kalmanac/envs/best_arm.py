"""Best Arm Identification (paper, section 5.1) as one Gymnasium environment."""

from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from kalmanac.envs import best_arm_rules
from kalmanac.envs.bayes import posterior
from kalmanac.envs.best_arm_rules import ABOVE, ASK, Interval, Rules


class BestArm(gymnasium.Env[NDArray[np.float32], np.int64]):
    """Is the mean of a noisy bandit above or below zero? Ask as often as it is worth, then decide.

    Every episode draws a mean μ and a noise σ that stay hidden. An observation is one sample of
    N(μ, σ²), the first of them at reset. Actions:

    - 0, ask: a new sample, reward −cost;
    - 1, above: the episode ends with reward `win` if μ > 0, else `loss`;
    - 2, below: the other way round (μ = 0 counts as below).

    Asking in step `horizon`, the last one, ends the episode with reward `loss` alone. All ends are
    `terminated`. A decision brings no sample: the last one is shown again.

    `info` holds "mu", "sigma" and "privileged": the posterior mean and standard deviation of μ for
    a prior N(0, 1/12) and known σ; at the end also "win". `reset(options={"mu": 0.3, "sigma": 1})`
    fixes either value for that episode.

    Examples:
        >>> from kalmanac import BestArm
        >>> env = BestArm(cost=0.1)
        >>> sample, info = env.reset(seed=0, options={"mu": 0.3, "sigma": 1.0})
        >>> sample, reward, terminated, truncated, info = env.step(1)  # it is above zero
        >>> reward, terminated, info["win"]
        (10.0, True, True)
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}  # type: ignore[misc]

    def __init__(
        self, cost: float = 0.0, sigma: Interval = (0.0, 2.0), mu: Interval = (-0.5, 0.5),
        horizon: int = 1000, win: float = 10.0, loss: float = -10.0,
    ) -> None:  # fmt: skip
        self.rules = Rules(cost=cost, sigma=sigma, mu=mu, horizon=horizon, win=win, loss=loss)
        self._bounds = self.rules.bounds(())
        self.observation_space = best_arm_rules.observation_space()
        self.action_space = spaces.Discrete(3)
        self.privileged_space = best_arm_rules.privileged_space()
        self._running = False
        self._mu = self._sigma = self._sample = self._total = 0.0
        self._count = 0  # samples seen, and so the number of the coming step

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """A new bandit and its first sample."""
        values = best_arm_rules.fixed(options, ())
        super().reset(seed=seed)
        self._mu = self._draw("mu", values)
        self._sigma = self._draw("sigma", values)
        self._total, self._count = 0.0, 0
        self._ask()
        self._running = True
        return self._observation(), self._info()

    def step(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Ask, or decide."""
        if not self._running:
            raise gymnasium.error.ResetNeeded("step: no episode is running, call reset first")
        if not self.action_space.contains(action):
            raise ValueError(f"action: got {action!r}, expected 0 (ask), 1 (above) or 2 (below)")
        won = False
        if action == ASK:
            self._running = self._count < self.rules.horizon
            self._ask()
            reward = 0.0 - self.rules.cost if self._running else self.rules.loss
        else:
            self._running = False
            won = (action == ABOVE) == (self._mu > 0)
            reward = self.rules.win if won else self.rules.loss
        info = self._info()
        if not self._running:
            info["win"] = bool(won)
        return self._observation(), float(reward), not self._running, False, info

    def get_checkpoint_state(self) -> dict[str, Any]:
        """All that the future depends on, as plain data."""
        return {
            "mu": self._mu, "sigma": self._sigma, "sample": self._sample, "total": self._total,
            "count": self._count, "running": self._running,
            "generator": self.np_random.bit_generator.state,
        }  # fmt: skip

    def set_checkpoint_state(self, state: dict[str, Any]) -> None:
        """Go on exactly where `get_checkpoint_state` was called."""
        best_arm_rules.check_state(state, self.get_checkpoint_state())
        self._mu, self._sigma = float(state["mu"]), float(state["sigma"])
        self._sample, self._total = float(state["sample"]), float(state["total"])
        self._count, self._running = int(state["count"]), bool(state["running"])
        self.np_random = best_arm_rules.generator(state["generator"])

    def _draw(self, name: str, values: dict[str, Any]) -> float:
        if name in values:
            return float(values[name])
        low, high = self._bounds[name]
        return float(low + (high - low) * self.np_random.random())

    def _ask(self) -> None:
        self._sample = float(self._mu + self._sigma * self.np_random.standard_normal())
        self._total += self._sample
        self._count += 1

    def _observation(self) -> NDArray[np.float32]:
        return np.array([self._sample], dtype=np.float32)

    def _info(self) -> dict[str, Any]:
        belief = np.array(posterior(self._total, self._count, self._sigma), dtype=np.float32)
        return {"mu": self._mu, "sigma": self._sigma, "privileged": belief}
