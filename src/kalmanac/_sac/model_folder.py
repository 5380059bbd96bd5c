"""A folder for sharing, as the Hugging Face Hub wants it: weights, configuration and a card.

Nothing in it is pickled, and nothing in it is run when the model is loaded.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kalmanac._files.durable import write_whole
from kalmanac._messages import one_line
from kalmanac._sac.evaluation import Evaluation
from kalmanac._sac.model_file import FOLDER_MODEL, write_model
from kalmanac._version import __version__

CONFIG, CARD = "config.json", "README.md"
TOLD = ("config", "spaces", "num_timesteps", "num_updates")  # of a model, in plain JSON


def write_model_folder(
    folder: str | os.PathLike[str], document: Mapping[str, Any], *, task: str = "",
    evaluation: Evaluation | None = None, about: str = "",
) -> Path:  # fmt: skip
    """Write model, configuration and card of a model's document; returns the folder."""
    place = Path(folder)
    write_model(place / FOLDER_MODEL, dict(document))
    told = {"library": "kalmanac", "version": __version__, "task": task}
    told |= {name: document[name] for name in TOLD}
    write_whole(place / CONFIG, json.dumps(told, indent=2).encode())
    write_whole(place / CARD, card(document, task, evaluation, about).encode())
    return place


def card(
    document: Mapping[str, Any], task: str, evaluation: Evaluation | None, about: str
) -> str:  # fmt: skip
    """The card: metadata that the Hub reads, results, and how to load the model."""
    encoder, task = document["config"]["encoder"], one_line(task).replace("`", "'")
    name = f"RecurrentSAC with {encoder}" + (f" in {task}" if task else "")
    result, results = "", ""
    if evaluation is not None:
        mean, std, count = evaluation.mean_reward, evaluation.std_reward, len(evaluation.returns)
        result = (
            f"Return: **{mean:.2f} ± {std:.2f}** (mean and standard deviation over {count:,} new "
            "episodes, without exploration).\n\n"
        )
        results = RESULTS.format(
            name=json.dumps(name),
            task=json.dumps(task or "unknown"),
            value=f"{mean:.2f} +/- {std:.2f}",
        )
    steps, seed = document["num_timesteps"], document["config"]["seed"]
    return (
        f"{METADATA}{results}---\n\n# {name}\n\nTrained for {steps:,} steps with seed {seed} by "
        f"kalmanac {__version__}.\n\n{result}{about}{LOADING}"
    )


METADATA = """---
library_name: kalmanac
pipeline_tag: reinforcement-learning
tags:
- reinforcement-learning
- deep-reinforcement-learning
- kalman-filter
- partial-observability
"""
RESULTS = """model-index:
- name: {name}
  results:
  - task:
      type: reinforcement-learning
      name: reinforcement-learning
    dataset:
      name: {task}
      type: {task}
    metrics:
    - type: mean_reward
      value: {value}
      name: mean_reward
      verified: false
"""
LOADING = """## Loading

```python
from huggingface_hub import snapshot_download
from kalmanac import RecurrentSAC

model = RecurrentSAC.load(snapshot_download("USER/NAME"))  # or the path of this folder
session = model.session()
action = session.act(observation)  # remembers; session.reset() begins an episode
```

The weights are safetensors and the settings JSON: loading runs no code of this folder.
"""
