"""Several trainings that advance together, vector step by vector step.

They share nothing but the time of the machine: each has its own learner, replay, environments and
random generators, and computes what it would compute alone. On a GPU, the updates of all are
branches of one recorded graph, which costs little more than one of them.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from kalmanac.agent import Metrics
from kalmanac.agent.capture import Captured, can_record
from kalmanac.sac.loop import TrainingLoop

# told of a loop that has ended: its number, what it raised, whether all were interrupted
Left = Callable[[int, BaseException | None, bool], None]


class Lockstep:
    """Runs the loops to their ends. One that fails is left behind, and the others go on.

    Whatever is raised is a failure of its loop, SystemExit too; KeyboardInterrupt alone is meant
    for all of them. `failures` holds what the loops raised, by their number; `left` is called as
    each one ends.
    """

    def __init__(self, loops: Sequence[TrainingLoop], left: Left | None = None) -> None:
        self.loops, self._left = list(loops), left
        self.interrupted = False
        self.failures: dict[int, BaseException] = {}
        self._under_way: list[int] = []  # begun and not ended
        self._captured: tuple[list[int], Captured] | None = None

    def run(self) -> None:
        """All of them; KeyboardInterrupt ends all and is raised again."""
        try:
            for i, loop in enumerate(self.loops):
                self._under_way.append(i)
                self._try(i, loop.begin)
            self._leave_finished()
            while self._under_way and not self.interrupted:
                self._step()
                self._leave_finished()
        except KeyboardInterrupt:
            self.interrupted = True
        except BaseException as error:
            for i in self._under_way:
                self.failures.setdefault(i, error)
            raise
        finally:
            for i in self._each():
                self._leave(i)
        if self.interrupted:
            raise KeyboardInterrupt

    def _step(self) -> None:
        """One vector step of each loop, and the updates that are due before and after it.

        All policies are asked before the first answer is waited for.
        """
        self._update({i: self._try(i, self.loops[i].ask) or 0 for i in self._each()})
        self._update({i: self._try(i, self.loops[i].collect) or 0 for i in self._each()})
        for i in self._each():
            self._try(i, self.loops[i].settle)

    def _update(self, due: dict[int, int]) -> None:
        """So many updates of each of these loops."""
        for done in range(max(due.values(), default=0)):
            waiting = [i for i in self._each() if due[i] > done]
            for i, metrics in self._updates(waiting):
                self._try(i, partial(self.loops[i].updated, metrics))

    def _updates(self, which: list[int]) -> list[tuple[int, Metrics]]:
        """One update of each of these loops."""
        trainings = [self.loops[i].training for i in which]
        together = bool(which) and can_record(trainings[0].policy.device)
        if not together or len(which) < len(self._under_way):
            # those that are ahead of the others, as where resets are no steps, go alone
            found = [(i, self._try(i, self.loops[i].training.update)) for i in which]
            return [(i, metrics) for i, metrics in found if metrics is not None]
        try:
            if self._captured is None or self._captured[0] != which:
                record = all(training.settings.graph for training in trainings)
                captured = Captured(trainings, trainings[0].policy.device, record=record)
                self._captured = (which, captured)
            return list(zip(which, self._captured[1](), strict=True))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # nobody can tell whose it is
            for i in which:
                self.failures.setdefault(i, error)
                self._leave(i)
            return []

    def _each(self) -> list[int]:
        return list(self._under_way)

    def _leave_finished(self) -> None:
        for i in self._each():
            if not self.loops[i].unfinished:
                self._leave(i)

    def _leave(self, number: int) -> None:
        """End a loop, whatever has happened to it."""
        self._under_way.remove(number)
        try:
            self.loops[number].end()
        except KeyboardInterrupt:
            self.interrupted = True  # and `run` ends the others
        except BaseException as error:
            self.failures.setdefault(number, error)
        if self._left is not None:
            self._left(number, self.failures.get(number), self.interrupted)

    def _try(self, number: int, move: Callable[[], Any]) -> Any:
        """Make a move of a loop; where it fails, the loop is out."""
        try:
            return move()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self.failures.setdefault(number, error)
            self._leave(number)
            return None
