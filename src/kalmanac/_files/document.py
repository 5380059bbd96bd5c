"""Documents as files: tensors beside JSON in the format of safetensors, no pickle anywhere.

A document is a tree of dictionaries, lists, tuples, plain values, arrays and tensors. Its tensors
go into the file under their place in the tree; the rest goes into the header as JSON, with a mark
where each tensor belongs. The header also names the kind of document, its version, and a SHA-256
over every byte of the file, its own 64 digits taken as zeros. Equal documents give equal bytes.
"""

import hashlib
import json
import math
import struct
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

# what is raised where a document is not as its reader takes it to be
MALFORMED = (
    ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError,
)  # fmt: skip
_ZEROS = "0" * 64


class BadFileError(ValueError):
    """A file that is damaged, foreign, or of a version that cannot be read.

    Examples:
        >>> from pathlib import Path
        >>> from kalmanac import BadFileError, RecurrentSAC
        >>> written = Path("cut.safetensors").write_bytes(b"half a model")
        >>> try:
        ...     RecurrentSAC.load("cut.safetensors")
        ... except BadFileError as error:
        ...     print(error)
        path: got cut.safetensors, ...
    """


class Kind(NamedTuple):
    """What a file holds, and the version of its format."""

    name: str
    version: int
    writer: str  # what writes such files, for error messages
    unsigned: int = 0  # the older version that is the same but for the checksum; 0: none is


def encode(document: dict[str, Any], kind: Kind) -> bytes:
    """The file of a document."""
    tensors: dict[str, Tensor] = {}
    body = json.dumps(_to_json(document, "", tensors), allow_nan=False)
    metadata = {
        "format": kind.name, "version": str(kind.version), "sha256": _ZEROS, "document": body
    }  # fmt: skip
    plain = save(tensors)
    (length,) = struct.unpack_from("<Q", plain)
    # safetensors writes metadata in any order; this header has one
    header = {"__metadata__": metadata} | json.loads(plain[8 : 8 + length])
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    content = struct.pack("<Q", len(text)) + text + plain[8 + length :]
    return content.replace(_ZEROS.encode(), digest_of(content).encode(), 1)


def decode(content: bytes, kind: Kind, source: str) -> dict[str, Any]:
    """The document in a file, its tensors on the CPU; BadFileError for anything else."""
    metadata = _metadata(content, source)
    if metadata.get("format") != kind.name:
        raise BadFileError(f"path: got {source}, expected a file written by {kind.writer}")
    version = metadata.get("version")
    if version == str(kind.version):
        _check_digest(content, metadata.get("sha256", ""), source)
    elif not kind.unsigned or version != str(kind.unsigned) or "sha256" in metadata:
        raise BadFileError(
            f"path: got {source} of format version {version}, expected {kind.version}"
        )
    try:
        document = _from_json(json.loads(metadata["document"]), load(content))
    except (SafetensorError, *MALFORMED) as error:
        raise malformed(source, error) from None
    if not isinstance(document, dict):
        raise BadFileError(f"path: got {source}, which is malformed (no mapping)")
    return document


def malformed(source: str, error: Exception) -> BadFileError:
    """The one error for a whole file whose content makes no sense: what was raised, in short."""
    words = " ".join(repr(error).split())[:200]
    return BadFileError(f"path: got {source}, which is malformed ({words})")


def digest_of(content: bytes) -> str:
    """SHA-256 in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def _check_digest(content: bytes, stated: str, source: str) -> None:
    stated = stated if stated.isascii() else ""
    place = content.find(b'"sha256": "' + stated.encode() + b'"') + len('"sha256": "')
    blank = content[:place] + _ZEROS.encode() + content[place + len(_ZEROS) :]
    if digest_of(blank) != stated:
        raise BadFileError(f"path: got {source}, which is damaged: its checksum does not hold")


def _metadata(content: bytes, source: str) -> dict[str, str]:
    """The header's own part. Nothing in it is believed yet."""
    (length,) = struct.unpack_from("<Q", content) if len(content) >= 8 else (0,)
    try:
        if not 0 < length <= len(content) - 8:
            raise ValueError(f"{len(content)} bytes")
        header = json.loads(content[8 : 8 + length])
    except (ValueError, RecursionError) as error:
        raise BadFileError(
            f"path: got {source}, expected a whole .safetensors file ({error})"
        ) from None
    metadata = header.get("__metadata__", {}) if isinstance(header, dict) else {}
    if not isinstance(metadata, dict) or not all(isinstance(x, str) for x in metadata.values()):
        raise BadFileError(f"path: got {source}, expected a whole .safetensors file (no texts)")
    return metadata


def _to_json(tree: Any, place: str, tensors: dict[str, Tensor]) -> Any:
    """`tree` for JSON; plain values and lists stand as they are, others as {kind: value}.

    {"tensor": name}, {"array": name}, {"scalar": name} (NumPy's), {"map": pairs} (keys may be
    numbers), {"tuple": …}, and {"float": word} for the numbers that JSON does not know.
    """
    name = f"{len(tensors)}:{place}"  # places may look alike: {"a": {"b": …}} and {"a/b": …}
    if isinstance(tree, Tensor):
        tensors[name] = tree.detach().cpu().clone().contiguous()
        return {"tensor": name}
    if isinstance(tree, np.ndarray):
        if tree.dtype.kind not in "biuf":
            raise TypeError(f"{place}: got an array of {tree.dtype}, expected numbers")
        tensors[name] = torch.from_numpy(np.array(tree, order="C"))
        return {"array": name}
    if isinstance(tree, np.generic) and tree.dtype.kind in "biuf":
        tensors[name] = torch.from_numpy(np.asarray(tree))
        return {"scalar": name}
    if isinstance(tree, dict):
        for key in tree:
            if not (key is None or isinstance(key, bool | int | float | str)):
                raise TypeError(f"{place}: got the key {key!r}, expected a word or a number")
        return {"map": [[k, _to_json(v, f"{place}/{k}", tensors)] for k, v in tree.items()]}
    if isinstance(tree, list | tuple):
        items = [_to_json(item, f"{place}/{i}", tensors) for i, item in enumerate(tree)]
        return items if isinstance(tree, list) else {"tuple": items}
    if isinstance(tree, float) and not math.isfinite(tree):
        return {"float": repr(tree)}
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    raise TypeError(
        f"{place}: got {type(tree).__name__}, expected arrays, tensors and plain values"
    )


def _from_json(tree: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(tree, list):
        return [_from_json(item, tensors) for item in tree]
    if not isinstance(tree, dict):
        return tree
    ((kind, value),) = tree.items()
    if kind == "map":
        return {key: _from_json(item, tensors) for key, item in value}
    if kind == "tuple":
        return tuple(_from_json(item, tensors) for item in value)
    if kind == "float":
        return float(value)
    if kind == "array":
        return tensors[value].numpy()
    if kind == "scalar":
        return tensors[value].numpy()[()]
    if kind == "tensor":
        return tensors[value]
    raise ValueError(f"mark {kind!r}")
