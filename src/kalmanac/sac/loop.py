"""One training, cut into the moves that it is made of, so that several can go in lockstep."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kalmanac.agent import Metrics
from kalmanac.agent.capture import can_record
from kalmanac.sac.callbacks import Callback, Callbacks
from kalmanac.sac.training import Training
from kalmanac.sac.value_check import ValueCheck

if TYPE_CHECKING:
    from kalmanac.sac.recurrent_sac import RecurrentSAC


class TrainingLoop:
    """`begin`; while `unfinished`: `ask`, `collect`, `settle`; then `end`.

    `ask` and `collect` say how many updates are to follow them. `end` is called whatever happened,
    once `begin` was.
    """

    def __init__(
        self, model: "RecurrentSAC", training: Training, total_timesteps: int,
        callback: Callback | Iterable[Callback] | None,
    ) -> None:  # fmt: skip
        self.model, self.training = model, training
        self.callbacks = Callbacks(callback)
        self._last = model.num_timesteps + total_timesteps
        self._overlap = training.settings.overlap
        self._stopped = False
        self._values = ValueCheck(
            bootstraps_truncated=training.collector.bootstrap_truncated,
            scale=lambda: training.reward_factor,
        )
        if can_record(training.policy.device):  # a recorded update knows where the replay lies
            training.replay.reserve(total_timesteps)

    @property
    def unfinished(self) -> bool:
        """There are steps to come, and no callback ended the training."""
        return not self._stopped and self.model.num_timesteps < self._last

    def begin(self) -> None:
        """The callbacks start."""
        self.callbacks.on_start(self.model)

    def ask(self) -> int:
        """The policy begins to choose actions; returns the number of updates to make before
        `collect`: with `overlap`, those that the vector steps so far call for, else none."""
        self.training.ask()
        return self.training.updates_due() if self._overlap else 0

    def collect(self) -> int:
        """One vector step; returns the number of updates to make after it.

        With `overlap` that is none before the last step. All others are due before the next one.
        """
        collected = self.training.collect()
        self.model.num_timesteps += collected.transitions
        for episode in collected.episodes:
            self._values.on_episode(episode)
            self.callbacks.on_episode(self.model, episode)
        later = self._overlap and self.model.num_timesteps < self._last
        return 0 if later else self.training.updates_due()

    def updated(self, metrics: Metrics) -> None:
        """An update was made."""
        self.training.updates += 1
        self.model.num_updates += 1
        self._values.on_update(metrics)
        self.callbacks.on_update(self.model, metrics)

    def settle(self) -> None:
        """The vector step and its updates are done."""
        self._stopped = not self.callbacks.on_step(self.model)

    def end(self) -> None:
        """The callbacks end."""
        self.callbacks.on_end(self.model)
