"""One episode of a trained agent, with all that can be known of it: for pictures and reports."""

import os
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kalmanac.envs import ActionCodec, BestArmVector, make_vector, observation_codec, posterior
from kalmanac.envs.adversarial import adversarial_seed, adversarial_settings
from kalmanac.episode_file import About, PlayedEpisode, write_episode
from kalmanac.experiment.building import check_environment
from kalmanac.experiment.description import Experiment, expect_known
from kalmanac.experiment.insight import Insight
from kalmanac.rollout.vectors import EpisodeStreams
from kalmanac.sac import RecurrentSAC

MOST_STEPS = 5000  # an episode without an end is cut here
BEST_ARM_ACTIONS = ("ask", "above", "below")
ADVERSARIAL = "adversarial"


def record_episodes(
    model: RecurrentSAC, experiment: Experiment, folder: str | os.PathLike[str], *,
    episodes: int = 1, seed: int = 0, deterministic: bool = True,
    changes: Mapping[str, Any] | None = None, adversarial: bool = False,
) -> Iterator[Path]:  # fmt: skip
    """Play episodes, with seeds that count on from `seed`, and leave a file of each in `folder`.

    Each path is given as soon as its file is written. With `adversarial`, that episode comes last.
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
    changes: Mapping[str, Any] | None = None, title: str = "", most_steps: int = MOST_STEPS,
) -> PlayedEpisode:  # fmt: skip
    """The episode that begins with a reset by `seed`.

    Args:
        changes: settings of the environment other than the experiment's.
        title: a word that says what is special about the episode.
    """
    spec = check_environment(experiment)
    settings = {**experiment.env_settings, **(changes or {})}
    if spec.settings is not None:
        for name in settings:
            expect_known("env_settings", name, spec.settings)
    with closing(make_vector(experiment.env, 1, **settings)) as env:
        insight = Insight(model, deterministic=deterministic, seed=seed)
        codec = observation_codec(env.single_observation_space)
        streams = EpisodeStreams(env)
        observation, infos = streams.reset(seed)
        bandit = isinstance(env.unwrapped, BestArmVector)
        hidden = {name: float(infos[name][0]) for name in ("mu", "sigma") if bandit}
        steps: dict[str, list[Any]] = {"observation": [], "reward": [], "truth": []}
        ended = None
        while ended is None and len(steps["reward"]) < most_steps:
            truth = _row(infos, "privileged")
            # the Oracle sees the truth, and we see both
            action = insight.act(np.array([truth]) if experiment.privileged else observation)
            steps["observation"].append(codec.encode(observation)[0])
            steps["truth"].append(truth)
            arrival = streams.step(action)
            steps["reward"].append(arrival.reward[0])
            observation, infos = arrival.observation, arrival.infos
            ended = arrival.episodes[0] if arrival.episodes else None
        won = None if ended is None else ended.info.get("win")
        about = About(
            env=experiment.env,
            agent=experiment.agent,
            training_seed=experiment.seed,
            training_step=model.num_timesteps,
            seed=seed,
            deterministic=deterministic,
            terminated=ended is not None and ended.terminated,
            label=experiment.label,
            title=title,
            won=None if won is None else bool(won),
            action_names=BEST_ARM_ACTIONS if bandit else _action_names(insight.actions),
            **hidden,
        )
        return PlayedEpisode(about, **_arrays(steps, about, bandit=bandit), **insight.arrays())


def play_adversarial(
    model: RecurrentSAC, experiment: Experiment, *, start: int = 0, deterministic: bool = True
) -> PlayedEpisode:
    """Best Arm's adversarial episode: the first from seed `start` on, the same for every agent."""
    if check_environment(experiment).make is not BestArmVector:
        raise ValueError(f"adversarial: got {experiment.env}, expected best-arm")
    return play(
        model,
        experiment,
        seed=adversarial_seed(experiment.env_settings, start),
        deterministic=deterministic,
        changes=adversarial_settings(),
        title=ADVERSARIAL,
    )


def _arrays(steps: Mapping[str, list[Any]], about: About, *, bandit: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "observation": np.asarray(steps["observation"], np.float32),
        "reward": np.asarray(steps["reward"], np.float64),
    }
    if bandit:
        assert about.sigma is not None
        total = np.cumsum(found["observation"][:, 0], dtype=np.float64)
        count = np.arange(1, len(total) + 1)
        found["posterior_mean"], found["posterior_std"] = posterior(total, count, about.sigma)
    elif steps["truth"][0] is not None:
        found["truth"] = np.asarray(steps["truth"], np.float32)
    return found


def _action_names(actions: ActionCodec) -> tuple[str, ...]:
    """Numbers for discrete actions, and nothing for continuous ones."""
    return tuple(map(str, range(actions.size))) if actions.discrete else ()


def _row(infos: Mapping[str, Any], name: str) -> NDArray[Any] | None:
    """What the one environment tells under this name."""
    told = infos.get(name)
    if told is None or not np.all(infos.get(f"_{name}", True)):
        return None
    return np.asarray(told[0])
