"""Tables of a benchmark for a terminal or a file: plain text, no dependencies."""

from collections.abc import Sequence
from typing import Any

MODE_TITLES = {"forward": "forward", "both": "with gradients"}


def print_race(race: dict[str, Any]) -> None:
    """One size: times with their spread, floors, what was left out and why."""
    size = tuple(race["size"])
    keys = [f"{m} {how}" for how in ("eager", "graph") for m in MODE_TITLES]
    keys = [k for k in keys if any(k in row["times"] for row in race["rows"])]
    head = ["", *(_title(k, keys) for k in keys), "× floor", "of copy speed"]
    body = [[row["name"], *(_time(row, k) for k in keys), *_floor(row)] for row in race["rows"]]
    print(f"\n(B, T, N) = {size}: median ± spread", end="")
    sets = race["input_sets"]
    print(f"; {sets} input sets in turn" if sets > 1 else "")
    print_table(head, body)
    for name, why in race["skipped"].items():
        print(f"  skipped {name}: {why}")
    for name, why in race["refused"].items():
        print(f"  REFUSED {name}: {why}")
    # variants of a backend do the same work on other inputs: their ratios are in the JSON
    for subject, others in list(race["ratios"].items()):
        if len(subject.split()) > 2:
            continue
        print(f"\n  Time of each, as a multiple of the time of {subject}")
        head = ["", *MODE_TITLES.values()]
        cells = [
            [name, *(_multiple(found, m) for m in MODE_TITLES)] for name, found in others.items()
        ]
        print_table(head, cells)


def print_summary(races: Sequence[dict[str, Any]]) -> None:
    """What each contender is: once, after all sizes."""
    print("\nWho is who")
    notes = {row["name"]: row["note"] for race in races for row in race["rows"]}
    for name, note in notes.items():
        print(f"  {name}: {note}")


def print_table(head: Sequence[str], body: Sequence[Sequence[str]]) -> None:
    """Names to the left, numbers to the right."""
    wide = [max(map(len, column)) for column in zip(head, *body, strict=True)]
    for row in (head, *body):
        first, *rest = (
            cell.ljust(n) if i == 0 else cell.rjust(n)
            for i, (cell, n) in enumerate(zip(row, wide, strict=True))
        )
        print("  ".join([f"  {first}", *rest]).rstrip())


def _title(key: str, keys: Sequence[str]) -> str:
    mode, how = key.split()
    several = any(k.endswith("graph") for k in keys)
    return f"{MODE_TITLES[mode]}, {how}" if several else MODE_TITLES[mode]


def _time(row: dict[str, Any], key: str) -> str:
    if key not in row["times"]:
        return "–"
    found = row["times"][key]
    return f"{_seconds(found['median'])} ± {found['spread']:.0%}"


def _multiple(found: dict[str, float], mode: str) -> str:
    return f"{found[mode]:.3g} ×" if mode in found else "–"


def _floor(row: dict[str, Any]) -> tuple[str, str]:
    """Of the best time with gradients."""
    found = [t for k, t in row["times"].items() if k.startswith("both") and "floor" in t]
    if not found:
        return "–", "–"
    best = min(found, key=lambda t: t["median"])
    return f"{best['times_floor']:.3g}", f"{best['fraction_of_copy_bandwidth']:.0%}"


def _seconds(t: float) -> str:
    if t < 1e-3:
        return f"{t * 1e6:.3g} µs"
    return f"{t * 1e3:.3g} ms" if t < 1 else f"{t:.3g} s"
