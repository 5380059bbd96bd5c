"""Backend `gpu`: fused forward and closed-form backward in Triton."""
