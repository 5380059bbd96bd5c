"""The episodes that a run has collected, from the newest checkpoint in its folder."""

import os
from collections.abc import Iterator
from pathlib import Path

from kalmanac._files.run_reader import checkpoint_file, checkpoint_steps, refuse_no_run
from kalmanac._lab.checkpointing import CheckpointFolder
from kalmanac._lab.experiment import Experiment
from kalmanac._replay.buffer import Replay
from kalmanac._replay.replay_file import understood
from kalmanac._sac.episode_data import EpisodeData, decode_episodes
from kalmanac._sac.problem import Problem


def run_episodes(folder: str | os.PathLike[str]) -> Iterator[EpisodeData]:
    """The episodes in the replay of a run, in the units of its environment.

    Nothing of the run is built or run. ValueError where it kept no checkpoint.

    Examples:
        >>> import kalmanac
        >>> small = kalmanac.Experiment(
        ...     env="track", encoder="memoryless", total_steps=128, learning_starts=120,
        ...     batch_size=4, actor_hidden=(8,), critic_hidden=(8,), eval_episodes=1, num_envs=1,
        ... )
        >>> outcome = kalmanac.run(small, "runs/small", events=False)
        >>> model = kalmanac.RecurrentSAC("gru", kalmanac.Track(), seed=0)
        >>> model.add_episodes(kalmanac.run_episodes("runs/small")).transitions
        128
    """
    path = Path(folder).absolute()
    refuse_no_run(path)
    steps = checkpoint_steps(path)
    if not steps:
        raise ValueError(f"run: got {path}, which kept no checkpoint, expected one with its replay")
    checkpoints = CheckpointFolder(path)
    checkpoint = checkpoints.read(steps[-1])
    with understood(checkpoint_file(path, steps[-1])):
        problem = Problem.from_json(checkpoint.run["model"]["spaces"])
        capacity = Experiment.from_data(checkpoint.run["experiment"]).buffer_size
        replay = Replay(problem.sizes, len(checkpoint.books["head"]), capacity=capacity)
        checkpoints.restore(checkpoint, replay)
    return decode_episodes(replay, problem)
