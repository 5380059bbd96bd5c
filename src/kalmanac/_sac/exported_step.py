"""A policy's single step as one pure function of named tensors: what an export writes down.

All that stands between an environment and the networks is inside: codes of choices, the order of
an image's axes, the normalizer, action masks, and the environment's own actions.
"""

import copy
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from kalmanac._envs.observation_codecs import Choices, Image, Part
from kalmanac._observation import Observation
from kalmanac._sac.learner import Learner
from kalmanac._sac.normalization import ObservationNormalizer, ReturnScale, without_missing
from kalmanac._sac.problem import Problem

F32 = torch.float32  # whatever a program has set for its own tensors
Tensors = dict[str, Tensor]  # by name, with the batch as the first axis
ROWS = 2  # of an example: a trace of one would take the number as meant


class ExportedStep(nn.Module):
    """From observations and memory to the environment's own actions and the memory behind them.

    In: `obs` (or `obs_KEY` …), `h_in_FIELD` …, `episode_start`, and `observed`, `action_mask` and
    `previous_reward` where the agent knows them. Out: `actions`, `h_out_FIELD` …, `belief_mean` and
    `belief_variance` of a Kalman encoder, and with `distribution` the policy's parameters.
    The policy is a copy on the CPU that does not learn.
    """

    def __init__(
        self, problem: Problem, learner: Learner, normalizer: ObservationNormalizer | None,
        return_scale: ReturnScale | None = None, *, distribution: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.problem, self.distribution = problem, distribution
        numbers = problem.sizes.observation > 0  # a .pt2 file takes no tensors of size 0
        scales = (normalizer if numbers else None, return_scale)
        self.normalizers = [x for x in scales if x is not None]
        self.actor = copy.deepcopy(learner.averaged).cpu().requires_grad_(False).eval()
        leaves, measured = problem.observations.leaves, problem.observations.measured
        self.measured: Tensor | None
        self.register_buffer("measured", None if measured is None else torch.from_numpy(measured))
        self.parts = dict(zip(_names(leaves), leaves, strict=True))
        network, actions = self.actor.network, problem.actions
        self.state: Any = network.initial_state(ROWS)
        self.fields: tuple[str, ...] = getattr(self.state, "_fields", ())
        self.shows_belief = {"mean", "variance"} <= set(self.fields)
        self.reads_previous = network.encoder is not None and network.previous_action
        self.reads_reward = learner.settings.previous_reward
        # of the environment: all actions (A, …), or the lowest and the highest one (2, …)
        own = np.arange(actions.size)
        if not actions.discrete:
            own = np.repeat([[-1.0], [1.0]], actions.size, 1)
        self.actions: Tensor
        self.register_buffer("actions", torch.as_tensor(actions.decode(own)))

    def example(self) -> Tensors:
        """All inputs by name, some rows of them: episodes that begin with zeros."""
        inputs, sizes = {}, self.problem.sizes
        for name, part in self.parts.items():
            leaf: Any = self.problem.observation_space
            for key in part.path:
                leaf = leaf[key]
            inputs[name] = torch.as_tensor(np.zeros((ROWS, *part.shape), leaf.dtype))
        for name, x in zip(self.fields, self.state, strict=True):
            inputs[f"h_in_{name}"] = torch.zeros_like(x)
        if self.reads_previous:
            inputs["h_in_previous_action"] = torch.zeros(ROWS, sizes.action, dtype=F32)
        inputs["episode_start"] = torch.ones(ROWS, dtype=torch.bool)
        if sizes.observed:
            inputs["observed"] = torch.ones(ROWS, dtype=torch.bool)
        if sizes.action_mask:
            inputs["action_mask"] = torch.ones(ROWS, sizes.action, dtype=torch.bool)
        if self.reads_reward:
            inputs["previous_reward"] = torch.zeros(ROWS, dtype=F32)
        return inputs

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensors:
        """One step of n episodes."""
        start = inputs["episode_start"]
        observation = self._observe(inputs)
        if self.reads_reward:
            observation = observation._replace(previous_reward=inputs["previous_reward"])
        for normalizer in self.normalizers:
            observation = normalizer.normalize(observation)
        state = type(self.state)(*(inputs[f"h_in_{name}"] for name in self.fields))
        if self.reads_previous:
            previous = inputs["h_in_previous_action"]
        else:
            previous = torch.zeros(start.shape[0], self.problem.sizes.action, dtype=F32)
        parameters, state = self.actor.step(observation, previous, state, episode_start=start)
        action = self.actor.distribution.mode(parameters)
        outputs = {"actions": self._decode(action)}
        outputs |= {f"h_out_{name}": x for name, x in zip(self.fields, state, strict=True)}
        if self.reads_previous:
            outputs["h_out_previous_action"] = self.actor.distribution.as_input(action)
        if self.shows_belief:  # a value of its own: the state is it, too
            outputs |= {f"belief_{x}": outputs[f"h_out_{x}"].clone() for x in ("mean", "variance")}
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
                features.append(_one_hot(part, x))
            else:
                features.append(x.reshape(x.shape[0], part.width).float())
        observed = inputs.get("observed")
        vector = torch.cat(features or [torch.zeros(x.shape[0], 0, dtype=F32)], 1)
        if observed is not None:
            vector = without_missing(vector, observed, self.measured)
        pixels = torch.cat(images, 1) if images else None
        return Observation(vector, pixels, observed, inputs.get("action_mask"))

    def _decode(self, action: Tensor) -> Tensor:
        """The environment's own actions, in its space's shape and dtype."""
        if self.problem.actions.discrete:
            return self.actions[action]
        low, high = self.actions.flatten(1)
        share = (action.to(torch.promote_types(torch.float32, low.dtype)) + 1) / 2
        values = low * (1 - share) + high * share
        return values.to(low.dtype).reshape(-1, *self.actions.shape[1:])


def _one_hot(part: Choices, x: Tensor) -> Tensor:
    """Codes (n, width) of choices (n, …)."""
    place = np.repeat(np.arange(len(part.counts)), part.counts)
    value = np.arange(part.width) - np.repeat(part.counts.cumsum() - part.counts, part.counts)
    value += part.start[place]
    chosen = x.reshape(x.shape[0], len(part.counts))[:, torch.as_tensor(place)]
    return (chosen == torch.as_tensor(value)).float()


def _names(leaves: Sequence[Part]) -> list[str]:
    """One name for each part: `obs`, or `obs_` and its keys; numbers where these are not unique."""
    names = [re.sub(r"\W", "_", "_".join(map(str, ("obs", *part.path)))) for part in leaves]
    return names if len(set(names)) == len(names) else [f"obs_{i}" for i in range(len(names))]
