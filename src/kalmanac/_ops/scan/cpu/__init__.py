"""Backend `cpu`: fused forward and closed-form backward in numba, threads over the batch."""
