"""Experiments: the one description of a run, and what happens when it is run."""
