"""History encoders: causal maps from embeddings h (B, T, E) to representations z (B, T, E)."""
