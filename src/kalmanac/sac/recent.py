"""The training episodes behind the means that a progress line shows."""

from collections import deque
from typing import TYPE_CHECKING, Any

from kalmanac.rollout import Episode

if TYPE_CHECKING:
    from kalmanac.sac.recurrent_sac import RecurrentSAC

MOST = 100  # as SB3 counts them


class RecentEpisodes:
    """The last 100. Those of the random warm-up leave when the first one after it ends."""

    def __init__(self) -> None:
        self._episodes: deque[Episode] = deque(maxlen=MOST)
        self._learning = False

    def add(self, model: "RecurrentSAC", episode: Episode) -> None:
        """One that has just ended."""
        if model.num_updates > 0 and not self._learning:
            self._episodes.clear()
            self._learning = True
        self._episodes.append(episode)

    def figures(self) -> list[str]:
        """Mean return and length in words; nothing before the first episode's end."""
        n = len(self._episodes)
        if n == 0:
            return []
        reward = sum(episode.total_reward for episode in self._episodes) / n
        length = sum(episode.length for episode in self._episodes) / n
        return [f"return {reward:.3g}", f"length {length:.4g}"]

    def state_dict(self) -> dict[str, Any]:
        """What the next means depend on."""
        return {
            "returns": [episode.total_reward for episode in self._episodes],
            "lengths": [episode.length for episode in self._episodes],
            "learning": self._learning,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Means go on where `state_dict` was called."""
        for reward, length in zip(state["returns"], state["lengths"], strict=True):
            self._episodes.append(Episode(reward, length, False, 0, {}))
        self._learning = state.get("learning", False)
