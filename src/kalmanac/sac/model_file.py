"""The model file: one .safetensors file, tensors beside JSON metadata, no pickle anywhere.

A document is a tree of dictionaries, lists, tuples, plain values and tensors. Its tensors go into
the file under their place in the tree; the rest goes into the header as JSON, with a mark where
each tensor belongs. The file appears under its name only when it is complete.
"""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

FORMAT = "kalmanac-model"
VERSION = 1


def write_model(path: str | os.PathLike[str], document: dict[str, Any]) -> Path:
    """Write `document`; without a suffix, the name gets `.safetensors`. Returns the path."""
    target = _named(path)
    tensors: dict[str, Tensor] = {}
    body = json.dumps(_to_json(document, "", tensors), allow_nan=False)
    header = {"format": FORMAT, "version": str(VERSION), "document": body}
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        save_file(tensors, partial, metadata=header)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return target


def read_model(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The document in a model file, its tensors on the CPU."""
    source = Path(path) if Path(path).exists() else _named(path)
    if not source.exists():
        raise FileNotFoundError(f"path: got {os.fspath(path)!r}, expected an existing model file")
    try:
        with safe_open(source, framework="pt") as file:
            header = file.metadata() or {}
            if header.get("format") != FORMAT:
                raise ValueError(f"path: got {source}, expected a file written by `save`")
            if header["version"] != str(VERSION):
                raise ValueError(
                    f"path: got {source} of format version {header['version']}, expected {VERSION}"
                )
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"path: got {source}, expected a .safetensors file ({error})") from None
    document = _from_json(json.loads(header["document"]), tensors)
    assert isinstance(document, dict)
    return document


def _named(path: str | os.PathLike[str]) -> Path:
    target = Path(path)
    return target if target.suffix else target.with_suffix(".safetensors")


def _to_json(tree: Any, place: str, tensors: dict[str, Tensor]) -> Any:
    """`tree` for JSON: {"tensor": name}, {"map": pairs} (keys need not be text) and {"tuple": …}.

    Plain values and lists stand as they are.
    """
    if isinstance(tree, Tensor):
        tensors[place] = tree.detach().cpu().clone().contiguous()
        return {"tensor": place}
    if isinstance(tree, dict):
        return {"map": [[k, _to_json(v, f"{place}/{k}", tensors)] for k, v in tree.items()]}
    if isinstance(tree, list | tuple):
        items = [_to_json(item, f"{place}/{i}", tensors) for i, item in enumerate(tree)]
        return items if isinstance(tree, list) else {"tuple": items}
    if isinstance(tree, np.generic):
        return tree.item()
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    raise TypeError(f"{place}: got {type(tree).__name__}, expected tensors and plain values")


def _from_json(tree: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(tree, list):
        return [_from_json(item, tensors) for item in tree]
    if not isinstance(tree, dict):
        return tree
    ((kind, value),) = tree.items()
    if kind == "tensor":
        return tensors[value]
    if kind == "map":
        return {key: _from_json(item, tensors) for key, item in value}
    return tuple(_from_json(item, tensors) for item in value)
