"""Evaluations of a finished run: its last model plays on, and leaves data files in its folder.

Nothing is trained here. Reports draw what these files hold.
"""

from abc import ABC, abstractmethod
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kalmanac._envs.registry import make_vector
from kalmanac._files.episode_file import write_episode
from kalmanac._files.heatmap_file import Heatmap, write_heatmap
from kalmanac._files.run_reader import EVALUATIONS, HEATMAP, MODELS
from kalmanac._lab.experiment import Experiment
from kalmanac._lab.play import play, play_adversarial
from kalmanac._lab.trust import Trust, read_trusted
from kalmanac._sac.evaluation import evaluate_policy
from kalmanac._sac.recurrent_sac import RecurrentSAC

MODEL = "last"  # a choice: the paper's figures show agents after their training


class PostTraining(ABC):
    """An evaluation of a finished run that leaves files in its folder, once."""

    @abstractmethod
    def files(self) -> tuple[str, ...]:
        """Name the files that it leaves in a run folder."""

    @abstractmethod
    def play(self, model: RecurrentSAC, experiment: Experiment, folder: Path) -> None:
        """Play, and write those files."""

    def is_left(self, folder: Path) -> bool:
        """Whether the run has all of them."""
        return all((folder / file).is_file() for file in self.files())


@dataclass(frozen=True)
class GridOfBandits(PostTraining):
    """Win rate and length over `points` × `points` pairs of μ and σ (paper, figure 5).

    Best Arm's μ goes over the training's interval, its σ from zero on beyond it.
    """

    points: int = 25
    episodes: int = 100  # of each pair
    mu: float = 0.5
    sigma: float = 3.0

    def files(self) -> tuple[str, ...]:
        """Name its one file."""
        return (HEATMAP,)

    def play(self, model: RecurrentSAC, experiment: Experiment, folder: Path) -> None:
        """Play one μ at a time; every episode has an environment of its own."""
        mu = np.linspace(-self.mu, self.mu, self.points)
        sigma = np.linspace(0.0, self.sigma, self.points)
        rows = [self._row(model, experiment, float(mean), sigma, i) for i, mean in enumerate(mu)]
        wins, lengths = zip(*rows, strict=True)
        heatmap = Heatmap(
            mu.tolist(), sigma.tolist(), list(wins), list(lengths), self.episodes, MODEL
        )
        write_heatmap(folder, heatmap)

    def _row(
        self, model: RecurrentSAC, experiment: Experiment, mu: float,
        sigma: np.ndarray[tuple[int], np.dtype[np.float64]], seed: int,
    ) -> tuple[list[float], list[float]]:  # fmt: skip
        each = np.repeat(sigma, self.episodes)
        settings = {**experiment.env_settings, "mu": (mu, mu), "sigma": (each, each)}
        env = make_vector(experiment.env, len(each), privileged=experiment.privileged, **settings)
        with closing(env):
            evaluation = evaluate_policy(model, env, len(each), seed=seed)
        assert evaluation.wins is not None
        shape = (len(sigma), self.episodes)
        wins, lengths = evaluation.wins.reshape(shape), evaluation.lengths.reshape(shape)
        return wins.mean(1).tolist(), lengths.mean(1).tolist()


@dataclass(frozen=True)
class ExampleEpisodes(PostTraining):
    """One episode in each of a few bandits (μ, σ); the paper's figure 3 has these two."""

    bandits: tuple[tuple[float, float], ...] = ((0.5, 0.5), (0.5, 1.0))

    def files(self) -> tuple[str, ...]:
        """Name one file for each bandit."""
        return tuple(f"{EVALUATIONS}/example-{mu:g}-{sigma:g}.npz" for mu, sigma in self.bandits)

    def play(self, model: RecurrentSAC, experiment: Experiment, folder: Path) -> None:
        """The n-th bandit's episode begins with a reset by n."""
        for seed, (file, (mu, sigma)) in enumerate(zip(self.files(), self.bandits, strict=True)):
            hidden = {"mu": (mu, mu), "sigma": (sigma, sigma)}
            write_episode(folder / file, play(model, experiment, seed=seed, changes=hidden))


@dataclass(frozen=True)
class AdversarialEpisode(PostTraining):
    """The episode whose first two samples mislead, with the policy over a latent space of two."""

    def files(self) -> tuple[str, ...]:
        """Name its one file."""
        return (f"{EVALUATIONS}/adversarial.npz",)

    def play(self, model: RecurrentSAC, experiment: Experiment, folder: Path) -> None:
        """Play the same episode for every agent."""
        (file,) = self.files()
        write_episode(folder / file, play_adversarial(model, experiment))


def run_post_training(
    folder: Path, evaluations: tuple[PostTraining, ...], trust: Trust = False
) -> None:
    """Leave what the finished run in `folder` does not have yet."""
    due = [evaluation for evaluation in evaluations if not evaluation.is_left(folder)]
    if not due:
        return
    experiment = read_trusted(folder, trust)
    model = RecurrentSAC.load(folder / MODELS[MODEL], device="cpu")
    for evaluation in due:
        evaluation.play(model, experiment, folder)
