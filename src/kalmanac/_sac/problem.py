"""What an agent must know of its environment: the spaces, which the model file keeps as JSON."""

import warnings
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv

from kalmanac._envs.action_codecs import action_codec
from kalmanac._envs.observation_codecs import (
    observation_codec,
    privileged_space,
    unmeasured_places,
)
from kalmanac._observation import Sizes
from kalmanac._sac.model_file import space_from_json, space_to_json
from kalmanac._sac.observations import Arrays, InfoKeys, ObservationReader, info_keys

Space = gymnasium.Space[Any]
DECLARED = "as an attribute of its own or of each of its environments"


class Problem:
    """The spaces of one environment, the codecs between them and the agent, and the sizes.

    `truth` is the space of the true state, only if the critic sees it; `keys` says whether infos
    tell of missing readings and forbidden actions; `unmeasured` names places of observations that
    no sensor reads.
    """

    def __init__(
        self, observation: Space, action: Space, truth: Space | None = None,
        keys: InfoKeys | None = None, unmeasured: Sequence[int] = (),
    ) -> None:  # fmt: skip
        self.observation_space, self.action_space = observation, action
        self.privileged_space = truth
        self.actions = action_codec(action)
        keys = keys or InfoKeys()
        if keys.action_mask and not self.actions.discrete:
            raise ValueError(
                f'info["action_mask"]: got one, expected none: the actions of {action} are '
                'continuous (metadata["action_mask"] = False if it means something else)'
            )
        self.info_keys = keys
        self.observations = observation_codec(observation, self.actions)
        self.unmeasured = self.observations.set_unmeasured(unmeasured)
        self.reader = ObservationReader(self.observations, self.actions, **keys._asdict())
        self.sizes = Sizes(
            self.observations.size,
            self.actions.size,
            self.actions.discrete,
            privileged=0 if truth is None else observation_codec(truth).size,
            observed=self.reader.observed,
            images=self.observations.images,
            action_mask=self.reader.action_mask,
        )

    @classmethod
    def of(cls, env: VectorEnv[Any, Any, Any], *, privileged: bool) -> "Problem":
        """What `env` poses; with `privileged`, it must declare a true state.

        Resets `env`, unless its metadata answer what `info_keys` asks.
        """
        truth = privileged_space(env) if privileged else None
        if privileged and truth is None:
            raise ValueError(
                f"privileged_critic: got True, expected False: {env} declares no privileged_space, "
                f"{DECLARED}"
            )
        space, actions = env.single_observation_space, env.single_action_space
        # codecs first: they refuse what cannot be used before anything is reset
        observation_codec(space, action_codec(actions))
        keys = info_keys(env)
        return cls(space, actions, truth, keys, unmeasured_places(env) if keys.observed else ())

    def require_same(self, env: VectorEnv[Any, Any, Any]) -> None:
        """Refuse an environment with other spaces."""
        for name, got in (
            ("observation_space", env.single_observation_space),
            ("action_space", env.single_action_space),
            ("privileged_space", self.privileged_space and privileged_space(env)),
        ):
            own = getattr(self, name)
            if got != own:
                how = f", {DECLARED}" if got is None else ""
                raise ValueError(f"env.{name}: got {got}, expected {own} as in training{how}")
        theirs = unmeasured_places(env) if self.unmeasured else ()
        if theirs and theirs != self.unmeasured:
            raise ValueError(
                f"env.unmeasured: got {theirs}, expected {self.unmeasured} as in training"
            )

    def set_unmeasured(self, unmeasured: Sequence[int]) -> None:
        """Take other places that no sensor reads, as a run from before had them."""
        self.unmeasured = self.observations.set_unmeasured(unmeasured)

    def observe(
        self, observation: Any, *, action_masks: Any = None, observed: Any = None
    ) -> tuple[Arrays, bool]:
        """The observation of a batch (n, …), and whether a single one was given instead.

        Warns where a mask is missing that the environment of the training gave.
        """
        batch, single = self.observations.as_batch(observation)
        if single and action_masks is not None:
            action_masks = np.asarray(action_masks).reshape(1, -1)
        read = self.reader.read_arguments(batch, observed=observed, action_mask=action_masks)
        if action_masks is None and self.info_keys.action_mask:
            warnings.warn(
                "action_masks: got None, expected the mask of this step: actions were forbidden in "
                "the agent's training, and it may choose one that is",
                stacklevel=3,
            )
        return read, single

    def to_json(self) -> dict[str, Any]:
        """The spaces as JSON's own types."""
        truth = self.privileged_space
        unmeasured = {"unmeasured": list(self.unmeasured)} if self.unmeasured else {}
        return unmeasured | {
            "observation": space_to_json(self.observation_space),
            "action": space_to_json(self.action_space),
            "truth": None if truth is None else space_to_json(truth),
            "told": self.info_keys._asdict(),
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "Problem":
        """The reverse of `to_json`."""
        truth = document["truth"]
        return cls(
            space_from_json(document["observation"]),
            space_from_json(document["action"]),
            None if truth is None else space_from_json(truth),
            InfoKeys(**document.get("told", {})),
            document.get("unmeasured", ()),
        )
