"""What an environment raised, in one line that says where."""

import re
import sysconfig
import traceback
from collections.abc import Sequence
from pathlib import Path

_OURS = str(Path(__file__).parents[1])
_LIBRARIES = tuple({*map(sysconfig.get_path, ("stdlib", "purelib", "platlib")), _OURS})
_PLACE = re.compile(r'File "([^"]+)", line (\d+)')  # in a traceback's text


def words(error: BaseException) -> str:
    """Kind, message, file and line of what was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    return _words(error, [(frame.filename, frame.lineno or 0) for frame in frames])


def words_of_a_process(error: BaseException, trace: str) -> str:
    """The same for what came as text from another process, with its traceback."""
    return _words(error, [(file, int(line)) for file, line in _PLACE.findall(trace)])


def _words(error: BaseException, places: Sequence[tuple[str, int]]) -> str:
    told = " ".join(str(error).split())
    told = f"{type(error).__name__}: {told}" if told else type(error).__name__
    # the environment's own line, not that of a library which it called
    own = [place for place in places if not place[0].startswith((*_LIBRARIES, "<"))]
    if not places:
        return told
    file, line = (own or places)[-1]
    return f"{told} ({file}, line {line})"
