"""Best Arm Identification, many bandits at once in numpy."""

from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from kalmanac.envs import best_arm_rules
from kalmanac.envs.bayes import posterior
from kalmanac.envs.best_arm_rules import ASK, Floats, Interval, Rules, between, outcome, sample

Bools = NDArray[np.bool_]
Observations = NDArray[np.float32]


class BestArmVector(VectorEnv[Observations, NDArray[np.int64], NDArray[Any]]):
    """`num_envs` independent `BestArm` bandits, stepped together.

    Rules, observations and infos are those of Gymnasium's `SyncVectorEnv` over `BestArm` in
    SAME_STEP mode: a bandit that ends is replaced within the step, and its last observation and
    info stand in `infos["final_obs"]` and `infos["final_info"]`. All bandits share one generator,
    so that the samples depend on `num_envs`; one bandit alone draws what `BestArm` draws.

    The bounds in `mu` and `sigma` may be arrays with one value for each bandit: with low = high,
    every bandit keeps its own pair for ever, as a map over (μ, σ) needs it. Values in
    `reset(options=…)`, numbers or arrays, hold for the episodes that this reset begins.
    """

    metadata: ClassVar[dict[str, Any]] = {  # type: ignore[misc]
        "render_modes": [],
        "autoreset_mode": AutoresetMode.SAME_STEP,
    }

    def __init__(
        self, num_envs: int = 1, cost: float = 0.0, sigma: Interval = (0.0, 2.0),
        mu: Interval = (-0.5, 0.5), horizon: int = 1000, win: float = 10.0, loss: float = -10.0,
    ) -> None:  # fmt: skip
        if num_envs < 1:
            raise ValueError(f"num_envs: got {num_envs!r}, expected at least 1")
        self.num_envs = num_envs
        self.rules = Rules(cost=cost, sigma=sigma, mu=mu, horizon=horizon, win=win, loss=loss)
        self._bounds = self.rules.bounds((num_envs,))
        self._pays: dict[str, Any] = {
            name: getattr(self.rules, name) for name in ("horizon", "cost", "win", "loss")
        }
        self.single_observation_space = best_arm_rules.observation_space()
        self.single_action_space = spaces.Discrete(3)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.privileged_space = best_arm_rules.privileged_space()
        self._mu, self._sigma, self._sample, self._total = np.zeros((4, num_envs))
        self._count = np.zeros(num_envs, np.int64)  # 0: never reset; else the coming step's number

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """New bandits everywhere, and their first samples."""
        values = best_arm_rules.fixed(options, (self.num_envs,))
        super().reset(seed=seed)
        self._begin(np.arange(self.num_envs), values)
        return self._observations(), self._infos()

    def step(self, actions: Any) -> tuple[Observations, Floats, Bools, Bools, dict[str, Any]]:
        """One action for each bandit, (num_envs,)."""
        actions = self._checked(actions)
        ended, won, rewards = outcome(np, actions, self._mu, self._count, **self._pays)
        at = np.flatnonzero(ended)
        infos: dict[str, Any] = {}
        if at.size:
            self._ask(np.flatnonzero(actions == ASK))
            infos = self._final(ended, won)
            self._begin(at, {})
        else:
            self._ask(slice(None))
        infos |= self._infos()
        return self._observations(), rewards, ended, np.zeros(self.num_envs, np.bool_), infos

    def get_checkpoint_state(self) -> dict[str, Any]:
        """All that the future depends on: plain arrays, and the generator's state as plain data."""
        return {
            "mu": self._mu.copy(), "sigma": self._sigma.copy(), "sample": self._sample.copy(),
            "total": self._total.copy(), "count": self._count.copy(),
            "generator": self.np_random.bit_generator.state,
        }  # fmt: skip

    def set_checkpoint_state(self, state: dict[str, Any]) -> None:
        """Go on exactly where `get_checkpoint_state` was called."""
        best_arm_rules.check_state(state, self.get_checkpoint_state())
        self._mu, self._sigma, self._sample, self._total = (
            np.array(state[name], np.float64) for name in ("mu", "sigma", "sample", "total")
        )
        self._count = np.array(state["count"], np.int64)
        self.np_random = best_arm_rules.generator(state["generator"])

    def _begin(self, at: NDArray[np.intp], values: dict[str, Floats]) -> None:
        """Replace the bandits `at` these places."""
        for name, hidden in (("mu", self._mu), ("sigma", self._sigma)):
            if name in values:
                hidden[at] = values[name][at]
            else:
                low, high = (bound[at] for bound in self._bounds[name])
                hidden[at] = between(low, high, self.np_random.random(at.size))
        self._total[at] = 0.0
        self._count[at] = 0
        self._ask(at)

    def _ask(self, at: NDArray[np.intp] | slice) -> None:
        mu, sigma = self._mu[at], self._sigma[at]
        samples = sample(mu, sigma, self.np_random.standard_normal(mu.size))
        self._sample[at] = samples
        self._total[at] += samples
        self._count[at] += 1

    def _checked(self, actions: Any) -> NDArray[np.integer[Any]]:
        if self._count[0] == 0:
            raise gymnasium.error.ResetNeeded("step: no episode is running, call reset first")
        array = np.asarray(actions)
        if array.shape != (self.num_envs,) or not np.issubdtype(array.dtype, np.integer):
            raise ValueError(
                f"actions: got {array.dtype} of shape {array.shape}, "
                f"expected integers of shape ({self.num_envs},)"
            )
        if array.min() < 0 or array.max() > 2:
            raise ValueError(
                f"actions: got {array.min()} to {array.max()}, "
                "expected 0 (ask), 1 (above) or 2 (below)"
            )
        return array

    def _observations(self) -> Observations:
        return self._sample.astype(np.float32)[:, None]

    def _infos(self) -> dict[str, Any]:
        """What `BestArm` tells in its info, for every bandit."""
        belief = np.empty((self.num_envs, 2), np.float32)
        belief[:, 0], belief[:, 1] = posterior(self._total, self._count, self._sigma)
        told = [np.ones(self.num_envs, np.bool_) for _ in range(3)]
        return {
            "mu": self._mu.copy(), "sigma": self._sigma.copy(), "privileged": belief,
            "_mu": told[0], "_sigma": told[1], "_privileged": told[2],
        }  # fmt: skip

    def _final(self, ended: Bools, won: Bools) -> dict[str, Any]:
        """What the bandits that end leave behind, before they are replaced; zeros elsewhere."""
        at = np.flatnonzero(ended)
        rows = self._sample[at].astype(np.float32)[:, None]
        last = np.full(self.num_envs, None, dtype=object)
        last[at] = np.fromiter(rows, dtype=object, count=at.size)
        belief = np.zeros((self.num_envs, 2), np.float32)
        belief[at] = np.stack(posterior(self._total[at], self._count[at], self._sigma[at]), axis=1)
        info = {
            "mu": np.where(ended, self._mu, 0.0), "sigma": np.where(ended, self._sigma, 0.0),
            "privileged": belief, "win": won.copy(),
        }  # fmt: skip
        masks = {f"_{name}": ended.copy() for name in info}
        return {
            "final_obs": last, "_final_obs": ended.copy(),
            "final_info": info | masks, "_final_info": ended.copy(),
        }  # fmt: skip
