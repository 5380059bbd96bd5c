"""One running use of a trained policy, which carries the policy's memory for its user."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kalmanac.rollout import PredictingModel


class Session:
    """`act` once per time step; `reset` when a new episode begins.

    The same as calling `predict` with the state it returned the last time. A session serves one
    environment, or always the same number of them as a batch; several sessions of one model do not
    know of each other.

    Examples:
        >>> from kalmanac import RecurrentSAC, Track
        >>> env = Track(horizon=5)
        >>> session = RecurrentSAC("vssm+kf", env, seed=0).session()
        >>> observation, info = env.reset(seed=0)
        >>> over = False
        >>> while not over:
        ...     action = session.act(observation)
        ...     observation, reward, terminated, over, info = env.step(action)
        >>> session.state.encoder.variance.shape  # what the filter believes: (episodes, layers, N)
        torch.Size([1, 1, 128])
        >>> session.reset()  # before the next episode
    """

    def __init__(self, model: PredictingModel, *, deterministic: bool = True) -> None:
        self.model = model
        self.deterministic = deterministic
        self.state: Any = None
        self._starts: Any = None

    def act(
        self, observation: Any, *, action_masks: ArrayLike | None = None,
        observed: ArrayLike | None = None,
    ) -> Any:  # fmt: skip
        """The action for this observation, in the environment's own terms.

        What else the environment says of this step, forbidden actions and missing readings, goes to
        `predict` as it is.
        """
        told = {"action_masks": action_masks, "observed": observed}
        predict: Callable[..., tuple[Any, Any]] = self.model.predict
        action, self.state = predict(
            observation,
            state=self.state,
            episode_start=self._starts,
            deterministic=self.deterministic,
            **{name: x for name, x in told.items() if x is not None},
        )
        self._starts = None
        return action

    def reset(self, rows: ArrayLike | None = None) -> None:
        """Forget the episode; with a bool mask `rows` (n,), only those of a batch that ended."""
        if rows is None:
            self.state = self._starts = None
        elif self.state is not None:
            starts = np.asarray(rows, dtype=np.bool_)
            self._starts = starts if self._starts is None else self._starts | starts

    __call__ = act
