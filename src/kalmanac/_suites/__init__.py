"""The paper's experiments, a file a family."""
