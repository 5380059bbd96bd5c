"""Which form of an operation runs here: the questions about devices, precision and compilers.

Operations have a plain form in PyTorch, and fused forms: Triton kernels on a GPU, numba's or wide
products on a CPU. Each operation chooses by these answers alone, so that nobody above asks.

With TRITON_INTERPRET=1 in the environment, Triton interprets the kernels and those of the scans
run on CPU tensors: slowly, but it is the same code, so that it can be tested without a GPU.
"""

import os
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

# Looked up once: torch.compile does not trace the search for a package.
TRITON = find_spec("triton") is not None
NUMBA = find_spec("numba") is not None
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
GPU_SCANS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
CPU_SCANS = (*GPU_SCANS, torch.complex64, torch.complex128)


def fused(x: Tensor) -> bool:
    """Return whether Triton kernels take x in the place of plain operations."""
    return x.is_cuda and TRITON and not INTERPRETED and not transformed()


def fused_products(x: Tensor, weight: Tensor) -> bool:
    """Triton kernels make products of x and the weight: these may round their factors to TF32.

    In full precision, libraries are faster; who records operators and autocast take plain ones.
    """
    if not (fused(x) and x.dtype == weight.dtype == torch.float32):
        return False
    if watched() or torch.is_autocast_enabled("cuda"):
        return False
    return torch.backends.cuda.matmul.fp32_precision == "tf32" and _has_tf32(x.device)


@cache
def _has_tf32(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device) >= (8, 0)


@cache
def shared_bytes(device: torch.device) -> int:
    """Return the memory that one program of a Triton kernel may share on the GPU."""
    from triton.runtime import driver

    return driver.active.utils.get_device_properties(device.index)["max_shared_mem"]


def fused_cpu(x: Tensor) -> bool:
    """Forms made for a CPU take x: who records operators and autocast take plain ones."""
    return x.device.type == "cpu" and not watched() and not torch.is_autocast_enabled("cpu")


def fused_scan(device: torch.device, dtype: torch.dtype) -> str | None:
    """Return the fused backend for scans of `dtype` on `device`, if one can run there."""
    if device.type == "cpu":
        return "cpu" if why_no_cpu_scan(device, dtype) is None else None
    return "gpu" if why_no_gpu_scan(device, dtype) is None else None


def why_no_cpu_scan(device: torch.device, dtype: torch.dtype) -> str | None:
    """Return None if numba's scans can take signals of `dtype` on `device`, else the reason."""
    if device.type != "cpu":
        return f"it needs tensors on the CPU, got {device}"
    if dtype not in CPU_SCANS:
        return f"it has no kernel for {dtype}"
    if not NUMBA:
        return "numba is not installed"
    return None


def why_no_gpu_scan(device: torch.device, dtype: torch.dtype) -> str | None:
    """Return None if Triton's scans can take signals of `dtype` on `device`, else the reason."""
    if not TRITON:
        return "triton is not installed"
    if device.type != ("cpu" if INTERPRETED else "cuda"):
        return f"it needs tensors on a CUDA device, got {device}"
    if dtype not in GPU_SCANS:
        return f"it has no kernel for {dtype}"
    return None


def differentiates(*tensors: Tensor) -> bool:
    """Return whether autograd will ask for the gradient of one of these."""
    return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)


def watched() -> bool:
    """Return whether somebody records or transforms operators, and has to see plain ones.

    These are torch.compile, torch.export, torch.jit.trace, fake tensors, and torch.func.
    """
    if torch.compiler.is_compiling() or is_in_torch_dispatch_mode():
        return True
    return torch._C._is_tracing() or transformed()


def transformed() -> bool:
    """Return whether torch.func transforms what runs: vmap, grad and the like."""
    return torch._C._are_functorch_transforms_active()


def autocast(x: Tensor) -> bool:
    """Return whether autocast chooses the dtypes of operations where x lies."""
    return torch.is_autocast_enabled(x.device.type)


def readable(x: Tensor) -> bool:
    """Return whether the host may read x: it is neither traced nor captured in a CUDA graph."""
    if watched():
        return False
    return not (x.is_cuda and torch.cuda.is_current_stream_capturing())


def at_hand(x: Tensor) -> bool:
    """Return whether the host reads numbers of x without waiting for a device."""
    return x.device.type == "cpu" and not watched()


def has_float64(device: torch.device) -> bool:
    """Return whether the device has double precision."""
    return device.type != "mps"


def pads_are_free(x: Tensor) -> bool:
    """Time does not grow with the pads of x, as long as there are processors for all rows."""
    return x.is_cuda


def packs_rows(device: torch.device) -> bool:
    """Several episodes to a row of a batch are worth it here: time grows with tokens.

    Elsewhere fixed shapes are, which a CUDA graph can record.
    """
    return device.type == "cpu"
