"""What is installed on this machine, and what the machine is."""

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

import torch

from kalmanac._ops.device import gpus
from kalmanac._version import __version__

PACKAGES = ("torch", "numpy", "numba", "triton")


def versions() -> dict[str, str]:
    """Name → version of everything the scans are made of."""
    installed = {"kalmanac": __version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            installed[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            installed[name] = "not installed"
    return installed


def machine() -> dict[str, dict[str, Any]]:
    """Device → what it is. No host names, no paths: these facts go into published results."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    devices: dict[str, dict[str, Any]] = {
        "cpu": {"name": cpu_model(), "cores": cores, "torch threads": torch.get_num_threads()}
    }
    for gpu in gpus():
        memory = round(gpu.bytes / 2**30)
        devices[gpu.place] = {"name": gpu.name, "GiB of memory": memory, "CUDA": gpu.cuda}
    return devices


def cpu_model() -> str:
    """The CPU's name, as the kernel has it."""
    try:
        with Path("/proc/cpuinfo").open() as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
