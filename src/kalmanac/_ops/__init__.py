"""Operations on plain tensors: each one function, with its plain and fused forms beside it."""
