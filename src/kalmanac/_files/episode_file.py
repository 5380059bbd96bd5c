"""The episode file: one played episode as arrays, for pictures, animations and reports.

A NumPy archive (.npz) without pickled objects: those arrays of `PlayedEpisode` that apply to the
agent and the environment, and `about`, a JSON object with the format, its version and the fields of
`About`.

Reading and drawing need no torch.
"""

import dataclasses
import io
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
from numpy.typing import NDArray

from kalmanac._files.durable import write_whole
from kalmanac._files.json import expect_numbers, expect_whole, parse_object
from kalmanac._messages import one_line

FORMAT, VERSION = "kalmanac-episode", 1
LARGEST = 2**26  # bytes of an episode, unpacked
TEXTS, WORDS = ("env", "agent", "label", "title"), 60  # of so many characters at most
Array = NDArray[Any]


@dataclass(frozen=True)
class About:
    """What was played, by whom, and how it ended."""

    env: str
    agent: str
    training_seed: int
    training_step: int
    seed: int  # of the episode
    deterministic: bool
    terminated: bool  # False: cut by a time limit
    label: str = ""  # such as "shortened"
    title: str = ""  # such as "adversarial"
    won: bool | None = None
    action_names: tuple[str, ...] = ()
    mu: float | None = None  # Best Arm's hidden mean
    sigma: float | None = None


@dataclass(frozen=True)
class PlayedEpisode:
    """One played episode of T steps, as an episode file holds it.

    Step t is an observation and the action taken on it. Arrays that do not apply to an agent or an
    environment are None.

    Attributes:
        about: what was played, by whom, and how it ended.
        observation: (T, O), what the environment showed, flat.
        action: (T,), a discrete action's number, from 0 on, or (T, A) in the environment's units.
        reward: (T,).
        truth: (T, S), the true state, where the environment provides it.
        posterior_mean: (T,), Best Arm: the Bayes posterior of the mean, σ known, after each sample.
        posterior_std: (T,), its standard deviation.
        probability: (T, A) of discrete actions.
        action_mean: (T, A) of continuous ones: the policy's median, in the environment's units.
        action_low: (T, A), what one standard deviation below it becomes.
        action_high: (T, A), what one standard deviation above it becomes.
        belief_mean: (L, T, N), Kalman encoders: posterior mean of each layer and channel.
        belief_variance: (L, T, N), its variance.
        gain: (L, T, N), how much of the step's reading was taken over.
        influence: (N,), how much of the representation's movement each channel of the last layer
            carries: std over time of its mean, times the norm of its weights.
        latent: (T, 2), agents with two latent channels: the state that the policy reads.
        latent_grid: (2, G), values of the two channels around it.
        latent_probability: (G, G, A), the policy there [second channel, first channel], for the
            observation of the last step.

    Examples:
        >>> from pathlib import Path
        >>> import kalmanac
        >>> run = Path(kalmanac.__file__).parent / "pretrained" / "best-arm"
        >>> model = kalmanac.RecurrentSAC.load(run / "best.safetensors")
        >>> experiment = kalmanac.Experiment.from_json((run / "experiment.json").read_text())
        >>> (file,) = kalmanac.record_episodes(model, experiment, "episodes", seed=2)
        >>> episode = kalmanac.read_episode(file)
        >>> episode.about.agent, episode.about.won, episode.total_reward
        ('vssm+kf', True, 10.0)
        >>> sorted(episode.arrays())[:4]
        ['action', 'belief_mean', 'belief_variance', 'gain']
    """

    about: About
    observation: Array
    action: Array
    reward: Array
    truth: Array | None = None
    posterior_mean: Array | None = None
    posterior_std: Array | None = None
    probability: Array | None = None
    action_mean: Array | None = None
    action_low: Array | None = None
    action_high: Array | None = None
    belief_mean: Array | None = None
    belief_variance: Array | None = None
    gain: Array | None = None
    influence: Array | None = None
    latent: Array | None = None
    latent_grid: Array | None = None
    latent_probability: Array | None = None

    def __post_init__(self) -> None:
        for name, array in self.arrays().items():
            axis = 1 if name in ("belief_mean", "belief_variance", "gain") else 0
            timeless = name in ("influence", "latent_grid", "latent_probability")
            if not timeless and (array.ndim <= axis or array.shape[axis] != self.steps):
                raise ValueError(f"{name}: got shape {array.shape}, expected {self.steps} steps")

    @property
    def steps(self) -> int:
        """T."""
        return len(self.action)

    @property
    def total_reward(self) -> float:
        """Undiscounted return."""
        return float(self.reward.sum())

    def arrays(self) -> dict[str, Array]:
        """All arrays that are there, by name."""
        arrays = {name: getattr(self, name) for name in ARRAYS}
        return {name: x for name, x in arrays.items() if x is not None}


DIMENSIONS = {
    "observation": 2, "action": 1, "reward": 1, "truth": 2, "posterior_mean": 1,
    "posterior_std": 1, "probability": 2, "action_mean": 2, "action_low": 2, "action_high": 2,
    "belief_mean": 3, "belief_variance": 3, "gain": 3, "influence": 1, "latent": 2,
    "latent_grid": 2, "latent_probability": 3,
}  # fmt: skip
ARRAYS = tuple(x.name for x in dataclasses.fields(PlayedEpisode) if x.name != "about")


def write_episode(path: str | os.PathLike[str], episode: PlayedEpisode) -> Path:
    """Write `episode`; the file appears under its name only when it is complete."""
    target = Path(path)
    about = {"format": FORMAT, "version": VERSION, **dataclasses.asdict(episode.about)}
    target.parent.mkdir(parents=True, exist_ok=True)
    content = io.BytesIO()
    text = np.array(json.dumps(about, allow_nan=False))
    np.savez_compressed(content, allow_pickle=False, about=text, **episode.arrays())
    write_whole(target, content.getvalue())
    return target


def read_episode(path: str | os.PathLike[str]) -> PlayedEpisode:
    """The episode in a file; ValueError in one line for anything else.

    Examples:
        >>> from pathlib import Path
        >>> import kalmanac
        >>> run = Path(kalmanac.__file__).parent / "pretrained" / "best-arm"
        >>> model = kalmanac.RecurrentSAC.load(run / "best.safetensors")
        >>> experiment = kalmanac.Experiment.from_json((run / "experiment.json").read_text())
        >>> (file,) = kalmanac.record_episodes(model, experiment, "episodes", seed=7)
        >>> episode = kalmanac.read_episode(file)
        >>> episode.observation.shape == (episode.steps, 1)
        True
        >>> episode.belief_variance.shape == (1, episode.steps, 128)
        True
    """
    source = Path(path)
    if not source.is_file():
        raise FileNotFoundError(f"path: got {source}, expected an episode file")
    try:
        with source.open("rb") as stream:
            if sum(part.file_size for part in ZipFile(stream).infolist()) > LARGEST:
                raise ValueError(f"got more than {LARGEST:,} bytes")
            stream.seek(0)
            with np.load(stream, allow_pickle=False) as file:
                about = parse_object(str(file["about"]).encode("utf-8", "surrogatepass"))
                arrays = {name: file[name] for name in file.files if name != "about"}
        kind, version = about.pop("format"), about.pop("version")
        if (kind, version) == (FORMAT, VERSION):
            _expect_episode(about, arrays)
            about |= {name: one_line(about[name], WORDS) for name in TEXTS if name in about}
            about["action_names"] = tuple(one_line(x, WORDS) for x in about["action_names"])
            return PlayedEpisode(About(**about), **arrays)
    except OSError:
        raise
    except Exception as error:  # an archive may be broken in more ways than anybody has listed
        cause = one_line(error, 100)
        raise ValueError(f"path: got {source}, expected an episode file ({cause})") from None
    raise ValueError(
        f"path: got {source}, {one_line(kind, 40)} version {one_line(version, 40)}, "
        f"expected {FORMAT} version {VERSION}"
    )


def _expect_episode(about: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    for name in TEXTS:
        if not isinstance(about.get(name, ""), str):
            raise ValueError(f"{name}: got a {type(about[name]).__name__}, expected a word")
    for name in ("training_seed", "training_step", "seed"):
        expect_whole(name, about.get(name, 0))
    expect_numbers({name: about.get(name) for name in ("mu", "sigma")})
    if not all(isinstance(name, str) for name in about["action_names"]):
        raise ValueError("action_names: got other things, expected words")
    for name, array in arrays.items():
        if array.dtype.kind not in "biuf":
            raise ValueError(f"{name}: got {array.dtype}, expected numbers")
        if array.ndim != DIMENSIONS[name] and (name, array.ndim) != ("action", 2):
            raise ValueError(f"{name}: got {array.ndim} dimensions, expected {DIMENSIONS[name]}")
    if not arrays["action"].size:
        raise ValueError("action: got no steps")
