"""`kalmanac report FOLDER`: figures, tables and one page from the run folders below FOLDER."""

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

LIBRARIES = ("matplotlib", "plotly", "rliable")


def main(argv: Sequence[str]) -> int:
    """The verb. 2: a call that cannot be understood; 1: nothing to report on."""
    parser = argparse.ArgumentParser(
        prog="kalmanac report",
        description="Draw every figure and table of the paper that the runs below FOLDER allow, "
        "and bind them in one HTML page with curves to explore. Needs no torch. What cannot be "
        "read or drawn is named, in one line each.",
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where the runs are")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="where the report goes; default: FOLDER/report"
    )
    options = parser.parse_args(argv)
    out = options.out or options.folder / "report"
    for library in LIBRARIES:
        if importlib.util.find_spec(library) is None:
            print(f"kalmanac report: needs {library}: pip install 'kalmanac[report]'",
                  file=sys.stderr)  # fmt: skip
            return 1
    from kalmanac.report import making

    try:
        made = making.make_report(options.folder, out, say=_say)
    except FileNotFoundError as error:
        print(f"kalmanac report: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"kalmanac report: --out {out}: {error.strerror}", file=sys.stderr)
        return 2
    for text in made.notices:
        print(f"note: {text}")
    for one in made.missing:
        print(f"not drawn: {one.number} {one.title}: needs {one.needs}")
    if not made.runs:
        print(f"kalmanac report: found no run with an evaluation in {options.folder}",
              file=sys.stderr)  # fmt: skip
        return 1
    marks = f" ({', '.join(made.labels)} runs among them)" if made.labels else ""
    print(
        f"{made.runs:,} runs{marks}, {len(made.figures)} figures, {len(made.tables)} tables: "
        f"{out / making.PAGE}"
    )
    return 0


def _say(text: str) -> None:
    """To whoever waits at a terminal."""
    if sys.stderr.isatty():
        print(f"{text} …", file=sys.stderr, flush=True)
