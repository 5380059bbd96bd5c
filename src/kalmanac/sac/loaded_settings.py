"""Which settings of a saved agent may be others when it is loaded, and its temperature then."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from kalmanac.agent import Learner
from kalmanac.encoders import encoder_settings
from kalmanac.settings import CHANGEABLE

_WINDOW = ("context_length", "burn_in")


def changed_config(config: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that a loaded agent is made with; ValueError for what must stay as it is."""
    known = (*CHANGEABLE, "seed")
    for name, value in changes.items():
        if name in known and not (name in _WINDOW and _remembers_a_window(config)):
            continue
        others = ", ".join(other for other in known if other != name)
        raise ValueError(
            f"{name}: got {value!r} for a model that is loaded, expected none: its weights were "
            f"learnt with its own; {others} can be changed"
        )
    return {**config, **changes}


def with_temperature(
    learnt: Mapping[str, Tensor], learner: Learner, changes: Mapping[str, Any]
) -> dict[str, Tensor]:
    """A learner's saved state for a `learner` whose `ent_coef` or `initial_ent_coef` is another.

    A fixed temperature, or a start that is given, goes before the saved one; a learnt one without
    a start goes on from there, unless that is zero. Adam knows nothing yet of a temperature that
    was fixed before.
    """
    state = dict(learnt)
    fixed = not learner.learns_temperature
    if fixed or "initial_ent_coef" in changes or not state["log_alpha"].isfinite():
        state["log_alpha"] = learner.log_alpha.detach().clone()
    own, span = learner.optimiser.values, learner.optimiser.spans["temperature"]
    width = span.stop - span.start
    for name, x in learnt.items():
        if name.startswith("adam.") and x.dim() == 1 and len(x) != len(own):
            before = len(x) - (len(own) - width)  # numbers of the temperature
            rest = x[span.start + before :]
            state[name] = torch.cat([x[: span.start], x.new_zeros(width), rest])
    return state


def _remembers_a_window(config: Mapping[str, Any]) -> bool:
    """Whether the length of the windows decides how far back its encoder looks (Transformer)."""
    takes = "window" in encoder_settings(config["encoder"])
    return takes and "window" not in config["encoder_settings"]
