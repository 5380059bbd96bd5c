"""The folder of a run's checkpoints: all of the run in one file, and the replay beside it."""

from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from kalmanac.checkpoint.document import MALFORMED, BadFileError, Kind, decode, encode, malformed
from kalmanac.checkpoint.segments import Chain, Segments
from kalmanac.disk import cut, make_folder, refuse_link, write_whole
from kalmanac.replay import Changes, Replay, books, rebuild
from kalmanac.run_reader import CHECKPOINTS, checkpoint_file, checkpoint_steps

CHECKPOINT = Kind("kalmanac-checkpoint", 1, "a run's checkpoints")
KEPT = 2


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
        self._keep(KEPT)

    def keep_last(self) -> None:
        """Nothing but the newest checkpoint, for a run that has ended."""
        self._keep(1)

    def _keep(self, most: int) -> None:
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
        found = decode(file.read_bytes(), CHECKPOINT, str(file))
        try:
            chain = Chain.read(found["chain"])
            if found["step"] != step or isinstance(found["step"], bool):
                raise ValueError(f"step {found['step']!r}")
            return Checkpoint(step, dict(found["run"]), chain, dict(found["books"]))
        except MALFORMED as error:
            raise malformed(str(file), error) from None

    def check(self, checkpoint: Checkpoint) -> None:
        """BadFileError unless all of its replay is there, unchanged."""
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
