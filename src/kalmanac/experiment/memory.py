"""The memory of this process: what it holds now, and what it can still get."""

import gc
import os
import resource
import sys
from pathlib import Path

import torch

from kalmanac.ops.device import free_on_gpu, release_on_gpus

PROC, CGROUP = Path("/proc"), Path("/sys/fs/cgroup")


def held_bytes() -> int:
    """Memory of the host that the process holds now, not the most that it ever held.

    The kernel's own maximum also counts what came before the run in the same process, and what a
    parent held before it became this one. Where nobody tells the present, it must do.
    """
    try:
        pages = int((PROC / "self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return pages * os.sysconf("SC_PAGE_SIZE")


def free_bytes(device: torch.device) -> int | None:
    """Memory that the process can still get on the device; None where nobody tells."""
    if (free := free_on_gpu(device)) is not None:
        return free
    told = [x for x in (_of_machine(), _of_group()) if x is not None]
    return min(told, default=None)


def release() -> None:
    """Give back what nobody holds any more, to the devices, too."""
    gc.collect()
    release_on_gpus()


def _of_machine() -> int | None:
    """What Linux calls available."""
    try:
        lines = (PROC / "meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    fields = dict(line.split(":", 1) for line in lines)
    return int(fields["MemAvailable"].split()[0]) * 1024 if "MemAvailable" in fields else None


def _of_group() -> int | None:
    """What a container may still take; copies of files that Linux would give up count as free."""
    try:
        most, now = ((CGROUP / f"memory.{x}").read_text().strip() for x in ("max", "current"))
        lines = (CGROUP / "memory.stat").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    held = dict(line.split() for line in lines)
    kept = sum(int(held.get(name, 0)) for name in ("inactive_file", "slab_reclaimable"))
    return None if most == "max" else max(0, int(most) - int(now) + kept)
