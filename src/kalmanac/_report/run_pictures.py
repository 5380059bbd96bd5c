"""Pictures of episodes that `kalmanac watch` has left in a run's folder, for the page."""

import base64
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kalmanac._files.run_reader import EVALUATIONS
from kalmanac._messages import one_line
from kalmanac._report.runs import Run

KINDS = {".png": (b"\x89PNG\r\n\x1a\n", "image/png"), ".gif": (b"GIF8", "image/gif")}
MOST = 6  # stills and animations of a run
LARGEST, ALL = 4_000_000, 40_000_000  # bytes of one, and of all on a page


class RunPicture(NamedTuple):
    """A picture as an address that holds it whole."""

    run: str
    name: str
    moving: bool
    address: str


def run_pictures(runs: Sequence[Run], notices: list[str]) -> Iterator[RunPicture]:
    """The first few of each run by name; what has no room on the page is named."""
    room = ALL
    for run in runs:
        folder = run.folder / EVALUATIONS
        files = [file for kind in KINDS for file in sorted(folder.glob(f"*{kind}"))]
        left_out = len(files[MOST:])
        for file in files[:MOST]:
            start, kind = KINDS[file.suffix]
            size = file.stat().st_size
            if not file.is_file() or size > min(LARGEST, room):
                left_out += 1
                continue
            content = file.read_bytes()
            if not content.startswith(start):
                notices.append(f"{run.name}: {one_line(file.name)} is no picture")
                continue
            room -= size
            data = base64.b64encode(content).decode()
            address = f"data:{kind};base64,{data}"
            yield RunPicture(run.name, one_line(file.stem), file.suffix == ".gif", address)
        if left_out:
            notices.append(f"{run.name}: {left_out} more pictures in {EVALUATIONS}")
