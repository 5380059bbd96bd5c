"""The training loop, for one seed and for many, that advance vector step by vector step.

Seeds share nothing but the time of the machine: each has its own learner, replay, environments and
random generators, and computes what it would compute alone. On a GPU, the updates of all are
branches of one recorded graph, which costs little more than one of them.
"""

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from kalmanac._ops.graphed_call import can_record
from kalmanac._sac.callbacks import AnyCallbacks, Callbacks
from kalmanac._sac.config import Schedule, scheduled_rate
from kalmanac._sac.cuda_graph import GraphedUpdates
from kalmanac._sac.diagnostics import ValueCheck
from kalmanac._sac.learner import Metrics
from kalmanac._sac.policy import Asking
from kalmanac._sac.training import Training

if TYPE_CHECKING:
    from kalmanac._sac.recurrent_sac import RecurrentSAC

# called when a member has ended: its number, what it raised, whether all were interrupted
Left = Callable[[int, BaseException | None, bool], None]

ROUNDS = 8, 4, 2, 1  # of updates of all seeds in one graph: as many as are due, of these


class Member:
    """One seed's part in the loop: its moves, its callbacks, and when it is done.

    `ask` and `collect` return how many updates are to follow them.
    """

    def __init__(
        self, model: "RecurrentSAC", training: Training, total_timesteps: int,
        callback: AnyCallbacks, schedule: Schedule | None = None,
    ) -> None:  # fmt: skip
        self.model, self.training, self._schedule = model, training, schedule
        self.callbacks = Callbacks(callback)
        self._last = model.num_timesteps + total_timesteps
        self._overlap = training.settings.overlap
        self._stopped = False
        self.threads: int | None = None  # of PyTorch while it moves; None: as many as there are
        self._values = ValueCheck(
            bootstraps_truncated=training.collector.bootstrap_truncated,
            horizon=training.settings.entropy_horizon,
            scale=lambda: training.reward_factor,
        )
        if can_record(training.policy.device):  # a recorded update knows where the replay lies
            training.replay.reserve(total_timesteps)

    @property
    def unfinished(self) -> bool:
        """Whether there are steps to come, and no callback ended the training."""
        return not self._stopped and self.model.num_timesteps < self._last

    def begin(self) -> None:
        """Start the callbacks."""
        self._set_learning_rate()
        self.callbacks.on_start(self.model)

    def ask(self) -> int:
        """Let the policy begin to choose actions; return the updates to make before `collect`.

        With `overlap`, these are the ones that the vector steps so far call for, else none.
        """
        self.training.ask()
        return self.training.updates_due() if self._overlap else 0

    def collect(self) -> int:
        """Make one vector step; return the updates to make after it.

        With `overlap` there are none before the last step. All others are due before the next one.
        """
        collected = self.training.collect()
        self.model.num_timesteps += collected.transitions
        self._set_learning_rate()
        for episode in collected.episodes:
            self._values.on_episode(episode)
            self.callbacks.on_episode(self.model, episode)
        later = self._overlap and self.model.num_timesteps < self._last
        return 0 if later else self.training.updates_due()

    def updated(self, metrics: Metrics) -> None:
        """Count an update that was made, and tell the callbacks."""
        self.training.updates += 1
        self.model.num_updates += 1
        self._values.on_update(metrics)
        self.callbacks.on_update(self.model, metrics)

    def settle(self) -> None:
        """Tell the callbacks that the vector step and its updates are done."""
        self._stopped = not self.callbacks.on_step(self.model)

    def end(self) -> None:
        """End the callbacks."""
        self.callbacks.on_end(self.model)

    def _set_learning_rate(self) -> None:
        """A function of the steps alone, so that whoever goes on has the rate of that step."""
        if self._schedule is not None:
            remaining = max(1 - self.model.num_timesteps / max(self._last, 1), 0.0)
            rate = scheduled_rate(self._schedule, remaining)
            self.training.policy.learner.optimizer.learning_rate.fill_(rate)


class TrainingLoop:
    """Brings its members to their ends. One that fails is left behind, and the others go on.

    Whatever is raised is a failure of its member, SystemExit too; KeyboardInterrupt alone is meant
    for all of them. `failures` holds what members raised, by their number; `left` is called as each
    one ends. A member that has begun is ended, whatever happens.
    """

    def __init__(self, members: Sequence[Member], left: Left | None = None) -> None:
        self.members, self._left = list(members), left
        self.interrupted = False
        self.failures: dict[int, BaseException] = {}
        self._active: list[int] = []  # begun and not ended
        self._graphed_updates: tuple[list[int], GraphedUpdates] | None = None
        self._asking = Asking(carried=True)

    def run(self) -> None:
        """Bring all of them to their ends; KeyboardInterrupt ends all and is raised again."""
        for _ in self.steps():
            pass

    def steps(self) -> Generator[None, None, None]:
        """The same, with a pause after every vector step and its updates."""
        try:
            for i, member in enumerate(self.members):
                self._active.append(i)
                self._try([i], member.begin)
            self._leave_finished()
            while self._active and not self.interrupted:
                self._step()
                yield
                self._leave_finished()
        except KeyboardInterrupt:
            self.interrupted = True
        except GeneratorExit:  # the caller has seen enough
            raise
        except BaseException as error:
            for i in self._active:
                self.failures.setdefault(i, error)
            raise
        finally:
            for i in self._each():
                self._leave(i)
        if self.interrupted:
            raise KeyboardInterrupt

    def _step(self) -> None:
        """One vector step of each member, and the updates that are due before and after it.

        All policies are asked before the first answer is waited for.
        """
        self._ask_together()
        self._update({i: self._try([i], self.members[i].ask) or 0 for i in self._each()})
        self._update({i: self._try([i], self.members[i].collect) or 0 for i in self._each()})
        for i in self._each():
            self._try([i], self.members[i].settle)

    def _ask_together(self) -> None:
        """On a GPU, let all policies choose at once; one alone goes its own way."""
        trainings = [(i, self.members[i].training) for i in self._each()]
        if len(trainings) < 2 or not can_record(trainings[0][1].policy.device):
            return
        questions = {i: self._try([i], training.question) for i, training in trainings}
        asked = [i for i in self._each() if questions[i] is not None]
        pending = asked and self._try(asked, lambda: self._asking([questions[i] for i in asked]))
        for i, one in zip(asked, pending or [], strict=False):
            self.members[i].training.pending = one

    def _update(self, due: dict[int, int]) -> None:
        """So many updates of each of these members."""
        while waiting := [i for i in self._each() if due[i] > 0]:
            for i, metrics in self._updates(waiting, min(due[i] for i in waiting)):
                due[i] -= 1
                if i in self._active:
                    self._try([i], partial(self.members[i].updated, metrics))

    def _updates(self, which: list[int], due: int) -> list[tuple[int, Metrics]]:
        """One update of each of these members, or several, if so many are due."""
        on_gpu = can_record(self.members[which[0]].training.policy.device)
        if not on_gpu or len(which) == 1 or len(which) < len(self._active):
            # those that are ahead of the others, as where resets are no steps, go alone
            results = [(i, self._try([i], self.members[i].training.update)) for i in which]
            return [(i, metrics) for i, metrics in results if metrics is not None]
        return self._try(which, partial(self._updates_together, which, due)) or []

    def _updates_together(self, which: list[int], due: int) -> list[tuple[int, Metrics]]:
        trainings = [self.members[i].training for i in which]
        if self._graphed_updates is None or self._graphed_updates[0] != which:
            record = all(training.settings.graph for training in trainings)
            graphed = GraphedUpdates(trainings, trainings[0].policy.device, record=record)
            self._graphed_updates = (which, graphed)
        rounds = next(number for number in ROUNDS if number <= due)
        return list(zip(which * rounds, self._graphed_updates[1](rounds), strict=True))

    def _each(self) -> list[int]:
        return list(self._active)

    def _leave_finished(self) -> None:
        for i in self._each():
            if not self.members[i].unfinished:
                self._leave(i)

    def _leave(self, number: int) -> None:
        """End a member, whatever has happened to it."""
        self._active.remove(number)
        self._graphed_updates, self._asking = None, Asking(carried=True)  # they know this member
        try:
            self.members[number].end()
        except KeyboardInterrupt:
            self.interrupted = True  # and `steps` ends the others
        except BaseException as error:
            self.failures.setdefault(number, error)
        if self._left is not None:
            self._left(number, self.failures.get(number), self.interrupted)

    def _try(self, numbers: list[int], move: Callable[[], Any]) -> Any:
        """Make a move of these members; where it fails, all of them are out."""
        threads = self.members[numbers[0]].threads
        if threads is not None and threads != torch.get_num_threads():
            torch.set_num_threads(threads)
        try:
            return move()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            for i in numbers:
                self.failures.setdefault(i, error)
                self._leave(i)
            return None
