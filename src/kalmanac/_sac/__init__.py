"""The agent: networks, learner, collection of experience, training loop, RecurrentSAC."""
