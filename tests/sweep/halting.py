"""A sweep of two runs whose environments can be made to wait.

python -m tests.sweep.halting ROOT HALT
"""

import dataclasses
import sys
from pathlib import Path

from tests.lab.test_resuming import CONTINUOUS
from tests.sweep.small import planned, sweep_small


def two_runs(root, halt):
    """Two seeds, each a work of its own."""
    one = CONTINUOUS.changed(
        {"env": "tests.lab.drifting:Halting", "env_settings": {"halt": str(halt)}}
        | {"encoder": "memoryless", "total_steps": 300, "eval_every": 1000, "num_envs": 2}
    )
    return planned(root, *(dataclasses.replace(one, seed=seed) for seed in range(2)))


if __name__ == "__main__":
    root, halt = map(Path, sys.argv[1:])
    sys.exit(sweep_small(two_runs(root, halt), root, checkpoint_every=4))
