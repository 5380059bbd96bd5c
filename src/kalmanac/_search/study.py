"""A study of Optuna's, kept in a folder, whose trials are runs. The only room that names Optuna."""

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kalmanac._files.durable import make_folder, refuse_link
from kalmanac._files.run_reader import read_summary
from kalmanac._lab.experiment import Experiment
from kalmanac._search.space import Varied, describe, merged
from kalmanac._suites.registry import default_folder
from kalmanac._sweep.executor import Done
from kalmanac._sweep.plan import Planned, Work
from kalmanac._sweep.work import ELSEWHERE

FOLDER, JOURNAL = ".search", "study.journal"
WHAT, UNDER_WAY = "what", "under way"  # what is written beside a study and a trial


class Study:
    """Proposes works and learns from their results; a search that was stopped goes on.

    Every trial is as many runs as there are seeds, in folders below `root` as any other run. The
    journal stands in `root`/.search.

    Args:
        which: "best" or "last": the evaluation that counts, as a mean over seeds.
    """

    def __init__(
        self, root: Path, experiment: Experiment, space: Sequence[Varied], *, seeds: int,
        which: str, seed: int,
    ) -> None:  # fmt: skip
        try:
            import optuna
        except ModuleNotFoundError:
            raise ModuleNotFoundError(
                "optuna is not installed: pip install 'kalmanac[search]'"
            ) from None
        from optuna.storages.journal import JournalFileBackend

        self._optuna = optuna
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.root, self.experiment, self.space = root.resolve(), experiment, space
        self.seeds, self.which = seeds, which
        for file in (self.root / FOLDER, self.root / FOLDER / JOURNAL):
            refuse_link(file)
        make_folder(self.root / FOLDER)
        journal = JournalFileBackend(str(self.root / FOLDER / JOURNAL))
        storage = optuna.storages.JournalStorage(journal)
        self.study = optuna.create_study(
            storage=storage, study_name="search", direction="maximize", load_if_exists=True
        )
        what = f"{describe(space, experiment)} {seeds} {which}"
        if self.study.user_attrs.setdefault(WHAT, what) != what:
            raise ValueError(
                f"folder: got {root}, in which another search is, expected a folder of its own"
            )
        self.study.set_user_attr(WHAT, what)
        self._take_up()
        # new proposals after a restart, not those of the first start again
        begun = len(self.study.trials)
        with warnings.catch_warnings(category=optuna.exceptions.ExperimentalWarning):
            warnings.simplefilter("ignore")  # about constant_liar: trials under way count as bad
            self.study.sampler = optuna.samplers.TPESampler(seed=seed + begun, constant_liar=True)
        self._asked: dict[str, Any] = {}  # hash of a work's first run → trial

    @property
    def done(self) -> int:
        """Trials that have a value, or have failed for good."""
        return sum(trial.state.is_finished() and not _stopped(trial) for trial in self.study.trials)

    def works(self, trials: int) -> Iterator[Work]:
        """New trials until there are so many, each asked for when a worker is free."""
        while self.done + len(self._asked) < trials:
            trial = self.study.ask(self._distributions())
            work = self._work(trial.params)
            its = work[0].experiment.hash
            if its in self._asked:  # the same values twice at once: the run cannot be shared
                self.study.tell(trial, state=self._optuna.trial.TrialState.PRUNED)
                continue
            trial.set_user_attr(UNDER_WAY, True)
            self._asked[its] = trial
            yield work

    def learn(self, done: Done) -> None:
        """Tell the result; a trial that was interrupted is asked for again by the next search."""
        trial = self._asked.pop(done.work[0].experiment.hash)
        statuses = {ended.status for ended in done.ended}
        values = [self._value(planned) for planned in done.work]
        trial.set_user_attr(UNDER_WAY, bool(statuses & {"interrupted", ELSEWHERE}))
        if statuses == {"finished"} and all(value is not None for value in values):
            self.study.tell(trial, float(np.mean([x for x in values if x is not None])))
        else:
            self.study.tell(trial, state=self._optuna.trial.TrialState.FAIL)

    def best(self) -> tuple[float, dict[str, Any], list[Path]] | None:
        """Value, settings and run folders of the best trial; None before the first has ended."""
        finished = [t for t in self.study.trials if t.value is not None]
        if not finished:
            return None
        top = max(finished, key=lambda trial: trial.value)
        return top.value, top.params, [one.folder for one in self._work(top.params)]

    def _take_up(self) -> None:
        """What was under way when a search ended is proposed again, and goes on in its folders."""
        state = self._optuna.trial.TrialState
        known = [t.params for t in self.study.trials if t.state in (state.COMPLETE, state.WAITING)]
        for trial in self.study.trials:
            if trial.state == state.RUNNING:
                self.study.tell(trial.number, state=state.FAIL)
        for trial in self.study.trials:
            if _stopped(trial) and trial.params not in known:
                self.study.enqueue_trial(trial.params)
                known.append(trial.params)

    def _distributions(self) -> dict[str, Any]:
        make = self._optuna.distributions
        found: dict[str, Any] = {}
        for one in self.space:
            if one.choices:
                values = tuple(int(x) if one.whole else x for x in one.choices)
                found[one.name] = make.CategoricalDistribution(values)
            elif one.whole:
                found[one.name] = make.IntDistribution(int(one.low), int(one.high), log=one.log)
            else:
                found[one.name] = make.FloatDistribution(one.low, one.high, log=one.log)
        return found

    def _work(self, values: dict[str, Any]) -> Work:
        experiment = merged(self.experiment, self.space, values)
        first = experiment.seed
        runs = [experiment.changed({"seed": first + i}) for i in range(self.seeds)]
        return tuple(
            Planned(run, default_folder(run.env, run, self.root), (), ("search",)) for run in runs
        )

    def _value(self, planned: Planned) -> float | None:
        place = f"eval/{planned.experiment.evaluations[0]}/normalized"
        return (read_summary(planned.folder).get(self.which) or {}).get(place)


def _stopped(trial: Any) -> bool:
    return bool(trial.user_attrs.get(UNDER_WAY))
