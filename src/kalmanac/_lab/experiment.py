"""The one description of a run: frozen, typed, plain data, in files and in flags alike."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from kalmanac._checked_fields import CheckedFields
from kalmanac._encoders.registry import ENCODERS, check_encoder
from kalmanac._envs.sensors import Corruption
from kalmanac._messages import expect_known, expect_mapping
from kalmanac._settings import (
    EARLIER,
    ORACLE,
    STILL_COUNTED,
    UNSAID,
    AllSettings,
    agent_of,
    agent_settings,
    without_gone,
)

Part = TypeVar("Part", bound=CheckedFields)

# name → fields; every encoder is an agent too
AGENTS = {name: agent_settings(name) for name in (ORACLE, *ENCODERS)}


@dataclass(frozen=True)
class Experiment(AllSettings):
    """Everything that decides a run, except for the machine that it runs on.

    Examples:
        >>> from kalmanac import Experiment
        >>> experiment = Experiment(env="track", encoder="gru", total_steps=20_000, dropout=0.2)
        >>> experiment.changed({"encoder": "vssm+kf"}).agent
        'vssm+kf'
        >>> Experiment.from_json(experiment.to_json()) == experiment
        True
    """

    def check(self) -> None:
        """Raise ValueError where settings do not go together, or where there is no such encoder."""
        super().check()
        check_encoder(self.encoder, self.encoder_settings)
        self.part(Corruption)

    @property
    def agent(self) -> str:
        """The agent's name in tables and figures."""
        return agent_of(self.encoder, self.privileged)

    @property
    def hash(self) -> str:
        """12 hexadecimal digits: equal for equal experiments, on every machine."""
        said = self._said() | STILL_COUNTED
        text = json.dumps(said, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def part(self, kind: type[Part]) -> Part:
        """The settings of one part of the run, such as `AgentSettings` or `Corruption`."""
        return kind(**{entry.name: getattr(self, entry.name) for entry in dataclasses.fields(kind)})

    def changed(self, changes: Mapping[str, Any]) -> "Experiment":
        """This experiment with other values; `encoder` may name any agent.

        Settings of the environment and the encoder are merged with those that are there, unless
        the environment or the encoder itself is another one.
        """
        for name in changes:
            expect_known("setting", name, _NAMES)
        new = dict(changes)
        if (agent := new.get("encoder")) is not None:
            expect_known("encoder", agent, AGENTS)
            new = AGENTS[agent] | new | {"encoder": AGENTS[agent]["encoder"]}
        for owner in ("env", "encoder"):
            name = f"{owner}_settings"
            same = new.get(owner, getattr(self, owner)) == getattr(self, owner)
            expect_mapping(name, new.get(name, {}))
            new[name] = {**(getattr(self, name) if same else {}), **new.get(name, {})}
        return dataclasses.replace(self, **new)

    def to_data(self) -> dict[str, Any]:
        """The experiment as JSON has it: mappings, lists, strings, numbers."""
        return json.loads(json.dumps(self._said()))

    def _said(self) -> dict[str, Any]:
        data = dataclasses.asdict(self)
        return {k: x for k, x in data.items() if k not in UNSAID or x != EARLIER[k]}

    def to_json(self) -> str:
        """One JSON object."""
        return json.dumps(self.to_data(), indent=2)

    @staticmethod
    def from_data(data: Mapping[str, Any]) -> "Experiment":
        """The experiment that `to_data` was called on.

        Names that are missing have what runs did before there were such settings, else the default.
        """
        data = without_gone(data)
        for name in data:
            expect_known("setting", name, _NAMES)
        return Experiment(**{**EARLIER, **data})

    @staticmethod
    def from_json(text: str) -> "Experiment":
        """The experiment that `to_json` was called on."""
        data = json.loads(text)
        expect_mapping("experiment", data)
        return Experiment.from_data(data)


_NAMES = [entry.name for entry in dataclasses.fields(Experiment)]
