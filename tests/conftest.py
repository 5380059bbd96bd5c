"""Settings for all tests: how hypothesis searches, and who runs Triton where there is no GPU."""

import os

import torch
from hypothesis import settings

settings.register_profile(
    "kalmanac", deadline=None, derandomize=True, database=None, max_examples=20
)
settings.register_profile("thorough", deadline=None, max_examples=500)
settings.load_profile("kalmanac")

# Without a GPU, kernels are interpreted. Triton reads this when a kernel is defined.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
