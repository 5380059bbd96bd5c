"""Backend `gpu`: fused forward and closed-form backward in Triton.

With TRITON_INTERPRET=1 in the environment, Triton interprets the kernels and the backend runs on
CPU tensors: slowly, but it is the same code, so that it can be tested without a GPU.
"""

import os
from functools import cache
from importlib.util import find_spec
from typing import Literal

import torch
from torch import Tensor

from kalmanac.ops.gpu.tiling import saved_shape
from kalmanac.ops.late import late
from kalmanac.ops.operators import kalman_operator, linear_operator

# Looked up once: torch.compile does not trace the search for a package.
INSTALLED = find_spec("triton") is not None
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
Precision = Literal["ieee", "tf32", "bfloat16"]  # of a product's factors; ieee: not rounded
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def why_not(device: torch.device, dtype: torch.dtype) -> str | None:
    """None if the backend can run signals of `dtype` on `device`, else the reason."""
    if not INSTALLED:
        return "triton is not installed"
    if device.type != ("cpu" if INTERPRETED else "cuda"):
        return f"it needs tensors on a CUDA device, got {device}"
    if dtype not in DTYPES:
        return f"it has no kernel for {dtype}"
    return None


def rounds_products(x: Tensor) -> bool:
    """May products of x round their factors to TF32 here, so that kernels of ours can make them?"""
    if not (INSTALLED and x.is_cuda and x.dtype == torch.float32):
        return False
    return torch.backends.cuda.matmul.fp32_precision == "tf32" and _has_tf32(x.device)


@cache
def _has_tf32(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device) >= (8, 0)


kalman = kalman_operator(
    "gpu",
    late("kalmanac.ops.gpu.launch", "kalman_forward"),
    late("kalmanac.ops.gpu.launch", "kalman_backward"),
    saved_shape,
)
linear = linear_operator(
    "gpu",
    late("kalmanac.ops.gpu.launch", "linear_forward"),
    late("kalmanac.ops.gpu.launch", "linear_backward"),
)
