"""Evaluations beside the training: a process of its own plays them, with a copy of the model.

The copy decides what is found, not the time that it takes: rows of the log wait for the evaluation
before them, and a checkpoint holds the copy and those rows.
"""

import multiprocessing
import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from kalmanac._envs.workers import describe_exception
from kalmanac._lab.evaluation import EvaluationStoppedError, evaluate
from kalmanac._lab.experiment import Experiment
from kalmanac._lab.factory import check_environment, evaluation_environment, most_steps
from kalmanac._sac.environment_failure import EnvironmentFailedError
from kalmanac._sac.recurrent_sac import RecurrentSAC

LOOK = 0.1  # seconds between two looks at whether to stop


class EvaluationProcess:
    """Plays one evaluation at a time, on the CPU, on one thread.

    `asked` is the one under way, the bytes of its model file and its seeds. `rows` are not written
    yet, step and values: its own, without what it will find, and those behind it.
    """

    def __init__(self, experiment: Experiment) -> None:
        context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
        self._pipe, end = context.Pipe()
        arguments = (end, experiment.to_data())
        self._process = context.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        end.close()
        self._sending = ThreadPoolExecutor(1)
        self.asked: tuple[bytes, Sequence[int]] | None = None
        self.rows: list[tuple[int, dict[str, float]]] = []

    def ask(self, model: bytes, seeds: Sequence[int]) -> None:
        """Begin an evaluation, perhaps before the process has started; none may be unanswered."""
        self.asked = (model, seeds)
        self._sending.submit(self._pipe.send, self.asked)  # if it fails, `wait` says why

    def ready(self) -> bool:
        """Whether there is an answer."""
        return self._pipe.poll()

    def wait(self, stop: Callable[[], bool] | None) -> dict[str, float]:
        """Wait for the evaluation's numbers; EvaluationStoppedError where it is to stop before."""
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
        return answer

    def state_dict(self) -> dict[str, Any]:
        """What is asked and not answered, and the rows that wait."""
        model, seeds = self.asked or (b"", [])
        content = torch.frombuffer(bytearray(model), dtype=torch.uint8) if model else None
        return {"model": content, "seeds": seeds, "rows": self.rows}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Ask again what had no answer."""
        self.rows = [(step, dict(values)) for step, values in state["rows"]]
        if state["model"] is not None:
            self.ask(state["model"].numpy().tobytes(), state["seeds"])

    def close(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.join()
        self._sending.shutdown()
        self._pipe.close()


def _serve(pipe: Connection, data: Mapping[str, Any]) -> None:
    """Play what comes until nobody sends any more; a terminal's Ctrl-C is for the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    experiment, environments = Experiment.from_data(data), dict[str, Any]()
    while True:
        try:
            model, seeds = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(_played(experiment, environments, model, seeds))
        except Exception as error:
            pipe.send(f"an evaluation failed: {describe_exception(error)}")


def _played(
    experiment: Experiment, environments: dict[str, Any], content: bytes, seeds: Sequence[int]
) -> dict[str, float]:
    """Play every evaluation of the experiment; its numbers by the names of the log."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "model.safetensors")
        file.write_bytes(content)
        model = RecurrentSAC.load(file, device="cpu")
    scale, found = check_environment(experiment).normalizer, dict[str, float]()
    for name, seed in zip(experiment.evaluations, seeds, strict=True):
        if name not in environments:
            environments[name] = evaluation_environment(experiment, name)
        values = evaluate(
            model, environments[name], experiment.eval_episodes, seed=seed, return_scale=scale,
            max_steps=most_steps(experiment, name),
        )  # fmt: skip
        found |= {f"eval/{name}/{key}": value for key, value in values.items()}
    return found
