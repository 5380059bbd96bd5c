"""Backend `cpu`: fused forward and closed-form backward in numba, threads over the batch."""

from importlib.util import find_spec

import torch

from kalmanac.ops.late import late
from kalmanac.ops.operators import kalman_operator, linear_operator

# Looked up once: torch.compile does not trace the search for a package.
INSTALLED = find_spec("numba") is not None
DTYPES = (
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.complex128
)  # fmt: skip


def why_not(device: torch.device, dtype: torch.dtype) -> str | None:
    """None if the backend can run signals of `dtype` on `device`, else the reason."""
    if device.type != "cpu":
        return f"it needs tensors on the CPU, got {device}"
    if dtype not in DTYPES:
        return f"it has no kernel for {dtype}"
    if not INSTALLED:
        return "numba is not installed"
    return None


kalman = kalman_operator(
    "cpu",
    late("kalmanac.ops.cpu.launch", "kalman_forward"),
    late("kalmanac.ops.cpu.launch", "kalman_backward"),
    saved_shape=lambda *facts: (0,),
)
kalman_layer = late("kalmanac.ops.cpu.layer", "kalman_layer")
linear = linear_operator(
    "cpu",
    late("kalmanac.ops.cpu.launch", "linear_forward"),
    late("kalmanac.ops.cpu.launch", "linear_backward"),
)
