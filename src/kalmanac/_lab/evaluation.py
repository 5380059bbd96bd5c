"""Evaluation episodes as numbers for the log: returns, lengths, wins, and the actions taken."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from numpy.typing import NDArray

from kalmanac._envs.best_arm_rules import ASK
from kalmanac._lab.experiment import Experiment
from kalmanac._lab.factory import evaluation_rules
from kalmanac._sac.bandit_evaluation import BanditEvaluation
from kalmanac._sac.episode_streams import autoreset_mode
from kalmanac._sac.evaluation import (
    MOST_STEPS,
    EachStep,
    Evaluation,
    PredictingModel,
    evaluate_policy,
)
from kalmanac._sac.recurrent_sac import RecurrentSAC


class EvaluationStoppedError(RuntimeError):
    """The run is to stop; the evaluation starts anew when the run goes on."""


def evaluate(
    model: PredictingModel,
    env: VectorEnv[Any, Any, Any],
    episodes: int,
    *,
    seed: int,
    return_scale: float = 1.0,
    max_steps: int = MOST_STEPS,
    each_step: EachStep | None = None,
) -> dict[str, float]:
    """Means over `episodes` episodes that begin with a reset by `seed`.

    mean_reward, std_reward, normalized (return / `return_scale`), length, where an episode can be
    won win_rate, and for discrete actions action_i (its share of all steps) and last_action_i (the
    share of episodes that it ended). Where episodes were cut after `max_steps`, cut is their
    number. `each_step` is called before every vector step; what it raises ends the evaluation.
    """
    discrete = isinstance(env.single_action_space, Discrete)
    counted = ActionTally(env, episodes, max_steps) if discrete else env
    evaluation = evaluate_policy(
        model, counted, episodes, seed=seed, max_steps=max_steps, each_step=each_step
    )
    values = _means(evaluation, return_scale)
    if isinstance(counted, ActionTally):
        values |= counted.shares()
    return values


class OnDevice:
    """All evaluations of a Best Arm experiment at once, on the device of a model."""

    def __init__(self, experiment: Experiment, model: RecurrentSAC, return_scale: float) -> None:
        self._return_scale = return_scale
        self._evaluation = BanditEvaluation(
            model.policy,
            evaluation_rules(experiment),
            experiment.eval_episodes,
            privileged=experiment.privileged,
        )

    def __call__(
        self, seeds: Sequence[int], each_step: EachStep | None = None
    ) -> list[dict[str, float]]:
        """What `evaluate` gives, for each evaluation, of episodes that its seed decides.

        `each_step` is called now and then.
        """
        evaluations = self._evaluation([np.random.default_rng(seed) for seed in seeds], each_step)
        return [
            _means(played.episodes, self._return_scale)
            | _shares(*_counts(played.episodes.lengths, played.last_actions))
            for played in evaluations
        ]


def evaluation_line(values: Mapping[str, float]) -> str:
    """Normalized return, length and win rate of each evaluation, in one line."""
    places: dict[str, dict[str, float]] = {}
    for key, value in values.items():
        _, place, name = key.split("/")
        places.setdefault(place, {})[name] = value
    parts = []
    for place, metrics in places.items():
        wins = f", wins {metrics['win_rate']:.2f}" if "win_rate" in metrics else ""
        cut = f", {metrics['cut']:.0f} cut" if metrics.get("cut") else ""
        length = f"length {metrics['length']:.3g}"
        parts.append(f"{place} {metrics['normalized']:.3g} ({length}{wins}{cut})")
    return "  ".join(parts)


def _means(evaluation: Evaluation, return_scale: float) -> dict[str, float]:
    values = {
        "mean_reward": evaluation.mean_reward,
        "std_reward": evaluation.std_reward,
        "normalized": evaluation.mean_reward / return_scale,
        "length": evaluation.mean_length,
    }
    if evaluation.win_rate is not None:
        values["win_rate"] = evaluation.win_rate
    if evaluation.cut:
        values["cut"] = evaluation.cut
    return values


def _counts(
    lengths: NDArray[np.int64], last_actions: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count a bandit's actions and last actions: an agent asks until its episode's last step."""
    last = np.bincount(last_actions, minlength=3)
    actions = last.copy()
    actions[ASK] += (lengths - 1).sum()
    return actions, last


def _shares(actions: NDArray[np.int64], last: NDArray[np.int64]) -> dict[str, float]:
    counts = {"action": actions, "last_action": last}
    return {
        f"{name}_{i}": float(count / total.sum())
        for name, total in counts.items()
        for i, count in enumerate(total)
    }


class ActionTally(VectorWrapper[Any, Any, Any, Any, Any]):
    """Counts discrete actions in the first `episodes` episodes, shared out as evaluations do it.

    An episode of `max_steps` steps that is not over is the last one of its environment.
    """

    def __init__(
        self, env: VectorEnv[Any, Any, Any], episodes: int, max_steps: int = MOST_STEPS
    ) -> None:
        super().__init__(env)
        self._most, self._length = max_steps, np.zeros(env.num_envs, np.int64)
        space = env.single_action_space
        assert isinstance(space, Discrete)
        n = env.num_envs
        self._first = int(space.start)
        self._due = (episodes + n - 1 - np.arange(n)) // n  # episodes that still count, each
        self._over = np.zeros(n, np.bool_)  # NEXT_STEP: the coming step only resets
        self._waits = autoreset_mode(env) is AutoresetMode.NEXT_STEP
        self._actions, self._last = np.zeros((2, int(space.n)), np.int64)

    def step(
        self, actions: Any
    ) -> tuple[Any, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Step, and count."""
        chosen = np.asarray(actions) - self._first  # before an environment may change them
        transition = self.env.step(actions)
        counts = (self._due > 0) & ~self._over
        over = counts & (transition[2] | transition[3])
        self._length[counts] += 1
        cut = counts & ~over & (self._length >= self._most)
        ended = over | cut
        np.add.at(self._actions, chosen[counts], 1)
        np.add.at(self._last, chosen[ended], 1)
        self._due[ended] -= 1
        self._due[cut], self._length[ended] = 0, 0
        if self._waits:
            self._over = ~self._over & (transition[2] | transition[3])
        return transition

    def shares(self) -> dict[str, float]:
        """action_i, its share of all steps, and last_action_i, of all last steps of an episode."""
        return _shares(self._actions, self._last)
