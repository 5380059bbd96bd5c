"""A policy's single step as one pure function of named tensors: what an export writes down.

All that stands between an environment and the networks is inside: codes of choices, the order of
an image's axes, the normalizer, action masks, and the environment's own actions.
"""

import copy
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from kalmanac._envs.observation_codecs import Choices, Image, Part
from kalmanac._observation import Observation
from kalmanac._sac.learner import Learner
from kalmanac._sac.normalization import ObservationNormalizer
from kalmanac._sac.problem import Problem

Tensors = dict[str, Tensor]  # by name, with the batch as the first axis
PREVIOUS = "previous_action"


class ExportedStep(nn.Module):
    """obs, h_in, episode_start, and observed and action_mask where the agent knows them → actions
    of the environment, h_out, and the belief of a Kalman encoder.

    The policy is a copy on the CPU that does not learn. With `distribution`, its parameters come
    out too: logits, or mean and log standard deviation before the squashing.
    """

    def __init__(
        self, problem: Problem, learner: Learner, normalizer: ObservationNormalizer | None, *,
        distribution: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.problem, self.normalizer, self.distribution = problem, normalizer, distribution
        self.actor = copy.deepcopy(learner.averaged).cpu().requires_grad_(False).eval()
        leaves = problem.observations.leaves
        self.parts = dict(zip(_names(leaves), leaves, strict=True))
        network = self.actor.network
        self._state = network.initial_state(2)  # in two rows, as `example`
        fields = getattr(self._state, "_fields", ())
        self.shows_belief = {"mean", "variance"} <= set(fields)
        self.memory: Tensors = dict(zip(fields, self._state, strict=True))
        if network.encoder is not None and network.previous_action:
            self.memory[PREVIOUS] = torch.zeros(2, problem.sizes.action)
        actions = problem.actions
        if actions.discrete:
            table = actions.decode(np.arange(actions.size))  # (A, …): the environment's own
            self.register_buffer("table", torch.as_tensor(table))
        else:
            sides = actions.decode(np.repeat([[-1.0], [1.0]], actions.size, 1))
            self.register_buffer("table", torch.as_tensor(sides))  # lowest and highest

    def example(self) -> Tensors:
        """All inputs by name, in two rows of zeros."""
        space, inputs = self.problem.observation_space, {}
        for name, part in self.parts.items():
            leaf: Any = space
            for key in part.path:
                leaf = leaf[key]
            inputs[name] = torch.as_tensor(np.zeros((2, *part.shape), leaf.dtype))
        inputs |= {f"h_in_{name}": torch.zeros_like(x) for name, x in self.memory.items()}
        inputs["episode_start"] = torch.ones(2, dtype=torch.bool)
        if self.problem.sizes.observed:
            inputs["observed"] = torch.ones(2, dtype=torch.bool)
        if self.problem.sizes.action_mask:
            inputs["action_mask"] = torch.ones(2, self.problem.sizes.action, dtype=torch.bool)
        return inputs

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensors:
        """One step of n episodes."""
        start = inputs["episode_start"]
        observation = self._observe(inputs)
        if self.normalizer is not None:
            observation = self.normalizer.normalize(observation)
        state = tuple(inputs[f"h_in_{name}"] for name in self.memory if name != PREVIOUS)
        previous = inputs.get(f"h_in_{PREVIOUS}")
        if previous is None:  # nobody reads it
            previous = observation.vector.new_zeros(start.shape[0], self.problem.sizes.action)
        parameters, after = self.actor.step(
            observation, previous, type(self._state)(*state), episode_start=start
        )
        action = self.actor.distribution.mode(parameters)
        outputs = {"actions": self._decode(action)}
        memory = dict(zip(self.memory, (*after, action), strict=False))
        if PREVIOUS in memory:
            memory[PREVIOUS] = self.actor.distribution.as_input(action)
        outputs |= {f"h_out_{name}": x for name, x in memory.items()}
        if self.shows_belief:
            outputs |= {f"belief_{name}": memory[name].clone() for name in ("mean", "variance")}
        if self.distribution:
            outputs |= self.actor.distribution.named(parameters)
        return outputs

    def _observe(self, inputs: Mapping[str, Tensor]) -> Observation[Tensor]:
        features, images = [], []
        for name, part in self.parts.items():
            x = inputs[name]
            if isinstance(part, Image):
                x = x.movedim(-1, 1) if part.channels_last else x
                images.append(x.reshape(x.shape[0], part.width))
            elif isinstance(part, Choices):
                place = np.repeat(np.arange(len(part.counts)), part.counts)
                value = np.concatenate([s + np.arange(n) for s, n in zip(part.start, part.counts)])
                codes = x.reshape(x.shape[0], len(part.counts))[:, torch.as_tensor(place)]
                features.append((codes == torch.as_tensor(value)).float())
            else:
                features.append(x.reshape(x.shape[0], part.width).float())
        start = inputs["episode_start"]
        vector = torch.cat(features, 1) if features else torch.zeros(start.shape[0], 0)
        observed = inputs.get("observed")
        if observed is not None:
            vector = vector.masked_fill(~observed[:, None], 0)
        return Observation(
            vector,
            torch.cat(images, 1) if images else None,
            observed=observed,
            action_mask=inputs.get("action_mask"),
        )

    def _decode(self, action: Tensor) -> Tensor:
        """The environment's own actions, in its space's shape and dtype."""
        if self.problem.actions.discrete:
            return self.table[action]
        low, high = self.table.flatten(1)
        share = (action.to(torch.promote_types(torch.float32, low.dtype)) + 1) / 2
        values = low * (1 - share) + high * share
        return values.to(low.dtype).reshape(action.shape[0], *self.table.shape[1:])


def _names(leaves: list[Part]) -> Iterator[str]:
    """One name for each part: `obs`, or `obs_` and its keys; numbers where these are not unique."""
    names = [re.sub(r"\W", "_", "_".join(map(str, ("obs", *part.path)))) for part in leaves]
    return iter(names if len(set(names)) == len(names) else [f"obs_{i}" for i in range(len(names))])
