"""The machine: which devices it has, their memory, and waiting for them."""

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import torch


class GPU(NamedTuple):
    """A GPU that this machine has."""

    place: str  # as PyTorch calls it, such as cuda:0
    name: str
    bytes: int
    cuda: str | None  # the version that PyTorch was built for


def gpus() -> list[GPU]:
    """List the GPUs that can be used, by their number."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    cards = [torch.cuda.get_device_properties(i) for i in range(count)]
    return [
        GPU(f"cuda:{i}", card.name, card.total_memory, torch.version.cuda)
        for i, card in enumerate(cards)
    ]


def kinds() -> list[str]:
    """List the kinds of devices that this machine has."""
    return ["cpu", "cuda"] if gpus() else ["cpu"]


def kind(device: str | torch.device) -> str:
    """Return cpu or cuda: the device without its number."""
    return torch.device(device).type


def on_cpu(device: str | torch.device) -> bool:
    """Return whether work there keeps the processor's cores busy."""
    return kind(device) == "cpu"


def resolve(device: str, *, gpu: bool) -> str:
    """Put a device in the place of "auto": CUDA if there is a GPU, else the CPU."""
    if device == "auto":
        return "cuda" if gpu else "cpu"
    return device


def choose_device(device: str | torch.device) -> torch.device:
    """Choose a device: "auto" is CUDA where it is available, else the CPU. See `check_device`."""
    check_device(device)
    if device == "auto":
        device = resolve(device, gpu=torch.cuda.is_available())
    chosen = torch.device(device)
    if chosen.type == "cuda" and chosen.index is not None:
        torch.cuda.set_device(chosen)  # kernels are launched on the current one
    return chosen


def check_device(device: str | torch.device, *, here: bool = True) -> None:
    """Raise ValueError unless `device` is auto, the CPU, or a GPU; if `here`, of this machine."""
    parsed: torch.device | None = None
    with suppress(RuntimeError, TypeError):
        parsed = torch.device("cpu" if device == "auto" else device)
    if parsed is None or parsed.type not in ("cpu", "cuda"):
        raise ValueError(f"device: got {device!r}, expected auto, cpu or cuda")
    if here and parsed.type == "cuda" and (parsed.index or 0) >= (usable := len(gpus())):
        raise ValueError(
            f"device: got {device!r}, expected one that is there: {usable} usable GPUs here"
        )


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished all its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def held_on_gpus() -> int | None:
    """Return the bytes that the process has on GPUs, caches and graphs included; None: it has none.

    The driver's own part, some hundred megabytes, is not in it.
    """
    if not (torch.cuda.is_available() and torch.cuda.is_initialized()):
        return None
    return sum(torch.cuda.memory_reserved(i) for i in range(torch.cuda.device_count()))


def free_on_gpu(device: torch.device) -> int | None:
    """Return the memory that the process can still get on the device; None on a CPU."""
    if device.type != "cuda":
        return None
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + cached


def release_on_gpus() -> None:
    """Give back what nobody holds any more."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def peak_on_gpu(work: Callable[[], object], device: torch.device) -> int | None:
    """Measure the bytes that `work` takes at most; None on a CPU, where nothing is run.

    It runs twice: in the first run, libraries take their workspaces.
    """
    if device.type != "cuda":
        return None
    work()
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    work()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before


def keep_freed_memory(device: torch.device) -> None:
    """Let glibc reuse large blocks, for this process, instead of asking the kernel anew.

    On a CPU, an update allocates and frees some megabytes many times, and the kernel clears every
    page it hands out: a tenth of the update. glibc keeps free what is smaller than the largest
    block that it has mapped and freed; it learns from blocks of up to 32 MiB. Elsewhere nothing
    happens.
    """
    if device.type == "cpu":
        torch.empty(31 * 2**20, dtype=torch.uint8)
