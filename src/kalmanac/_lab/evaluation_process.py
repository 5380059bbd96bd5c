"""Evaluations beside the training: a process of its own plays them, with a copy of the model.

The copy decides what it plays, not the time that it takes: rows of the log wait for the evaluation
before them, and a checkpoint holds what is still to be played, and those rows.
"""

import multiprocessing
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from kalmanac._envs.workers import describe_exception
from kalmanac._lab.evaluation import EvaluationStoppedError, evaluate
from kalmanac._lab.experiment import Experiment
from kalmanac._lab.factory import check_environment, evaluation_environment, most_steps
from kalmanac._sac.episode_streams import EnvironmentFailedError
from kalmanac._sac.recurrent_sac import RecurrentSAC

LOOK = 0.1  # seconds between two looks at whether to stop

Row = tuple[int, Mapping[str, float]]  # step and values


class EvaluationProcess:
    """Plays one evaluation at a time, on the CPU, on one thread.

    `asked` is the one under way: its step and seeds, the model file's bytes, what its row holds
    before the evaluation's numbers and behind them. `rows` are later ones, which wait for it.
    """

    def __init__(self, experiment: Experiment) -> None:
        context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
        self._pipe, end = context.Pipe()
        data = experiment.to_data()
        self._process = context.Process(target=_serve, args=(end, data), daemon=True)
        self._process.start()
        end.close()
        self.asked: dict[str, Any] | None = None
        self.rows: list[Row] = []

    def ask(self, model: bytes, **what: Any) -> None:
        """Begin an evaluation; the one before must have been answered."""
        content = torch.frombuffer(bytearray(model), dtype=torch.uint8)
        self.asked = {"model": content, **what}
        self._send()

    def ready(self) -> bool:
        """Whether there is an answer."""
        return self._pipe.poll()

    def answer(self, stop: Callable[[], bool] | None) -> tuple[dict[str, Any], dict[str, float]]:
        """Wait for the numbers; returns them behind what was asked.

        EvaluationStoppedError where it is to stop before: what was asked stays so.
        """
        assert self.asked is not None
        while not self._pipe.poll(LOOK):
            if stop is not None and stop():
                raise EvaluationStoppedError
        try:
            answer = self._pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            answer = f"the process of evaluations ended with status {self._process.exitcode}"
        if isinstance(answer, str):
            raise EnvironmentFailedError(answer)
        asked, self.asked = self.asked, None
        return asked, answer

    def unwritten(self) -> Iterator[Row]:
        """What the log lacks so far: the row of the evaluation, without it, and those behind it."""
        if self.asked is not None:
            yield self.asked["step"], {**self.asked["row"], **self.asked["behind"]}
        yield from self.rows

    def state_dict(self) -> dict[str, Any]:
        """What is asked and not answered, and the rows that wait."""
        return {"asked": self.asked, "rows": self.rows}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Ask again what had no answer."""
        self.asked, self.rows = state["asked"], [(step, row) for step, row in state["rows"]]
        if self.asked is not None:
            self._send()

    def close(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.join()
        self._pipe.close()

    def _send(self) -> None:
        assert self.asked is not None
        self._pipe.send((self.asked["model"].numpy().tobytes(), self.asked["seeds"]))


def _serve(pipe: Connection, data: Mapping[str, Any]) -> None:
    """Play what comes until nobody sends any more; a terminal's Ctrl-C is for the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    experiment = Experiment.from_data(data)
    environments: dict[str, Any] = {}
    while True:
        try:
            model, seeds = pipe.recv()
        except EOFError:
            return
        try:
            answer: dict[str, float] | str = _played(experiment, environments, model, seeds)
        except Exception as error:
            answer = f"an evaluation failed: {describe_exception(error)}"
        pipe.send(answer)


def _played(
    experiment: Experiment, environments: dict[str, Any], content: bytes, seeds: Sequence[int]
) -> dict[str, float]:
    """Play every evaluation of the experiment; its numbers by the names of the log."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "model.safetensors")
        file.write_bytes(content)
        model = RecurrentSAC.load(file, device="cpu")
    scale = check_environment(experiment).normaliser
    found: dict[str, float] = {}
    for name, seed in zip(experiment.evaluations, seeds, strict=True):
        if name not in environments:
            environments[name] = evaluation_environment(experiment, name)
        values = evaluate(
            model, environments[name], experiment.eval_episodes, seed=seed, return_scale=scale,
            max_steps=most_steps(experiment, name),
        )  # fmt: skip
        found |= {f"eval/{name}/{key}": value for key, value in values.items()}
    return found
