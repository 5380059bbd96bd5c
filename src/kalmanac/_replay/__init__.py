"""Replay: steps go in, right-padded batches of sub-trajectories come out; its form on disk."""
