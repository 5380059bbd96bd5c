"""Checkpoints of a run: their folder, when they are written, and where a run goes on from them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from kalmanac._files.document import BadFileError, Kind, decode, encode
from kalmanac._files.durable import cut, make_folder, refuse_link, write_whole
from kalmanac._files.run_folder import FolderTakenError
from kalmanac._files.run_reader import CHECKPOINTS, checkpoint_file, checkpoint_steps, read_summary
from kalmanac._lab.experiment import Experiment
from kalmanac._lab.run_logger import RunLogger
from kalmanac._replay.buffer import Replay
from kalmanac._replay.journal import Changes, books, rebuild
from kalmanac._replay.replay_file import understood
from kalmanac._replay.segments import Chain, Segments
from kalmanac._sac.callbacks import Callback
from kalmanac._sac.recurrent_sac import RecurrentSAC

CHECKPOINT = Kind("kalmanac-checkpoint", 1, "a run's checkpoints")
KEPT = 2
LOGGER = "Recorder"  # the key of the logger's state in checkpoints, old ones among them


class Checkpoint(NamedTuple):
    """A run after so many steps: what its owner gave, and where its replay lies."""

    step: int
    run: dict[str, Any]
    chain: Chain
    books: dict[str, Tensor]


class CheckpointFolder:
    """Writes a run's checkpoints and keeps the last two, or reads one of them.

    A checkpoint appends what the replay has taken in since the last one, then appears under its
    name in one step. Its cost does not grow with the run.

    Args:
        run: the run's folder.
    """

    def __init__(self, run: Path) -> None:
        self.run = run
        self._segments = Segments(run / CHECKPOINTS)
        self._changes: Changes | None = None
        self._first: dict[int, int] = {}  # step → the first segment that its checkpoint needs

    def write(self, step: int, run: dict[str, Any], replay: Replay) -> None:
        """Keep the run and its replay as of `step`."""
        refuse_link(self.run / CHECKPOINTS)
        make_folder(self.run / CHECKPOINTS)
        if self._changes is None:
            self._changes = Changes(replay)
        state = books(replay)
        chain = self._segments.append(self._changes.take(), state["tail"].numpy())
        document = {"step": step, "run": run, "chain": chain._asdict(), "books": state}
        write_whole(checkpoint_file(self.run, step), encode(document, CHECKPOINT))
        self._first[step] = chain.first
        self.keep(KEPT)

    def keep(self, most: int) -> None:
        """Keep the newest checkpoints, so many at most."""
        steps = checkpoint_steps(self.run)
        for gone in steps[:-most]:
            checkpoint_file(self.run, gone).unlink(missing_ok=True)
        oldest = self._first.get(steps[-most:][0], 0) if steps else 0
        self._segments.drop(keep=range(oldest, self._segments.chain.last + 1))

    def read(self, step: int) -> Checkpoint:
        """The checkpoint of `step`; BadFileError where there is none, or a damaged one."""
        file = checkpoint_file(self.run, step)
        if not file.is_file():
            known = ", ".join(f"{x:,}" for x in checkpoint_steps(self.run)) or "none"
            raise BadFileError(f"step: got {step:,}, expected one with a checkpoint ({known})")
        document = decode(file.read_bytes(), CHECKPOINT, str(file))
        with understood(file):
            chain = Chain.read(document["chain"])
            if document["step"] != step or isinstance(document["step"], bool):
                raise ValueError(f"step {document['step']!r}")
            return Checkpoint(step, dict(document["run"]), chain, dict(document["books"]))

    def check(self, checkpoint: Checkpoint) -> None:
        """Raise BadFileError unless all of its replay is there, unchanged."""
        for _ in Segments(self.run / CHECKPOINTS, checkpoint.chain).read():
            pass

    def restore(self, checkpoint: Checkpoint, replay: Replay) -> None:
        """Fill an empty replay with what the checkpoint holds. Nothing on disk changes."""
        self._segments.chain = checkpoint.chain
        rebuild(replay, checkpoint.books, self._segments.read())

    def go_on(self, checkpoint: Checkpoint, replay: Replay) -> None:
        """Undo on disk what came after the checkpoint; the next one follows it."""
        for later in checkpoint_steps(self.run):
            if later > checkpoint.step:
                checkpoint_file(self.run, later).unlink()
        cut(self._segments.file(checkpoint.chain.last), checkpoint.chain.length)
        self._first = {checkpoint.step: checkpoint.chain.first}
        self._changes = Changes(replay)
        self._changes.skip()


class WayOn(NamedTuple):
    """What is run from now on, and the checkpoint that it goes on from."""

    experiment: Experiment
    step: int


def way_on(
    path: Path, experiment: Experiment, step: int | None = None, total_steps: int | None = None
) -> WayOn:
    """How the run in `path` goes on; ValueError where it cannot.

    Args:
        experiment: what its experiment.json says.
        step: of the checkpoint; None is the newest.
        total_steps: another end for the run; a finished one needs it.
    """
    finished = read_summary(path).get("status") == "finished"
    if finished and total_steps is None:
        raise FolderTakenError(
            f"run: got {path}, which is finished, expected one that was stopped, or more steps for "
            f"it: `kalmanac resume {path} --steps N` with N above {experiment.total_steps:,}"
        )
    if not (steps := checkpoint_steps(path)):
        reason = "is finished and kept no checkpoint" if finished else "has no checkpoint"
        raise ValueError(f"run: got {path}, which {reason}, expected one to go on from")
    step = steps[-1] if step is None else step
    if total_steps is not None:
        if total_steps <= step:
            raise ValueError(
                f"total_steps: got {total_steps:,}, expected more than the {step:,} of its "
                "checkpoint"
            )
        experiment = experiment.changed({"total_steps": total_steps})
    return WayOn(experiment, step)


def same_but_for_the_end(data: Any, experiment: Experiment) -> bool:
    """Whether data describe this experiment, wherever they end.

    Settings that came later have there what runs did before.
    """
    try:
        return Experiment.from_data(data | {"total_steps": experiment.total_steps}) == experiment
    except (TypeError, ValueError):
        return False


class Checkpointer(Callback):
    """Writes a checkpoint every `every` environment steps, at the start, and when it is stopped.

    With `keep`, also at the end of the run, from where it can be extended.

    It is the last of the callbacks, so that it keeps what the others have become. An agent whose
    weights or losses are not finite any more is not kept, and ends the training.

    Args:
        logger: writes the run's log.
        others: further callbacks with something to remember.
        stop: called after every step; True ends the training, with a checkpoint.
    """

    def __init__(
        self, logger: RunLogger, others: Sequence[Callback], *, every: int, keep: bool = True,
        stop: Callable[[], bool] | None = None,
    ) -> None:  # fmt: skip
        if every < 1:
            raise ValueError(f"checkpoint_every: got {every}, expected at least 1")
        self.logger = logger
        self.members: dict[str, Callback] = {LOGGER: logger}
        self.members |= {type(other).__name__: other for other in others}
        self.every, self.keep, self.stop = every, keep, stop
        self.stopped = False
        self.checkpoints = CheckpointFolder(logger.folder.path)
        self._kept = -1

    def restore(self, model: RecurrentSAC, checkpoint: Checkpoint) -> bool:
        """Bring a new model and the callbacks to where the checkpoint was written.

        Nothing on disk changes. Returns False where environments cannot save their state and
        will begin new episodes.
        """
        try:
            self.checkpoints.restore(checkpoint, model.replay)
            exact = model.load_checkpoint_state(checkpoint.run["model"])
            for key, member in self.members.items():
                if (state := checkpoint.run["callbacks"].get(key)) is not None:
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
        """Write the first checkpoint: from now on there is something to go on from."""
        if self._kept < 0:
            self._write(model)

    def on_step(self, model: RecurrentSAC) -> bool:
        """Write where it is time; False ends the training."""
        stop = self.stop is not None and self.stop()
        self.stopped = stop or not self.logger.whole  # an evaluation was stopped
        due = model.num_timesteps // self.every > self._kept // self.every
        ends = self.keep and model.num_timesteps >= self.logger.experiment.total_steps
        if (due or ends or self.stopped) and model.num_timesteps > self._kept:
            if not self.logger.sound(model):
                return False
            self._write(model)
        return not self.stopped

    def finish(self) -> None:
        """Keep the last checkpoint of a finished run, or none, as `keep` says."""
        if self.keep:
            self.checkpoints.keep(1)
        else:
            self.logger.folder.forget_checkpoints()

    def _write(self, model: RecurrentSAC) -> None:
        step = model.num_timesteps
        run = {
            "model": model.checkpoint_state(),
            "every": self.every,
            "experiment": self.logger.experiment.to_data(),
            "callbacks": {key: member.state_dict() for key, member in self.members.items()},
            "folder": self.logger.folder.marks(step),
        }
        self.checkpoints.write(step, run, model.replay)
        self._kept = step
