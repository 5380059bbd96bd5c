"""What runs did before a setting had its name: older ones go on, and are shown, as what they were.

A setting that comes later, or whose default changes, has its line here in the same change.
"""

from collections.abc import Mapping
from typing import Any

# Settings that change a run's task, each with the value that changes nothing.
NEUTRAL: Mapping[str, Any] = {
    "noise": 0.0,
    "action_noise": 0.0,
    "dropout": 0.0,
    "dropout_burst": None,
    "dropout_told": True,
    "delay": 0,
    "frame_repeat": 1,
}
EARLIER: Mapping[str, Any] = {  # as JSON has it
    **NEUTRAL,
    "actor_objective": "value",
    "adam_betas": [0.9, 0.999],
    "entropy_in_target": True,
    "average_policy": False,
    "bootstrap_truncated": True,
    "normalize_rewards": False,
    "overlap": False,
    "eval_on_device": False,
    "eval_max_steps": None,
    "tf32": True,
    "bfloat16_heads": False,
    "graph": True,
}
EARLIER_ENCODERS: Mapping[str, Mapping[str, Any]] = {  # the same within encoder_settings
    "transformer": {"dropout": 0.0},  # until the paper's presets said 0.1
}


def as_it_was(experiment: Mapping[str, Any]) -> dict[str, Any]:
    """The description of a recorded run with what it leaves unsaid."""
    unsaid = EARLIER_ENCODERS.get(experiment["encoder"], {})
    settings = {**unsaid, **experiment["encoder_settings"]}
    return {**EARLIER, **experiment, "encoder_settings": settings}
