"""The exported step as one file: ONNX for any runtime, or PyTorch's own `.pt2`."""

import hashlib
import io
import json
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from kalmanac._envs.extras import MissingExtraError
from kalmanac._files.durable import write_whole
from kalmanac._sac.exported_step import ExportedStep, Tensors
from kalmanac._version import __version__

SUFFIXES = {"onnx": ".onnx", "torch": ".pt2"}
OPSET = 18
RESET = (
    "Where episode_start is true, the memory is emptied before the step: h_in is not read, and "
    "zeros will do. Else h_in_NAME is h_out_NAME of the step before."
)


def export_step(step: ExportedStep, path: str | os.PathLike[str], **about: Any) -> Path:
    """Write `step`, in the format that the path's suffix says, and return the path.

    The file's metadata are `about`, the spaces, inputs and outputs, the reset rule, the version,
    and a digest of all that was learned, which is the same in both formats.
    """
    target = Path(path)
    if target.suffix not in SUFFIXES.values():
        raise ValueError(f"path: got {target.name!r}, expected a name in .onnx or .pt2")
    for package in ("onnx", "onnxscript") if target.suffix == SUFFIXES["onnx"] else ():
        if find_spec(package) is None:
            raise MissingExtraError(f'{package} is not installed: pip install "kalmanac[export]"')
    inputs = step.example()
    with torch.no_grad():
        outputs = step(inputs)
    metadata = {
        "kalmanac": __version__,
        "spaces": step.problem.to_json(),
        "inputs": _described(inputs),
        "outputs": _described(outputs),
        "paths": {name: list(part.path) for name, part in step.parts.items()},
        "reset": RESET,
        "digest": digest(step),
        **about,
    }
    with _quietly():
        program = _program(step, inputs)
        if target.suffix == SUFFIXES["onnx"]:
            content = _onnx(program, list(inputs), list(outputs), metadata)
        else:
            content = _torch(program, metadata)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_whole(target, content)
    return target


def digest(step: ExportedStep) -> str:
    """SHA-256 of the weights, the normalizers and the environment's actions."""
    tensors = dict(step.state_dict())
    for normalizer in step.normalizers:
        kind, state = type(normalizer).__name__, normalizer.state_dict()
        tensors |= {f"{kind}.{name}": torch.as_tensor(x) for name, x in state.items()}
    found = hashlib.sha256()
    for name, x in sorted(tensors.items()):
        found.update(f"{name} {x.dtype} {list(x.shape)}\n".encode())
        found.update(x.contiguous().numpy().tobytes())
    return found.hexdigest()


def _program(step: ExportedStep, inputs: Tensors) -> torch.export.ExportedProgram:
    """PyTorch's graph of the step, for any number of rows."""
    batch = torch.export.Dim("batch")
    shapes = ({name: {0: batch} for name in inputs},)
    return torch.export.export(step, (inputs,), dynamic_shapes=shapes)


def _onnx(
    program: torch.export.ExportedProgram, inputs: list[str], outputs: list[str],
    metadata: dict[str, Any],
) -> bytes:  # fmt: skip
    translated = torch.onnx.export(
        program, dynamo=True, input_names=inputs, output_names=outputs, opset_version=OPSET,
        external_data=False, verbose=False,
    )  # fmt: skip
    assert translated is not None
    model = translated.model_proto
    del model.graph.value_info[:]  # shapes of what lies between, which runtimes find by themselves
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    for name, value in metadata.items():
        text = value if isinstance(value, str) else json.dumps(value)
        model.metadata_props.add(key=name, value=text)
    return model.SerializeToString()


def _torch(program: torch.export.ExportedProgram, metadata: dict[str, Any]) -> bytes:
    room = io.BytesIO()
    torch.export.save(program, room, extra_files={"metadata.json": json.dumps(metadata)})
    return room.getvalue()


def _described(tensors: Tensors) -> list[dict[str, Any]]:
    """Name, dtype and the shape of one row of each."""
    return [
        {"name": name, "dtype": str(x.dtype).removeprefix("torch."), "shape": list(x.shape[1:])}
        for name, x in tensors.items()
    ]


@contextmanager
def _quietly() -> Iterator[None]:
    """Without what PyTorch's exporters say about themselves."""
    log = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)
