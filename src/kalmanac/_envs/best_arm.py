"""Best Arm Identification (paper, section 5.2): environments of many bandits and of one.

What they do is in `best_arm_rules`.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from kalmanac._envs.best_arm_rules import (
    ASK,
    PRIOR_VARIANCE,
    Bandits,
    Bools,
    Floats,
    Interval,
    Outcome,
    Rules,
    ask,
    begin,
    between,
    outcome,
    posterior_of,
    values_of,
)
from kalmanac._envs.checkpointable import check_state, generator

Observations = NDArray[np.float32]


class BestArmVector(VectorEnv[Observations, NDArray[np.int64], NDArray[Any]]):
    """`num_envs` independent bandits of `BestArm`, stepped together.

    Rules, observations and infos are those of Gymnasium's `SyncVectorEnv` over `BestArm` in
    SAME_STEP mode: a bandit that ends is replaced within the step, and its last observation and
    info stand in `infos["final_obs"]` and `infos["final_info"]`. All bandits share one generator,
    so that the samples depend on `num_envs`.

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
        # Any float, and the same space for every `sigma`, so that an agent can be evaluated where
        # it was not trained; with finite bounds, because Gymnasium's checker asks for them.
        largest = float(np.finfo(np.float32).max)
        self.single_observation_space = spaces.Box(-largest, largest, (1,), np.float32)
        self.single_action_space = spaces.Discrete(3)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        low = np.array([-largest, 0], np.float32)
        high = np.array([largest, np.sqrt(PRIOR_VARIANCE)], np.float32)
        self.privileged_space = spaces.Box(low, high, dtype=np.float32)
        self._bandits = Bandits(*np.zeros((5, num_envs)))  # no samples: never reset

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """Replace all bandits and return their first samples."""
        values = _fixed(options, (self.num_envs,))
        super().reset(seed=seed)
        self._begin(np.ones(self.num_envs, np.bool_), values)
        return self._observations(), self._infos()

    def step(self, actions: Any) -> tuple[Observations, Floats, Bools, Bools, dict[str, Any]]:
        """Take one action for each bandit, (num_envs,), and replace those that end."""
        ended, won, rewards = self.act(self._checked(actions))
        infos: dict[str, Any] = {}
        if ended.any():
            infos = self._final(ended, won)
            self._begin(ended, {})
        infos |= self._infos()
        return self._observations(), rewards, ended, np.zeros(self.num_envs, np.bool_), infos

    def act(self, actions: NDArray[np.integer[Any]]) -> Outcome:
        """Take one action for each bandit, (num_envs,), and leave those that end as they are."""
        rules = self.rules
        result = outcome(
            np, actions, self._bandits,
            horizon=rules.horizon, cost=rules.cost, win=rules.win, loss=rules.loss,
        )  # fmt: skip
        asked = actions == ASK
        noise = self._draw_at(asked, self.np_random.standard_normal)
        self._bandits = ask(np, self._bandits, asked, noise)
        return result

    def get_checkpoint_state(self) -> dict[str, Any]:
        """Return all that the future depends on, as arrays and plain data."""
        state = {name: x.copy() for name, x in self._bandits._asdict().items()}
        state["count"] = state["count"].astype(np.int64)
        return {**state, "generator": self.np_random.bit_generator.state}

    def set_checkpoint_state(self, state: dict[str, Any]) -> None:
        """Go on exactly where `get_checkpoint_state` was called."""
        check_state(state, self.get_checkpoint_state())
        self._bandits = Bandits(*(np.array(state[name], np.float64) for name in Bandits._fields))
        self.np_random = generator(state["generator"])

    def _begin(self, at: Bools, values: dict[str, Floats]) -> None:
        """Replace the bandits `at` these places."""
        hidden = {}
        for name, (low, high) in self._bounds.items():
            if name in values:
                hidden[name] = values[name]
            else:
                hidden[name] = between(low, high, self._draw_at(at, self.np_random.random))
        new = begin(np, **hidden, noise=self._draw_at(at, self.np_random.standard_normal))
        both = zip(new, self._bandits, strict=True)
        self._bandits = Bandits(*(np.where(at, x, y) for x, y in both))

    def _draw_at(self, at: Bools, draw: Callable[[int], Floats]) -> Floats:
        """Draw a number for each place that needs one, in their order; zeros elsewhere."""
        numbers = np.zeros(self.num_envs)
        numbers[at] = draw(int(np.count_nonzero(at)))
        return numbers

    def _checked(self, actions: Any) -> NDArray[np.integer[Any]]:
        if self._bandits.count[0] == 0:
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
        return self._bandits.sample.astype(np.float32)[:, None]

    def _beliefs(self) -> Observations:
        """Compute the posterior mean and standard deviation of each μ, (num_envs, 2)."""
        belief = np.empty((self.num_envs, 2), np.float32)
        _, sigma, _, total, count = self._bandits
        belief[:, 0], belief[:, 1] = posterior_of(np, total, count, sigma)
        return belief

    def _infos(self) -> dict[str, Any]:
        """Return what `BestArm` has in its info, for every bandit."""
        masks = [np.ones(self.num_envs, np.bool_) for _ in range(3)]
        return {
            "mu": self._bandits.mu.copy(), "sigma": self._bandits.sigma.copy(),
            "privileged": self._beliefs(),
            "_mu": masks[0], "_sigma": masks[1], "_privileged": masks[2],
        }  # fmt: skip

    def _final(self, ended: Bools, won: Bools) -> dict[str, Any]:
        """Return what the bandits that end leave behind when they are replaced; zeros elsewhere."""
        rows = self._observations()[ended]
        last = np.full(self.num_envs, None, dtype=object)
        last[ended] = np.fromiter(rows, dtype=object, count=len(rows))
        info = {
            "mu": np.where(ended, self._bandits.mu, 0.0),
            "sigma": np.where(ended, self._bandits.sigma, 0.0),
            "privileged": np.where(ended[:, None], self._beliefs(), np.float32(0)),
            "win": won.copy(),
        }
        masks = {f"_{name}": ended.copy() for name in info}
        return {
            "final_obs": last, "_final_obs": ended.copy(),
            "final_info": info | masks, "_final_info": ended.copy(),
        }  # fmt: skip


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
        self._vector = BestArmVector(1, cost, sigma, mu, horizon, win, loss)
        self.rules = self._vector.rules
        self.observation_space = self._vector.single_observation_space
        self.action_space = self._vector.single_action_space
        self.privileged_space = self._vector.privileged_space
        self._running = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """Begin with a new bandit and its first sample."""
        super().reset(seed=seed)
        self._vector.np_random = self.np_random
        observations, _ = self._vector.reset(options=options)
        self._running = True
        return observations[0], self._info()

    def step(self, action: Any) -> tuple[Observations, float, bool, bool, dict[str, Any]]:
        """Ask, or decide."""
        if not self._running:
            raise gymnasium.error.ResetNeeded("step: no episode is running, call reset first")
        if not self.action_space.contains(action):
            raise ValueError(f"action: got {action!r}, expected 0 (ask), 1 (above) or 2 (below)")
        (ended,), (won,), (reward,) = self._vector.act(np.array([action]))
        self._running = not ended
        info = self._info()
        if ended:
            info["win"] = bool(won)
        return self._vector._observations()[0], float(reward), bool(ended), False, info

    def get_checkpoint_state(self) -> dict[str, Any]:
        """Return all that the future depends on, as plain data."""
        state = self._vector.get_checkpoint_state()
        numbers = {name: state[name].item() for name in Bandits._fields}
        return {**numbers, "running": self._running, "generator": state["generator"]}

    def set_checkpoint_state(self, state: dict[str, Any]) -> None:
        """Go on exactly where `get_checkpoint_state` was called."""
        check_state(state, self.get_checkpoint_state())
        rows = {name: [state[name]] for name in Bandits._fields}
        self._vector.set_checkpoint_state({**rows, "generator": state["generator"]})
        self.np_random = self._vector.np_random
        self._running = bool(state["running"])

    def _info(self) -> dict[str, Any]:
        mu, sigma = self._vector._bandits.mu.item(), self._vector._bandits.sigma.item()
        return {"mu": mu, "sigma": sigma, "privileged": self._vector._beliefs()[0]}


def _fixed(options: dict[str, Any] | None, shape: tuple[int, ...]) -> dict[str, Floats]:
    """Read the means and standard deviations that a reset's `options` ask for."""
    values = {}
    for name, value in (options or {}).items():
        if name not in ("mu", "sigma"):
            raise ValueError(f"options: got {name!r}, expected 'mu' or 'sigma'")
        values[name] = values_of(f"options[{name!r}]", value, shape)
        if name == "sigma" and (values[name] < 0).any():
            raise ValueError(f"options['sigma']: got {value!r}, expected values of at least 0")
    return values
