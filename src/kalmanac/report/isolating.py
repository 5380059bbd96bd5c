"""One odd run never stops the others: whatever cannot be made of some runs is made without them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from kalmanac.printable import one_line
from kalmanac.report.groups import Group

Made = TypeVar("Made")


def without_odd_runs(
    make: Callable[[Sequence[Group]], Made], groups: Sequence[Group], notices: list[str],
    what: str, attempt: Callable[[Sequence[Group]], object] | None = None,
) -> Made | None:  # fmt: skip
    """`make` of all groups, or of those runs that it can be made of; the others are named.

    Readers have checked what they could, so that this is for what nobody has thought of. None where
    nothing can be made, though each run is sound. An OSError is nobody's: the disk is full.

    Args:
        what: what is made, for the notices.
        attempt: the same as `make`, without leaving anything behind.
    """
    try:
        return make(groups)
    except OSError:
        raise
    except Exception:
        pass
    odd: dict[str, str] = {}
    _find([replace(g, runs=(run,)) for g in groups for run in g.runs], attempt or make, odd)
    notices += [f"{name}: left out of {what}: {told}" for name, told in odd.items()]
    sound = []
    for group in groups:
        if runs := tuple(run for run in group.runs if run.name not in odd):
            sound.append(replace(group, runs=runs))
    try:
        return make(sound)
    except OSError:
        raise
    except Exception as error:
        notices.append(f"{what}: left out: {one_line(repr(error))}")
        return None


def _find(
    alone: Sequence[Group], attempt: Callable[[Sequence[Group]], object], odd: dict[str, str]
) -> None:
    """Name the runs of which nothing can be made, by halves: most runs are sound."""
    try:
        attempt(alone)
    except OSError:
        raise
    except Exception as error:
        if len(alone) == 1:
            odd[alone[0].runs[0].name] = one_line(repr(error))
            return
        middle = len(alone) // 2
        _find(alone[:middle], attempt, odd)
        _find(alone[middle:], attempt, odd)
