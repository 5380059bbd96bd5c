"""Best Arm Identification (paper, section 5.2): the rules, many bandits at once, and one of them.

The rules stand once, as functions of arrays (n,) of any library that has numpy's names (`xp`):
numpy in the environments here, torch where episodes are played beside an agent on its device. The
numbers that the paper leaves open are named settings.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray

from kalmanac._envs.checkpointable import check_state, generator

ASK, ABOVE, BELOW = 0, 1, 2

# The variance of the uniform prior on (−1/2, 1/2), and so that of the Gaussian in its place.
PRIOR_VARIANCE = 1 / 12

Interval = tuple[ArrayLike, ArrayLike]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Observations = NDArray[np.float32]


@dataclass(frozen=True)
class Rules:
    """The rules say what an episode is drawn from and what it pays.

    `mu` and `sigma` are intervals (low, high) of uniform distributions; low = high fixes the value.
    In a vectorized environment each bound may also be an array with one value for each bandit.
    """

    cost: float = 0.0  # ρ: what asking once costs
    sigma: Interval = (0.0, 2.0)
    mu: Interval = (-0.5, 0.5)
    horizon: int = 1000  # steps until the episode ends as lost
    win: float = 10.0
    loss: float = -10.0

    def __post_init__(self) -> None:
        for name in ("cost", "win", "loss"):
            number = getattr(self, name)
            if not isinstance(number, int | float | np.number) or not np.isfinite(number):
                raise ValueError(f"{name}: got {number!r}, expected a finite number")
        if self.cost < 0:
            raise ValueError(f"cost: got {self.cost!r}, expected a number of at least 0")
        if self.win <= self.loss:
            raise ValueError(f"win: got {self.win!r}, expected more than the loss, {self.loss!r}")
        steps = self.horizon
        if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or steps < 1:
            raise ValueError(f"horizon: got {self.horizon!r}, expected an integer of at least 1")

    def bounds(self, shape: tuple[int, ...]) -> dict[str, tuple[Floats, Floats]]:
        """Return the intervals of "mu" and "sigma", each bound an array of this shape."""
        return {
            "mu": _interval("mu", self.mu, shape, -np.inf),
            "sigma": _interval("sigma", self.sigma, shape, 0.0),
        }


class Bandits(NamedTuple):
    """n bandits in the middle of their episodes: float64 arrays (n,) of numpy or of torch."""

    mu: Any
    sigma: Any
    sample: Any  # the last one
    total: Any  # the sum of all samples
    count: Any  # the number of samples, and so that of the coming step


class Outcome(NamedTuple):
    """An outcome is what an action leads to in each of n bandits."""

    ended: Any  # (n,) bool: a decision, or a question in the last step
    won: Any  # (n,) bool
    reward: Any  # (n,)


def between(low: Any, high: Any, uniform: Any) -> Any:
    """Draw a mean or a noise from its interval, given a number that is uniform in [0, 1)."""
    return low + (high - low) * uniform


def begin(xp: Any, mu: Any, sigma: Any, noise: Any) -> Bandits:
    """Begin episodes with a first sample, given standard normal numbers."""
    sample = mu + sigma * noise
    return Bandits(mu, sigma, sample, 0.0 + sample, xp.ones_like(sample))


def ask(xp: Any, bandits: Bandits, asked: Any, noise: Any) -> Bandits:
    """Draw one more sample where `asked` is True, given standard normal numbers."""
    mu, sigma, sample, total, count = bandits
    sample = xp.where(asked, mu + sigma * noise, sample)
    return Bandits(mu, sigma, sample, xp.where(asked, total + sample, total), count + asked)


def outcome(
    xp: Any, action: Any, bandits: Bandits, *, horizon: Any, cost: Any, win: Any, loss: Any
) -> Outcome:
    """Compute what asking or deciding pays, and where it ends an episode."""
    decided = action != ASK
    ended = decided | (bandits.count >= horizon)
    won = decided & ((action == ABOVE) == (bandits.mu > 0))
    return Outcome(ended, won, xp.where(ended, xp.where(won, win, loss), 0.0 - cost))


def posterior_of(
    xp: Any, total: Any, count: Any, sigma: Any, prior_variance: float = PRIOR_VARIANCE
) -> tuple[Any, Any]:
    """Compute the mean and standard deviation of `posterior` for float64 arrays."""
    noise = sigma * sigma
    evidence = noise + count * prior_variance
    # No evidence: σ = 0 before the first sample. The prior stands.
    informed = evidence > 0
    scale = prior_variance / xp.where(informed, evidence, xp.ones_like(evidence))
    std = xp.sqrt(xp.where(informed, scale * noise, xp.full_like(evidence, prior_variance)))
    return scale * total, std


def posterior(
    total: ArrayLike, count: ArrayLike, sigma: ArrayLike, *,
    prior_variance: float = PRIOR_VARIANCE,
) -> tuple[Floats, Floats]:  # fmt: skip
    """Infer mean and std of μ from `count` samples of N(μ, σ²) that add up to `total`.

    Conjugate normal with known σ and prior N(0, v): mean = v·total / (σ² + count·v) and
    variance = v·σ² / (σ² + count·v). Without noise one sample tells μ exactly. This is what the
    Oracle observes (paper, section 5.2, figure 3).
    """
    total, count, sigma = (np.asarray(x, dtype=np.float64) for x in (total, count, sigma))
    return posterior_of(np, total, count, sigma, prior_variance)


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
        values[name] = _values(f"options[{name!r}]", value, shape)
        if name == "sigma" and (values[name] < 0).any():
            raise ValueError(f"options['sigma']: got {value!r}, expected values of at least 0")
    return values


def _interval(name: str, value: Any, shape: tuple[int, ...], least: float) -> tuple[Floats, Floats]:
    try:
        low, high = value
    except (TypeError, ValueError):
        raise ValueError(f"{name}: got {value!r}, expected an interval (low, high)") from None
    low, high = _values(name, low, shape), _values(name, high, shape)
    if (low > high).any() or (low < least).any():
        floor = "" if least == -np.inf else f"{least:g} ≤ "
        raise ValueError(f"{name}: got {value!r}, expected {floor}low ≤ high")
    return low, high


def _values(name: str, value: Any, shape: tuple[int, ...]) -> Floats:
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name}: got {value!r}, expected numbers") from None
    if array.shape not in ((), shape):
        expected = "a number" + (f" or {shape[0]} of them" if shape else "")
        raise ValueError(f"{name}: got shape {array.shape}, expected {expected}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name}: got {value!r}, expected finite values")
    return np.broadcast_to(array, shape).copy()
