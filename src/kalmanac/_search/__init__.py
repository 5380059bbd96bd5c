"""A search for settings: trials are ordinary runs of the sweep's engine, proposed by Optuna."""
