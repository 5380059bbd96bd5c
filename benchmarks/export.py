"""Exported agents beside `session.act`: the same actions, and the time of a step.

    python benchmarks/export.py [--quick] [--out results/export.json]

Every encoder is trained for a few updates on observations drawn from a space, exported, and played
beside the model it came from for 500 steps of three episodes at once, which begin anew now and
then. Each side carries its own memory. Times are of the processor for one step of one episode on
one core, in the sizes of the paper, and samples of all three take turns. Where discrete actions
differ, or anything else by more than 1e-5 of its magnitude, the exit status is 1.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from kalmanac import ENCODERS, RecurrentSAC
from record import on_record, save
from report import print_table

ROWS = 3  # episodes at once
LIMIT = 1e-5
NOTES = (
    "parity: largest difference of actions and memory between onnxruntime and session.act, over "
    "500 steps of three episodes, relative to the magnitude where that is above 1",
    "discrete actions are equal at every step",
    "latency: microseconds of processor time a step of one episode, one thread, medians",
)
Arrays = dict[str, NDArray[Any]]
NUMBERS = spaces.Box(-np.inf, np.inf, (4,), np.float32)


class Drawn(gymnasium.Env[Any, Any]):
    """Observations, masks and missing readings drawn without end; episodes of 20 steps."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}  # type: ignore[misc]

    def __init__(
        self, observation: gymnasium.Space[Any], action: gymnasium.Space[Any], *told: str
    ) -> None:
        self.observation_space, self.action_space, self.told = observation, action, told
        self._time = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Draw the first observation."""
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self._time = 0
        return self.observation_space.sample(), self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Draw another one."""
        self._time += 1
        reward = float(self.np_random.standard_normal())
        return self.observation_space.sample(), reward, False, self._time >= 20, self._info()

    def _info(self) -> dict[str, Any]:
        info: dict[str, Any] = {}
        if "observed" in self.told:
            info["observed"] = bool(self.np_random.random() < 0.6)
        if "action_mask" in self.told:
            mask = self.np_random.random(int(self.action_space.n)) < 0.5  # type: ignore[attr-defined]
            mask[self.np_random.integers(len(mask))] = True
            info["action_mask"] = mask
        return info


def _discrete() -> Drawn:
    parts = {"code": spaces.MultiDiscrete([2, 3], start=[1, 0]), "flags": spaces.MultiBinary(2)}
    return Drawn(spaces.Dict({**parts, "pose": NUMBERS}), spaces.MultiDiscrete([2, 3]))


def _continuous() -> Drawn:
    sides = np.array([-2.0, 0.0], np.float32), np.array([4.0, 0.5], np.float32)
    return Drawn(NUMBERS, spaces.Box(*sides))


def _image() -> Drawn:
    camera = spaces.Box(0, 255, (24, 24, 3), np.uint8)
    return Drawn(spaces.Dict({"camera": camera, "pose": NUMBERS}), spaces.Discrete(4, start=-1))


KINDS: dict[str, Callable[[], Drawn]] = {
    "discrete": _discrete,
    "continuous": _continuous,
    "masks": lambda: Drawn(NUMBERS, spaces.Discrete(5), "action_mask"),
    "missing": lambda: Drawn(NUMBERS, spaces.Box(-1, 1, (2,), np.float32), "observed"),
    "image": _image,
}


def trained(encoder: str, kind: str, steps: int = 48) -> RecurrentSAC:
    """An agent behind its first updates, with a normalizer."""
    model = RecurrentSAC(
        encoder, KINDS[kind](), learning_starts=steps - 16, batch_size=4, context_length=16,
        normalize_observations=True, seed=0, device="cpu",
    )  # fmt: skip
    return model.learn(steps)


class Onnx:
    """An exported step in onnxruntime on one thread, which carries its memory."""

    def __init__(self, file: Path, rows: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            file, options, providers=["CPUExecutionProvider"]
        )
        self._names = [x.name for x in self._session.get_outputs()]
        told = self._session.get_modelmeta().custom_metadata_map
        inputs = json.loads(told["inputs"])
        self.metadata = told
        self.memory = _empty(inputs, rows)

    def step(self, inputs: Mapping[str, NDArray[Any]], start: NDArray[np.bool_]) -> Arrays:
        """One step; what the file gives by name."""
        found = self._session.run(None, {**inputs, **self.memory, "episode_start": start})
        outputs = dict(zip(self._names, found, strict=True))
        self.memory = _carried(outputs)
        return outputs


class Pt2:
    """The same in PyTorch."""

    def __init__(self, file: Path, rows: int) -> None:
        extra = {"metadata.json": ""}
        self._step = torch.export.load(file, extra_files=extra).module()
        self.metadata = json.loads(extra["metadata.json"])
        self.memory = _empty(self.metadata["inputs"], rows)

    @torch.no_grad()
    def step(self, inputs: Mapping[str, NDArray[Any]], start: NDArray[np.bool_]) -> Arrays:
        """One step; what the file gives by name."""
        arrays = {**inputs, **self.memory, "episode_start": start}
        found = self._step({name: torch.from_numpy(x) for name, x in arrays.items()})
        outputs = {name: x.numpy() for name, x in found.items()}
        self.memory = _carried(outputs)
        return outputs


def _empty(inputs: Sequence[Mapping[str, Any]], rows: int) -> Arrays:
    return {
        x["name"]: np.zeros((rows, *x["shape"]), x["dtype"])
        for x in inputs
        if x["name"].startswith("h_in_")
    }


def _carried(outputs: Mapping[str, NDArray[Any]]) -> Arrays:
    return {
        name.replace("h_out_", "h_in_"): x
        for name, x in outputs.items()
        if name.startswith("h_out_")
    }


def drawn_steps(kind: str, steps: int, rows: int) -> list[tuple[Any, dict[str, Any], Arrays]]:
    """Observations of `rows` episodes, what is said beside them, both as the file takes them."""
    env, found = KINDS[kind](), []
    env.reset(seed=1)
    for _ in range(steps):
        drawn = [env.step(None) for _ in range(rows)]
        seen = [step[0] for step in drawn]
        told = {key: np.array([step[4][key] for step in drawn]) for key in env.told}
        if isinstance(env.observation_space, spaces.Dict):
            batch: Any = {key: np.stack([x[key] for x in seen]) for key in seen[0]}
            inputs = {f"obs_{key}": x for key, x in batch.items()}
        else:
            batch = np.stack(seen)
            inputs = {"obs": batch}
        said = {{"action_mask": "action_masks"}.get(key, key): x for key, x in told.items()}
        found.append((batch, said, inputs | told))
    return found


def parity(model: RecurrentSAC, kind: str, player: Onnx | Pt2, steps: int = 500) -> dict[str, Any]:
    """Play side by side; the largest differences, and how many discrete actions differ."""
    session, rng = model.session(), np.random.default_rng(0)
    start, worst, wrong = np.ones(ROWS, np.bool_), {"actions": 0.0, "memory": 0.0}, 0
    for batch, said, inputs in drawn_steps(kind, steps, ROWS):
        expected = session.act(batch, **said)
        outputs = player.step(inputs, start)
        actions = outputs["actions"]
        assert (actions.dtype, actions.shape) == (expected.dtype, expected.shape)
        if np.issubdtype(expected.dtype, np.integer):
            wrong += int((actions != expected).sum())
        else:
            worst["actions"] = max(worst["actions"], _apart(actions, expected))
        state = session.state
        memory = {**getattr(state.encoder, "_asdict", dict)(), "previous_action": state[1]}
        for name, x in _carried(outputs).items():
            own = memory[name.removeprefix("h_in_")].numpy()
            worst["memory"] = max(worst["memory"], _apart(x, own))
        start = rng.random(ROWS) < 0.05
        session.reset(start)
    return {**worst, "different discrete actions": wrong}


def _apart(x: NDArray[Any], y: NDArray[Any]) -> float:
    scale = max(1.0, float(np.abs(y).max(initial=0.0)))
    return float(np.abs(x.astype(np.float64) - y).max(initial=0.0)) / scale


def latency(model: RecurrentSAC, files: Sequence[Path], steps: int, rounds: int) -> dict[str, Any]:
    """Microseconds a step of one episode of the kind `continuous`, in each way."""
    drawn = [(obs[0], inputs) for obs, _, inputs in drawn_steps("continuous", steps, 1)]
    session = model.session()
    onnx, pt2 = Onnx(files[0], 1), Pt2(files[1], 1)
    going = np.zeros(1, np.bool_)
    ways: dict[str, Callable[[Any, Arrays], Any]] = {
        "session.act": lambda obs, _: session.act(obs),
        "onnxruntime": lambda _, inputs: onnx.step(inputs, going),
        "torch": lambda _, inputs: pt2.step(inputs, going),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, step in ways.items():
            began = time.process_time()
            for obs, inputs in drawn:
                step(obs, inputs)
            if number:  # the first warms up
                times[name].append((time.process_time() - began) / steps * 1e6)
    return {name: round(statistics.median(found), 1) for name, found in times.items()}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure every encoder, print the tables, write JSON; 1 if an export does otherwise."""
    words = list(sys.argv[1:] if argv is None else argv)
    options = _options(words)
    torch.set_num_threads(1)
    steps, rounds = (40, 1) if options.quick else (500, options.rounds)
    table: dict[str, dict[str, Any]] = {}
    times: dict[str, dict[str, Any]] = {}
    facts = on_record("benchmarks/export.py", words)
    facts["versions"] |= {name: version(name) for name in ("onnxscript", "onnxruntime")}
    for encoder in options.encoders:
        table[encoder], times[encoder] = measure(encoder, options.kinds, steps, rounds)
        if options.out is not None:  # each row as soon as it is there
            save({**facts, "notes": NOTES, "parity": table, "latency": times}, options.out)
    report(table, times)
    if options.out is not None:
        print(f"written: {options.out.name}")
    rows = [found for kinds in table.values() for found in kinds.values()]
    wrong = any(row["different discrete actions"] for row in rows)
    return int(wrong or any(max(row["actions"], row["memory"]) > LIMIT for row in rows))


def measure(
    encoder: str, kinds: Sequence[str], steps: int, rounds: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parity by kind; times, where `continuous` is among the kinds."""
    row: dict[str, Any] = {}
    times: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind in kinds:
            model = trained(encoder, kind)
            file = model.export(Path(folder, "agent.onnx"))
            row[kind] = parity(model, kind, Onnx(file, ROWS), steps)
            if kind == "continuous":
                other = model.export(Path(folder, "agent.pt2"))
                times = latency(model, [file, other], 100, rounds)
    return row, times


def report(table: Mapping[str, Any], times: Mapping[str, Any]) -> None:
    """Both tables."""
    kinds = list(next(iter(table.values())))
    print("Largest difference from session.act (actions, memory); * a discrete action differs\n")
    body = [[name, *(_cell(found[kind]) for kind in kinds)] for name, found in table.items()]
    print_table(["", *kinds], body)
    if all(times.values()):
        print("\nMicroseconds a step, one episode, one core\n")
        ways = list(next(iter(times.values())))
        cells = [[name, *(f"{found[way]:.0f}" for way in ways)] for name, found in times.items()]
        print_table(["", *ways], cells)


def _cell(found: Mapping[str, Any]) -> str:
    worst = max(found["actions"], found["memory"])
    return f"{worst:.1e}" + "*" * bool(found["different discrete actions"])


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--encoders", nargs="+", default=list(ENCODERS), choices=list(ENCODERS))
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--rounds", type=int, default=7, help="samples of each time")
    parser.add_argument("--quick", action="store_true", help="few steps and repetitions")
    parser.add_argument("--out", type=Path, help="also write the numbers as JSON")
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
