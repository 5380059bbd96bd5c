"""`kalmanac doctor`: what is installed, which scan backends run here, and do they tell the truth.

Needs nothing beyond the package's own dependencies; rich, where it is installed, draws the tables
on a terminal. Leaves exit status 1 if a self-test fails.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from kalmanac._cli.verb import Call, Verb
from kalmanac._installation import machine, versions
from kalmanac._ops.device import kinds
from kalmanac._ops.scan.backends import usable
from kalmanac._ops.selftest import DTYPES, SCANS, Verdict, judge


class Availability(NamedTuple):
    """Whether a backend can run on a device with signals of a dtype, and if not, why."""

    backend: str
    device: str
    dtype: str
    why_not: str | None


def availability() -> list[Availability]:
    """Every backend on every kind of device, for every dtype of the self-test."""
    return [
        Availability(backend, kind, _name(dtype), why_not)
        for kind in kinds()
        for dtype in DTYPES
        for backend, why_not in usable(torch.device(kind), dtype).items()
    ]


def self_tests(places: Sequence[Availability]) -> list[Verdict]:
    """Both scans on every place where a backend says that it can run."""
    return [
        judge(scan, place.backend, torch.device(place.device), getattr(torch, place.dtype))
        for scan in SCANS
        for place in places
        if place.why_not is None
    ]


@dataclass(frozen=True)
class Options:
    """How to print it."""

    json: bool = False
    """JSON instead of tables."""


def examine(call: Call) -> int:
    """The verb: examine, print, and return 1 if a self-test failed."""
    places = availability()
    verdicts = self_tests(places)
    if call.options.json:
        print(json.dumps(_as_json(places, verdicts), indent=2))
    else:
        _print_report(places, verdicts)
    return 0 if all(v.ok for v in verdicts) else 1


def _print_report(places: Sequence[Availability], verdicts: Sequence[Verdict]) -> None:
    devices = {
        name: ", ".join(v if k == "name" else f"{v} {k}" for k, v in facts.items())
        for name, facts in machine().items()
    }
    _print_table("Installed", ("what", "which"), list((versions() | devices).items()))
    _print_table("Scan backends", ("backend", "device", "usable for"), _by_backend(places))
    for device in dict.fromkeys(v.device for v in verdicts):
        _print_table(
            f"Self-test on {device}: max|error| / max|truth| against float64, and its budget",
            ("scan", "backend", "dtype", "all steps", "final", "gradients", ""),
            [_verdict_row(v) for v in verdicts if v.device == device],
        )
    failed = [v for v in verdicts if not v.ok]
    for v in failed:
        what = v.crash or f"outside the budget: {', '.join(v.failures)}"
        print(f"FAIL {v.scan} {v.backend} on {v.device} in {v.dtype}: {what}")
    print(f"{len(verdicts) - len(failed)} of {len(verdicts)} self-tests passed.")


def _verdict_row(v: Verdict) -> tuple[str, ...]:
    measured = [
        f"{v.worst(group):.1e}/{limit:.0e}".replace("e-0", "e-").replace("e+00", "")
        for group, limit in v.budget._asdict().items()
    ]
    scan = v.scan.removesuffix("_scan")
    return (scan, v.backend, v.dtype, *measured, "ok" if v.ok else "FAIL")


def _by_backend(places: Sequence[Availability]) -> list[tuple[str, str, str]]:
    """One row for each backend and device: its dtypes, or the reasons why not."""
    rows = []
    for backend, device in dict.fromkeys((p.backend, p.device) for p in places):
        mine = [p for p in places if (p.backend, p.device) == (backend, device)]
        good = ", ".join(p.dtype for p in mine if p.why_not is None)
        reasons: dict[str, list[str]] = {}
        for p in mine:
            if p.why_not is not None:
                reasons.setdefault(p.why_not, []).append(p.dtype)
        unusable = [
            f"not {', '.join(kinds)}: {why}" if good else why for why, kinds in reasons.items()
        ]
        rows.append((backend, device, "; ".join([good or "nothing", *unusable])))
    return rows


def _as_json(places: Sequence[Availability], verdicts: Sequence[Verdict]) -> dict[str, Any]:
    return {
        "ok": all(v.ok for v in verdicts),
        "versions": versions(),
        "machine": machine(),
        "backends": [p._asdict() for p in places],
        "self_tests": [
            v._asdict() | {"budget": v.budget._asdict(), "ok": v.ok, "failures": v.failures}
            for v in verdicts
        ],
    }


def _print_table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """With rich on a terminal; plain columns into files and pipes, or where rich is missing."""
    if sys.stdout.isatty():
        try:
            from rich import box
            from rich.console import Console
            from rich.markup import escape
            from rich.table import Table
        except ModuleNotFoundError:
            pass
        else:
            table = Table(
                title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD
            )
            table.show_edge, table.pad_edge, table.collapse_padding = False, False, True
            for name in head:
                table.add_column(name, overflow="fold")
            colors = {"ok": "[green]ok[/]", "FAIL": "[bold red]FAIL[/]"}
            for row in rows:
                table.add_row(*(colors.get(cell, escape(cell)) for cell in row))
            Console().print(table, "")
            return
    wide = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    print(title)
    for row in (head, *rows):
        cells = (cell.ljust(n) for cell, n in zip(row, wide, strict=True))
        print(("  " + "  ".join(cells)).rstrip())
    print()


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


VERB = Verb(
    examine,
    Options,
    "Versions, devices, usable scan backends, and a self-test of each one: every output and every "
    "gradient against the float64 reference.",
)
