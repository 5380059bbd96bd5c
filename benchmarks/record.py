"""What every result file says of its making, and how it is written."""

import json
import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kalmanac._installation import machine, versions


def on_record(script: str, words: Sequence[str]) -> dict[str, Any]:
    """Command, date, versions and machine, to stand before what was measured."""
    return {
        "command": command_on_record(script, words),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions(),
        "machine": machine(),
    }


def command_on_record(script: str, words: Sequence[str]) -> str:
    """The command that made a result, without the folders of the machine that ran it."""
    told = (Path(word).name if Path(word).is_absolute() else word for word in words)
    return shlex.join(["python", script, *told])


def save(document: Mapping[str, Any], out: Path) -> None:
    """As JSON, in a folder that is made if it is not there."""
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(document, indent=1) + "\n")
