"""Checkpoints on the way: on a schedule, and before the run is stopped from outside."""

from collections.abc import Callable, Sequence

from kalmanac.checkpoint import BadFileError, Checkpoint, CheckpointFolder
from kalmanac.experiment.recording import Recorder
from kalmanac.sac import Callback, RecurrentSAC


class Keeper(Callback):
    """Writes a checkpoint every `every` environment steps, at the start, and when asked to stop.

    With `keep`, also at the end of the run, from where it can be extended.

    It is the last of the callbacks, so that it keeps what the others have become. An agent whose
    weights or losses are not finite any more is not kept, and ends the training.

    Args:
        recorder: writes the run's log.
        others: further callbacks with something to remember.
        stop: asked after every step; True ends the training, with a checkpoint.
    """

    def __init__(
        self, recorder: Recorder, others: Sequence[Callback], *, every: int, keep: bool = True,
        stop: Callable[[], bool] | None = None,
    ) -> None:  # fmt: skip
        if every < 1:
            raise ValueError(f"checkpoint_every: got {every}, expected at least 1")
        self.recorder, self.members = recorder, [recorder, *others]
        self.every, self.keep, self.stop = every, keep, stop
        self.stopped = False
        self.checkpoints = CheckpointFolder(recorder.folder.path)
        self._kept = -1

    def restore(self, model: RecurrentSAC, checkpoint: Checkpoint) -> bool:
        """Bring a new model and the callbacks to where the checkpoint was written.

        Nothing on disk changes. Returns False where environments could not tell their state and
        will begin new episodes.
        """
        try:
            self.checkpoints.restore(checkpoint, model.replay)
            exact = model.load_checkpoint_state(checkpoint.run["model"])
            for member in self.members:
                if (state := checkpoint.run["callbacks"].get(type(member).__name__)) is not None:
                    member.load_state_dict(state)
        except BadFileError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise BadFileError(
                f"checkpoint {checkpoint.step:,}: got one that does not fit this run ({error!r})"
            ) from error
        return exact

    def go_on(self, model: RecurrentSAC, checkpoint: Checkpoint) -> None:
        """Undo on disk what came after the checkpoint."""
        self.checkpoints.go_on(checkpoint, model.replay)
        self._kept = checkpoint.step

    def on_start(self, model: RecurrentSAC) -> None:
        """The first one: from now on there is something to go on from."""
        if self._kept < 0:
            self._write(model)

    def on_step(self, model: RecurrentSAC) -> bool:
        """Write where it is time; False ends the training."""
        asked = self.stop is not None and self.stop()
        self.stopped = asked or not self.recorder.whole  # an evaluation has heard it
        due = model.num_timesteps // self.every > self._kept // self.every
        ends = self.keep and model.num_timesteps >= self.recorder.experiment.total_steps
        if (due or ends or self.stopped) and model.num_timesteps > self._kept:
            if not self.recorder.sound(model):
                return False
            self._write(model)
        return not self.stopped

    def finish(self) -> None:
        """The run is finished: only its last checkpoint may be of use, and only if it is to be."""
        if self.keep:
            self.checkpoints.keep_last()
        else:
            self.recorder.folder.forget_checkpoints()

    def _write(self, model: RecurrentSAC) -> None:
        step = model.num_timesteps
        run = {
            "model": model.checkpoint_state(),
            "every": self.every,
            "experiment": self.recorder.experiment.to_data(),
            "callbacks": {type(member).__name__: member.state_dict() for member in self.members},
            "folder": self.recorder.folder.marks(step),
        }
        self.checkpoints.write(step, run, model.replay)
        self._kept = step
