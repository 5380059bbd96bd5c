"""A warning when a critic's values leave what the rewards can account for.

A value that is bootstrapped from states which no stored transition leaves is held by nothing: it
can grow for ever, and the rewards drown in it. That happens where the task's own end is reported as
truncation. The run itself looks healthy, so somebody has to compare the two scales.
"""

import warnings
from collections.abc import Callable, Mapping

from torch import Tensor

from kalmanac.rollout import Episode

EVERY = 1_000  # updates between looks: reading a number waits for the device
IN_A_ROW = 3  # looks at which the values were too large, and larger than at the look before
TIMES = 10.0  # the largest return of an episode; what lies below may be a discounted future
EPISODES = 10  # that must have ended, so that there is a scale


class RunawayValuesWarning(UserWarning):
    """Mean Q is far beyond every return that was seen, and grows.

    Examples:
        >>> import warnings
        >>> from kalmanac import RunawayValuesWarning
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("error", RunawayValuesWarning)  # such a training ends at once
    """


class ValueCheck:
    """Compares mean Q with the returns of a training's episodes, and warns once.

    `scale` tells what rewards are multiplied by before the critic sees them.
    """

    def __init__(
        self, *, bootstraps_truncated: bool, scale: Callable[[], float] = lambda: 1.0
    ) -> None:
        self._bootstraps, self._scale = bootstraps_truncated, scale
        self._largest, self._episodes, self._truncated = 0.0, 0, 0
        self._updates, self._before, self._suspicious = 0, 0.0, 0
        self.warned = False

    def on_episode(self, episode: Episode) -> None:
        """Take notice of an episode's return and of how it ended."""
        self._largest = max(self._largest, abs(episode.total_reward))
        self._episodes += 1
        self._truncated += not episode.terminated

    def on_update(self, metrics: Mapping[str, Tensor]) -> None:
        """Look at mean Q now and then."""
        self._updates += 1
        if self.warned or self._updates % EVERY:
            return
        q = abs(metrics["train/q_mean"].item()) / self._scale()
        known = self._episodes >= EPISODES and self._largest > 0
        grows = known and q > TIMES * self._largest and q > self._before
        self._suspicious, self._before = self._suspicious + 1 if grows else 0, q
        if self._suspicious == IN_A_ROW:
            self.warned = True
            warnings.warn(self._told(q), RunawayValuesWarning, stacklevel=2)

    def _told(self, q: float) -> str:
        seen = (
            f"values run away: train/q_mean is {q:.3g} in size and grows, while the return of no "
            f"episode exceeds {self._largest:.3g}"
        )
        if self._bootstraps and self._truncated:
            share = self._truncated / self._episodes
            return (
                f"{seen}. Likely cause: {share:.0%} of the episodes end as truncated, and what "
                "would come after is never seen; if that end is part of the task, set "
                "bootstrap_truncated=False (--bootstrap-truncated False)"
            )
        return (
            f"{seen}. Likely cause: the entropy bonus outweighs the rewards; raise the rewards' "
            "scale, or lower initial_ent_coef or target_entropy"
        )
