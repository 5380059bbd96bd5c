"""One episode of a trained agent, with all that can be known of it: for pictures and reports."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kalmanac._envs.action_codecs import ActionCodec
from kalmanac._envs.bayes import adversarial_seed, adversarial_settings
from kalmanac._envs.best_arm import BestArmVector
from kalmanac._envs.best_arm_rules import posterior
from kalmanac._envs.registry import make_vector
from kalmanac._envs.wrappers import PrivilegedObservation
from kalmanac._files.episode_file import About, PlayedEpisode, write_episode
from kalmanac._files.run_reader import MODELS
from kalmanac._lab.episode_trace import ObservationTrace, PolicyTrace
from kalmanac._lab.experiment import Experiment
from kalmanac._lab.factory import check_environment
from kalmanac._lab.trust import Trust, ask_on_terminal, read_trusted
from kalmanac._messages import expect_known
from kalmanac._sac.environment_failure import closed
from kalmanac._sac.evaluation import evaluate_policy
from kalmanac._sac.model_file import FOLDER_MODEL
from kalmanac._sac.recurrent_sac import RecurrentSAC

BEST_ARM_ACTIONS = ("ask", "above", "below")
ADVERSARIAL = "adversarial"
PRETRAINED = Path(__file__).parents[1] / "pretrained"
SHIPPED = {False: PRETRAINED / "best-arm", True: PRETRAINED / "best-arm-two-channels"}  # latent?


def load_run(
    run: str | os.PathLike[str], which: str = "best", trust: Trust = False
) -> tuple[RecurrentSAC, Experiment]:
    """The agent of a run, on the CPU, and what it was trained for.

    Where its environment is somebody else's code, whoever sits at the terminal is asked.
    """
    experiment = read_trusted(run, trust, ask_on_terminal)
    return RecurrentSAC.load(find_model(run, which), device="cpu"), experiment


def find_model(run: str | os.PathLike[str], which: str) -> Path:
    """A run's model file, "best" or "last", or that of a model folder, which has one alone.

    FileNotFoundError where there is none.
    """
    for name in (MODELS[which], FOLDER_MODEL):
        if (file := Path(run, name)).is_file():
            return file
    raise FileNotFoundError(f"run: got {os.fspath(run)}, expected one with {MODELS[which]}")


def record_episodes(
    model: RecurrentSAC, experiment: Experiment, folder: str | os.PathLike[str], *,
    episodes: int = 1, seed: int = 0, deterministic: bool = True,
    changes: Mapping[str, Any] | None = None, adversarial: bool = False,
) -> Iterator[Path]:  # fmt: skip
    """Play episodes, with seeds that count on from `seed`, and leave a file of each in `folder`.

    Each path is given as soon as its file is written. With `adversarial`, that episode comes last.

    Examples:
        >>> from pathlib import Path
        >>> import kalmanac
        >>> run = Path(kalmanac.__file__).parent / "pretrained" / "best-arm"
        >>> model = kalmanac.RecurrentSAC.load(run / "best.safetensors")
        >>> experiment = kalmanac.Experiment.from_json((run / "experiment.json").read_text())
        >>> for file in kalmanac.record_episodes(model, experiment, "episodes", episodes=2, seed=7):
        ...     print(file.name)
        best-arm-vssm+kf-seed7.npz
        best-arm-vssm+kf-seed8.npz
    """
    for number in range(seed, seed + episodes):
        played = play(model, experiment, seed=number, deterministic=deterministic, changes=changes)
        yield write_episode(Path(folder, f"{file_name(played)}.npz"), played)
    if adversarial:
        played = play_adversarial(model, experiment, deterministic=deterministic)
        yield write_episode(Path(folder, f"{file_name(played)}.npz"), played)


def file_name(episode: PlayedEpisode) -> str:
    """What was played, by whom, and the episode's seed; without a suffix."""
    about = episode.about
    task = about.env.replace("/", "-").replace(":", "-")
    words = [task, about.agent.replace(", ", "-"), about.title, f"seed{about.seed}"]
    return "-".join(word for word in words if word)


def play(
    model: RecurrentSAC, experiment: Experiment, *, seed: int, deterministic: bool = True,
    changes: Mapping[str, Any] | None = None, title: str = "",
) -> PlayedEpisode:  # fmt: skip
    """The episode that begins with a reset by `seed`, which decides drawn actions, too.

    Args:
        changes: settings of the environment other than the experiment's.
        title: a word that says what is special about the episode.
    """
    spec = check_environment(experiment)
    settings = {**experiment.env_settings, **(changes or {})}
    if spec.settings is not None:
        for name in settings:
            expect_known("env_settings", name, spec.settings)
    policy = PolicyTrace(model)
    model.set_random_seed(seed)
    env = make_vector(experiment.env, 1, **settings)
    try:
        trace = ObservationTrace(env)
        shown = PrivilegedObservation(trace) if experiment.privileged else trace
        evaluation = evaluate_policy(policy, shown, 1, deterministic=deterministic, seed=seed)
        bandit = isinstance(env.unwrapped, BestArmVector)
    finally:
        closed(env)
    about = About(
        env=experiment.env,
        agent=experiment.agent,
        training_seed=experiment.seed,
        training_step=model.num_timesteps,
        seed=seed,
        deterministic=deterministic,
        terminated=trace.terminated,
        label=experiment.label,
        title=title,
        won=None if evaluation.wins is None else bool(evaluation.wins[0]),
        action_names=BEST_ARM_ACTIONS if bandit else _action_names(policy.actions),
        **{name: float(trace.first[name][0]) for name in ("mu", "sigma") if bandit},
    )
    arrays = trace.arrays() | policy.arrays()
    if bandit:
        assert about.sigma is not None
        del arrays["truth"]  # the posterior, in fewer digits
        total = np.cumsum(arrays["observation"][:, 0], dtype=np.float64)
        count = np.arange(1, len(total) + 1)
        mean, std = posterior(total, count, about.sigma)
        arrays |= {"posterior_mean": mean, "posterior_std": std}
    return PlayedEpisode(about, **arrays)


def play_adversarial(
    model: RecurrentSAC, experiment: Experiment, *, deterministic: bool = True
) -> PlayedEpisode:
    """Best Arm's adversarial episode: the first from seed 0 on, the same for every agent."""
    if check_environment(experiment).make is not BestArmVector:
        raise ValueError(f"adversarial: got {experiment.env}, expected best-arm")
    return play(
        model,
        experiment,
        seed=adversarial_seed(experiment.env_settings),
        deterministic=deterministic,
        changes=adversarial_settings(),
        title=ADVERSARIAL,
    )


def _action_names(actions: ActionCodec) -> tuple[str, ...]:
    """Numbers for discrete actions, and nothing for continuous ones."""
    return tuple(map(str, range(actions.size))) if actions.discrete else ()
