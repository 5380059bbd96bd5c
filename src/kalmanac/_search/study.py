"""A study of Optuna's, kept in a folder, whose trials are runs. The only room that names Optuna.

A search varies numeric settings of an experiment, each in an interval.
"""

import dataclasses
import json
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

import numpy as np

from kalmanac._encoders.registry import encoder_settings
from kalmanac._files.durable import make_folder, refuse_link
from kalmanac._files.run_reader import read_summary
from kalmanac._lab.experiment import Experiment
from kalmanac._lab.factory import check_environment
from kalmanac._messages import expect_known
from kalmanac._settings import STILL_COUNTED
from kalmanac._suites.registry import default_folder
from kalmanac._sweep.plan import Planned, Work
from kalmanac._sweep.work import ELSEWHERE, Done

FOLDER, JOURNAL = ".search", "study.journal"
WHAT, UNDER_WAY = "what", "under way"  # what is written beside a study and a trial
HINT = "NAME=LOW:HIGH, NAME=LOW:HIGH:log or NAME=A,B,C"


@dataclass(frozen=True)
class Varied:
    """One setting: an interval, or a few values where there are `choices`."""

    name: str
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False
    choices: tuple[float, ...] = ()

    def changes(self, value: float | int) -> dict[str, Any]:
        """Return what `Experiment.changed` takes; NAME may be "encoder_settings.d_state"."""
        owner, dot, inner = self.name.partition(".")
        return {owner: {inner: value}} if dot else {self.name: value}


def read_space(words: Sequence[str], experiment: Experiment) -> list[Varied]:
    """Read the intervals that --vary names; ValueError in one line for what is none."""
    space = [_read(word, experiment) for word in words]
    if not space:
        raise ValueError(f"vary: got nothing, expected {HINT}")
    names = [varied.name for varied in space]
    if len(set(names)) < len(names):
        raise ValueError(f"vary: got {' '.join(names)}, expected each setting once")
    for varied in space:  # both ends make an experiment
        for value in varied.choices or (varied.low, varied.high):
            merged(experiment, [varied], {varied.name: value})
    return space


def merged(
    experiment: Experiment, space: Sequence[Varied], values: dict[str, float | int]
) -> Experiment:
    """Return the experiment with these values."""
    for varied in space:
        value = values[varied.name]
        number = int(value) if varied.whole else float(value)
        experiment = experiment.changed(varied.changes(number))
    return experiment


def describe(space: Sequence[Varied], experiment: Experiment) -> str:
    """Return a text that is the same for searches that can go on with each other."""
    search = {"space": [dataclasses.asdict(varied) for varied in space]}
    told = experiment.to_data() | STILL_COUNTED
    return json.dumps(search | {"experiment": told}, sort_keys=True)


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
                'optuna is not installed: pip install "kalmanac[search]"'
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
        self._running: dict[str, Any] = {}  # hash of a work's first run → trial

    @property
    def done(self) -> int:
        """Count trials that have a value, or have failed for good."""
        return sum(trial.state.is_finished() and not _stopped(trial) for trial in self.study.trials)

    def works(self, trials: int) -> Iterator[Work]:
        """Yield new trials until there are so many, each asked for when a worker is free."""
        while self.done + len(self._running) < trials:
            trial = self.study.ask(self._distributions())
            work = self._work(trial.params)
            run_hash = work[0].experiment.hash
            if run_hash in self._running:  # the same values twice at once: the run cannot be shared
                self.study.tell(trial, state=self._optuna.trial.TrialState.PRUNED)
                continue
            trial.set_user_attr(UNDER_WAY, True)
            self._running[run_hash] = trial
            yield work

    def learn(self, done: Done) -> None:
        """Tell the result; a trial that was interrupted is asked for again by the next search."""
        trial = self._running.pop(done.work[0].experiment.hash)
        statuses = {ended.status for ended in done.ended}
        values = [self._value(planned) for planned in done.work]
        trial.set_user_attr(UNDER_WAY, bool(statuses & {"interrupted", ELSEWHERE}))
        if statuses == {"finished"} and all(value is not None for value in values):
            self.study.tell(trial, float(np.mean([x for x in values if x is not None])))
        else:
            self.study.tell(trial, state=self._optuna.trial.TrialState.FAIL)

    def best(self) -> tuple[float, dict[str, Any], list[Path]] | None:
        """Return value, settings and folders of the best trial; None before one has ended."""
        finished = [t for t in self.study.trials if t.value is not None]
        if not finished:
            return None
        top = max(finished, key=lambda trial: trial.value)
        return top.value, top.params, [one.folder for one in self._work(top.params)]

    def _take_up(self) -> None:
        """Propose again what was under way when a search ended; it goes on in its folders."""
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
        distributions: dict[str, Any] = {}
        for one in self.space:
            if one.choices:
                values = tuple(int(x) if one.whole else x for x in one.choices)
                distributions[one.name] = make.CategoricalDistribution(values)
            elif one.whole:
                low, high = int(one.low), int(one.high)
                distributions[one.name] = make.IntDistribution(low, high, log=one.log)
            else:
                distributions[one.name] = make.FloatDistribution(one.low, one.high, log=one.log)
        return distributions

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


def _read(word: str, experiment: Experiment) -> Varied:
    name, equals, text = word.partition("=")
    name = name.replace("-", "_")
    if not equals or not text:
        raise ValueError(f"vary: got {word!r}, expected {HINT}")
    whole = _is_whole(name, experiment)
    if "," in text:
        return Varied(name, whole=whole, choices=tuple(_number(word, x) for x in text.split(",")))
    low, _, rest = text.partition(":")
    high, _, scale = rest.partition(":")
    if scale not in ("", "log"):
        raise ValueError(f"vary: got {word!r}, expected {HINT}")
    interval = Varied(name, _number(word, low), _number(word, high), scale == "log", whole)
    if interval.low >= interval.high:
        raise ValueError(f"vary: got {word!r}, expected a low end below the high one")
    if interval.log and interval.low <= 0:
        raise ValueError(f"vary: got {word!r}, expected a low end above 0 for log")
    return interval


def _number(word: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"vary: got {word!r}, expected {HINT}") from None


def _is_whole(name: str, experiment: Experiment) -> bool:
    """Say whether a setting takes whole numbers only; ValueError where it takes no numbers."""
    owner, dot, inner = name.partition(".")
    if dot and owner in ("encoder_settings", "env_settings"):
        known = (
            encoder_settings(experiment.encoder)
            if owner == "encoder_settings"
            else check_environment(experiment).settings or {}
        )
        if known:
            expect_known("vary", inner, known)
        return type(known.get(inner)) is int
    hints = get_type_hints(Experiment)
    numeric = {field.name: _kinds(hints[field.name]) for field in dataclasses.fields(Experiment)}
    expect_known("vary", name, [n for n, kinds in numeric.items() if kinds and n != "seed"])
    return float not in numeric[name]


def _kinds(hint: Any) -> set[type]:
    """int and float, as far as a field takes them."""
    options = {hint, *(get_args(hint) if not isinstance(hint, type(Literal["a"])) else ())}
    return options & {int, float}
