"""From a description to the things that it describes: environments, an agent, its largest batch."""

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Literal

import gymnasium
import torch
from gymnasium.vector import VectorEnv

from kalmanac._envs.best_arm import BestArmVector
from kalmanac._envs.best_arm_rules import Rules
from kalmanac._envs.registry import EnvironmentSpec, environment, make_vector, worker_count
from kalmanac._envs.sensors import Corruption
from kalmanac._envs.workers import TIMEOUT, describe_exception
from kalmanac._lab.experiment import Experiment
from kalmanac._messages import expect_known
from kalmanac._observation import PartSize, Sizes
from kalmanac._ops.dispatch import packs_rows
from kalmanac._replay.sampling import Batch
from kalmanac._sac.config import AgentSettings
from kalmanac._sac.environment_failure import EnvironmentFailedError
from kalmanac._sac.evaluation import MOST_STEPS
from kalmanac._sac.recurrent_sac import RecurrentSAC

MOST_EVALUATED_AT_ONCE = 128


def check_environment(experiment: Experiment) -> EnvironmentSpec:
    """The environment's row; ValueError with the nearest right name for what it does not know."""
    try:
        spec = environment(experiment.env)
    except SystemExit as error:  # a module that leaves Python when it is imported
        raise ValueError(
            f"env: got {experiment.env!r}, which raised {describe_exception(error)}, "
            "expected an environment"
        ) from error
    if spec.settings is not None:
        for name in experiment.env_settings:
            expect_known("env_settings", name, spec.settings)
    for name in experiment.evaluations:
        expect_known("evaluations", name, spec.evaluations)
    if experiment.eval_on_device:
        bad = str(experiment.part(Corruption))
        if spec.make is not BestArmVector or bad:
            task = f"{experiment.env} with {bad}" if bad else experiment.env
            raise ValueError(f"eval_on_device: got True for {task}, expected best-arm as it is")
    return spec


def check_workers(experiment: Experiment, workers: int | Literal["auto"]) -> None:
    """Raise ValueError unless the environments can run in so many processes."""
    corruption = experiment.part(Corruption)
    worker_count(check_environment(experiment), experiment.num_envs, workers, corruption)


def training_environment(
    experiment: Experiment, *, workers: int | Literal["auto"] = 0, timeout: float = TIMEOUT
) -> VectorEnv[Any, Any, Any]:
    """The environments that the agent learns in, in this process or in `workers` others."""
    check_workers(experiment, workers)
    return _make(experiment, experiment.num_envs, {}, workers=workers, timeout=timeout)


def evaluation_environment(
    experiment: Experiment, name: str, episodes: int | None = None
) -> VectorEnv[Any, Any, Any]:
    """The environments of evaluation `name`, as many as episodes where that is not too many."""
    spec = check_environment(experiment)
    expect_known("evaluation", name, spec.evaluations)
    many = min(episodes or experiment.eval_episodes, MOST_EVALUATED_AT_ONCE)
    return _make(experiment, many, spec.evaluations[name])


def evaluation_rules(experiment: Experiment) -> list[Rules]:
    """Best Arm's rules in each of the evaluations."""
    spec = check_environment(experiment)
    return [
        Rules(**{**experiment.env_settings, **spec.evaluations[name]})
        for name in experiment.evaluations
    ]


def horizon(experiment: Experiment) -> int | None:
    """Steps of the longest episode, where that is known."""
    setting = experiment.env_settings.get("horizon")
    steps = setting if isinstance(setting, int) else check_environment(experiment).horizon
    return None if steps is None else math.ceil(steps / experiment.frame_repeat)


def most_steps(experiment: Experiment, name: str) -> int:
    """Steps after which an episode of evaluation `name` is cut.

    Of settings, only those that are known to be a horizon count as one.
    """
    if experiment.eval_max_steps is not None:
        return experiment.eval_max_steps
    spec = check_environment(experiment)
    settings = {**experiment.env_settings, **spec.evaluations[name]}
    steps = spec.horizon
    if "horizon" in (spec.settings or {}):
        steps = settings.get("horizon", steps)
    steps = settings.get("max_episode_steps", steps)  # Gymnasium's own
    if not isinstance(steps, int) or steps < 1:
        return MOST_STEPS
    return math.ceil(steps / experiment.frame_repeat)


def make_model(experiment: Experiment, env: VectorEnv[Any, Any, Any], device: str) -> RecurrentSAC:
    """An untrained agent in `env`."""
    settings = asdict(experiment.part(AgentSettings))
    return RecurrentSAC(env=env, seed=experiment.seed, device=device, **settings)


def _make(
    experiment: Experiment, num_envs: int, changes: Mapping[str, Any], **where: Any
) -> VectorEnv[Any, Any, Any]:
    settings = {**experiment.env_settings, **changes}
    if "truth" in (check_environment(experiment).settings or {}):
        # The true state takes time to compute: only agents that read it get it.
        settings.setdefault("truth", experiment.privileged or experiment.privileged_critic)
    try:
        return make_vector(
            experiment.env,
            num_envs,
            privileged=experiment.privileged,
            corruption=experiment.part(Corruption),
            **where,
            **settings,
        )
    except TypeError as error:
        if not experiment.env_settings:
            raise
        raise ValueError(
            f"env_settings: got {dict(experiment.env_settings)}, with which {experiment.env!r} "
            f"could not be made: {describe_exception(error)}"
        ) from error
    except (KeyboardInterrupt, ValueError, ImportError, gymnasium.error.Error):
        raise  # they say what is wrong, or are meant for all
    except BaseException as error:
        message = f"the environment could not be built: {describe_exception(error)}"
        raise EnvironmentFailedError(message) from error


def full_batch(sizes: Sizes, experiment: Experiment, device: torch.device) -> Batch:
    """A batch in which every window has its full length, as far as an episode can be so long.

    Where rows are not packed, what an episode cannot fill is there all the same.
    """
    rows, steps = experiment.batch_size, experiment.context_length + experiment.burn_in
    if packs_rows(device):
        steps = min(steps, horizon(experiment) or steps)
    valid = torch.ones(rows, steps, dtype=torch.bool, device=device)
    first = torch.zeros(rows, steps + 1, dtype=torch.bool, device=device)
    first[:, 0] = True

    def zeros(*shape: int) -> torch.Tensor:
        return torch.zeros(rows, *shape, device=device)

    def part(size: PartSize) -> torch.Tensor:  # all readings are there, all actions allowed
        fill, dtype = size.dtype == "bool", getattr(torch, size.dtype)
        return torch.full((rows, steps + 1, *size.shape), fill, dtype=dtype, device=device)

    observation = sizes.observation_parts.map(part)
    if experiment.previous_reward:
        observation = observation._replace(previous_reward=zeros(steps + 1))
    return Batch(
        observation=observation,
        previous_action=zeros(steps + 1, sizes.action),
        action=zeros(steps, sizes.action),
        reward=zeros(steps),
        terminated=~valid,
        valid=valid,
        lengths=torch.full((rows,), steps + 1, device=device),
        reset=first if packs_rows(device) else None,  # as packed rows have it
        elapsed=zeros(steps + 1).long() if experiment.critic_clock else None,
    )
