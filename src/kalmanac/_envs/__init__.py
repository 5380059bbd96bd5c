"""Environments as Gymnasium vector environments: the table, the codecs of spaces, the tasks,
and what corrupts readings and actions.

Importing this package registers "kalmanac/BestArm-v0" with Gymnasium. No torch in here.
"""

import gymnasium

gymnasium.register(
    "kalmanac/BestArm-v0",
    entry_point="kalmanac._envs.best_arm:BestArm",
    vector_entry_point="kalmanac._envs.best_arm:BestArmVector",
)
